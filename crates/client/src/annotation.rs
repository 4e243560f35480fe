//! Annotations: notes on a series or on everything.

use std::collections::BTreeMap;

use bytes::Bytes;
use oxtsdb_proto::common::v1::TimeRange;
use oxtsdb_proto::data::v1::{
    self as pb, DeleteAnnotationRangeRequest, DeleteAnnotationRequest, GetAnnotationRequest,
    ListAnnotationsRequest, PutAnnotationRequest,
};

use crate::{DataClient, Error, Timestamp};

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

/// `oxtsdb.data.v1.AnnotationService`. An empty TSUID is that of global annotations.
impl DataClient {
    /// Returns an annotation.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if there is none.
    pub async fn annotation(&self, tsuid: impl Into<Bytes>, start: Timestamp) -> Result<Annotation, Error> {
        let request = GetAnnotationRequest {
            tsuid: tsuid.into(),
            start_ms: start.millis(),
        };
        let response = self.connection().call(&request).await?;
        Ok(response.annotation.unwrap_or_default().into())
    }

    /// Returns a page of annotations by their begin. A page can be empty although others follow.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` for the token of another query.
    pub async fn annotations(&self, request: ListAnnotationsRequest) -> Result<AnnotationPage, Error> {
        let page = self.connection().call(&request).await?;
        Ok(AnnotationPage {
            annotations: page.annotations.into_iter().map(Into::into).collect(),
            next: Some(page.next_page_token).filter(|token| !token.is_empty()),
        })
    }

    /// Creates an annotation or changes fields of the stored one, and returns it as stored.
    ///
    /// # Errors
    ///
    /// `ABORTED` if the precondition of the request does not hold.
    pub async fn put_annotation(&self, request: PutAnnotationRequest) -> Result<Annotation, Error> {
        let response = self.connection().call(&request).await?;
        Ok(response.annotation.unwrap_or_default().into())
    }

    /// Deletes an annotation.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if there is none, unless the request allows it; `ABORTED` if its etag is not that of the stored
    /// one.
    pub async fn delete_annotation(&self, request: DeleteAnnotationRequest) -> Result<(), Error> {
        self.connection().call(&request).await.map(drop)
    }

    /// Deletes the annotations of series that begin in a range, and global ones if `global` is set. Returns how many
    /// there were.
    ///
    /// # Errors
    ///
    /// If the service fails; some of them may have been deleted.
    pub async fn delete_annotations(
        &self,
        tsuids: impl IntoIterator<Item = Bytes>,
        global: bool,
        range: TimeRange,
    ) -> Result<u64, Error> {
        let request = DeleteAnnotationRangeRequest {
            tsuids: tsuids.into_iter().collect(),
            global,
            range: Some(range),
        };
        Ok(self.connection().call(&request).await?.deleted)
    }
}
