//! Renders annotations as OpenTSDB's JSON.
//!
//! ```text
//!   {"tsuid":"","description":"","notes":"","custom":{}?,"startTime":1356998405,"endTime":0}
//! ```
//!
//! Fields that are null are left out; `custom` is in the order of a Java hash map.
//!
//! Source: OpenTSDB 2.4, `HttpJsonSerializer.formatAnnotationV1`.

use oxtsdb_schema::annotation::Custom;
use oxtsdb_schema::java::{buckets_of_copy, sort_as_hash_map};
use oxtsdb_schema::{Annotation, stored_json};
use serde::Serialize;
use serde::ser::Serializer;

/// An annotation.
pub(in crate::http) fn annotation(annotation: &Annotation) -> Vec<u8> {
    stored_json::to_bytes(&Rendered::new(annotation))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rendered<'a> {
    tsuid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<HashMapOrder<'a>>,
    start_time: i64,
    end_time: i64,
}

impl<'a> Rendered<'a> {
    fn new(annotation: &'a Annotation) -> Rendered<'a> {
        Rendered {
            tsuid: &annotation.tsuid,
            description: annotation.description.as_deref(),
            notes: annotation.notes.as_deref(),
            custom: annotation.custom.as_ref().map(HashMapOrder),
            start_time: annotation.start_time,
            end_time: annotation.end_time,
        }
    }
}

/// Custom fields in the order in which a Java hash map that is a copy of them iterates.
struct HashMapOrder<'a>(&'a Custom);

impl Serialize for HashMapOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys: Vec<&String> = self.0.keys().collect();
        sort_as_hash_map(&mut keys, buckets_of_copy(self.0.len()));
        serializer.collect_map(keys.into_iter().map(|key| (key, self.0.get(key))))
    }
}
