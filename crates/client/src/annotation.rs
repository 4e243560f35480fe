//! Annotations: notes on a series or on everything.

use std::collections::BTreeMap;

use bytes::Bytes;
use oxtsdb_proto::data::v1 as pb;

use crate::Timestamp;

/// A note on a series or, without a TSUID, on everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The series; empty: global.
    pub tsuid: Bytes,
    /// Begin; with the series it is the key.
    pub start: Timestamp,
    /// End; `None`: an instant, or not yet over.
    pub end: Option<Timestamp>,
    /// One line.
    pub description: String,
    /// Longer text.
    pub notes: String,
    /// Anything else.
    pub custom: BTreeMap<String, String>,
    /// Version of the stored annotation; empty in results of queries.
    pub etag: String,
}

impl From<pb::Annotation> for Annotation {
    fn from(annotation: pb::Annotation) -> Self {
        let end = (annotation.end_ms != 0).then(|| Timestamp::from_millis(annotation.end_ms));
        Self {
            tsuid: annotation.tsuid,
            start: Timestamp::from_millis(annotation.start_ms),
            end,
            description: annotation.description,
            notes: annotation.notes,
            custom: annotation.custom.into_iter().collect(),
            etag: annotation.etag,
        }
    }
}

/// A page of annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationPage {
    /// In order of time.
    pub annotations: Vec<Annotation>,
    /// The token of the next page; `None`: this is the last.
    pub next: Option<String>,
}
