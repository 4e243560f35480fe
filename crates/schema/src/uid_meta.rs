//! UIDMeta: notes about a metric, a tag key or a tag value, in table `tsdb-uid`.
//!
//! ```text
//!   {"type":"METRIC","displayName":"","description":"","notes":"","created":1356998400,"custom":null}
//! ```
//!
//! [`meta_qualifier`](crate::uid_table::meta_qualifier) returns the qualifier. The UID is the row key, the name is
//! the reverse mapping; neither is stored here.
//!
//! Source: OpenTSDB 2.4, `UIDMeta.getStorageJSON`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::document::{self, CustomFields, DocumentError};
use crate::stored_json;
use crate::uid::{Uid, UidKind};

/// Fields that users name, in their order; the value `None` is a null.
pub type Custom = Vec<(String, Option<String>)>;

/// The metadata of a UID: the UID, its name and the fields of its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidMeta {
    /// Name space.
    pub kind: UidKind,
    /// The UID.
    pub uid: Uid,
    /// The name; output only.
    pub name: String,
    /// A name to show.
    pub display_name: String,
    /// One line.
    pub description: String,
    /// Longer text.
    pub notes: String,
    /// When the UID was assigned, to the second; `None`: not known.
    pub created: Option<SystemTime>,
    /// Anything else; `None`: null.
    pub custom: Option<Custom>,
    /// Version of the stored document; empty: none is stored. In an update the version that it must have; empty: any.
    pub etag: String,
}

impl UidMeta {
    /// The metadata of a UID without any, for an update.
    pub fn new(kind: UidKind, uid: Uid) -> Self {
        Self {
            kind,
            uid,
            name: String::new(),
            display_name: String::new(),
            description: String::new(),
            notes: String::new(),
            created: None,
            custom: None,
            etag: String::new(),
        }
    }

    /// When the UID was assigned, in seconds since the epoch; `None`: not known, or before 1970.
    pub fn created_seconds(&self) -> Option<i64> {
        let since = self.created?.duration_since(UNIX_EPOCH).ok()?;
        Some(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }
}

/// The action of a sync with the points on the document of a UID, performed or planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UidMetaAction {
    /// Nothing: the document is as it should be.
    None,
    /// Created the document.
    Created,
    /// Corrected the time of creation, which was not known or too late.
    Corrected,
}

/// The stored document of a UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UidDocument {
    /// The kind of the UID.
    pub kind: UidKind,
    /// A name to show.
    pub display_name: String,
    /// One line.
    pub description: String,
    /// Longer text.
    pub notes: String,
    /// When the UID was assigned, in seconds since the epoch; 0: not known.
    pub created_seconds: i64,
    /// Anything else.
    pub custom: Option<CustomFields>,
}

impl UidDocument {
    /// The document that OpenTSDB writes when it assigns a UID.
    pub fn new(kind: UidKind, created_seconds: i64) -> Self {
        Self {
            kind,
            display_name: String::new(),
            description: String::new(),
            notes: String::new(),
            created_seconds,
            custom: None,
        }
    }

    /// Decodes the stored document of a UID of this kind. Ignores the kind that the document names.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if the bytes are not the JSON of such a document.
    pub fn decode(kind: UidKind, stored: &[u8]) -> Result<Self, DocumentError> {
        let read: Read = document::read(stored)?;
        Ok(Self {
            kind,
            display_name: read.display_name,
            description: read.description,
            notes: read.notes,
            created_seconds: read.created,
            custom: read.custom,
        })
    }

    /// The document as OpenTSDB stores it.
    pub fn encode(&self) -> Vec<u8> {
        stored_json::to_bytes(&Stored {
            kind: kind_name(self.kind),
            display_name: &self.display_name,
            description: &self.description,
            notes: &self.notes,
            created: self.created_seconds,
            custom: self.custom.as_ref(),
        })
    }
}

/// The name of a kind in documents: `METRIC`, `TAGK`, `TAGV`.
pub const fn kind_name(kind: UidKind) -> &'static str {
    match kind {
        UidKind::Metric => "METRIC",
        UidKind::Tagk => "TAGK",
        UidKind::Tagv => "TAGV",
    }
}

/// The fields in the order of the stored document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stored<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: &'a str,
    description: &'a str,
    notes: &'a str,
    created: i64,
    custom: Option<&'a CustomFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    #[serde(default, deserialize_with = "document::text")]
    display_name: String,
    #[serde(default, deserialize_with = "document::text")]
    description: String,
    #[serde(default, deserialize_with = "document::text")]
    notes: String,
    #[serde(default, deserialize_with = "document::integer")]
    created: i64,
    #[serde(default)]
    custom: Option<CustomFields>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Documents that OpenTSDB 2.4.1 stored: vectors V94, V95 and V98.
    const NEW: &str = r#"{"type":"METRIC","displayName":"","description":"","notes":"","created":1356998400,"custom":null}"#;
    const EDITED: &str = r#"{"type":"METRIC","displayName":"CPU","description":"","notes":"","created":1356998400,"custom":{"owner":"Jane","mm":"3","a":"2","z":"1","department":"Ops"}}"#;

    fn encoded(meta: &UidDocument) -> String {
        String::from_utf8(meta.encode()).unwrap()
    }

    #[test]
    fn new_documents_are_opentsdb_s() {
        assert_eq!(encoded(&UidDocument::new(UidKind::Metric, 1_356_998_400)), NEW);
        assert!(encoded(&UidDocument::new(UidKind::Tagk, 1)).starts_with(r#"{"type":"TAGK","#));
        assert!(encoded(&UidDocument::new(UidKind::Tagv, 1)).starts_with(r#"{"type":"TAGV","#));
    }

    #[test]
    fn edited_documents_are_opentsdb_s() {
        let fields = ["owner", "department", "z", "a", "mm"]
            .into_iter()
            .zip(["Jane", "Ops", "1", "2", "3"]);
        let meta = UidDocument {
            display_name: "CPU".to_owned(),
            custom: Some(CustomFields::new(
                fields.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))),
            )),
            ..UidDocument::new(UidKind::Metric, 1_356_998_400)
        };
        assert_eq!(encoded(&meta), EDITED);
        let decoded = UidDocument::decode(UidKind::Metric, EDITED.as_bytes()).unwrap();
        assert_eq!(encoded(&decoded), EDITED);
    }

    #[test]
    fn reads_any_field_order_and_unknown_fields() {
        let stored = br#" {"custom":{"a":"b"},"x":[{"y":1}],"created":"7","notes":"n","type":"bogus"} "#;
        let meta = UidDocument::decode(UidKind::Tagv, stored).unwrap();
        let expected = UidDocument {
            notes: "n".to_owned(),
            custom: Some(CustomFields::new([("a".to_owned(), Some("b".to_owned()))])),
            ..UidDocument::new(UidKind::Tagv, 7)
        };
        assert_eq!(meta, expected);
    }

    #[test]
    fn rejects_bytes_that_are_no_document() {
        for stored in [&b""[..], b"{", b"[]", b"\"a\"", b"\xff", br#"{"custom":"a"}"#] {
            let error = UidDocument::decode(UidKind::Metric, stored).unwrap_err();
            assert!(error.to_string().starts_with("stored document cannot be read: "));
        }
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(
            display_name in ".*", description in ".*", notes in ".*", created_seconds: i64,
            custom in proptest::option::of(proptest::collection::vec((".*", proptest::option::of(".*")), 0..40)),
        ) {
            let custom = custom.map(CustomFields::new);
            let meta = UidDocument { kind: UidKind::Tagk, display_name, description, notes, created_seconds, custom };
            let stored = meta.encode();
            let decoded = UidDocument::decode(UidKind::Tagk, &stored).unwrap();
            prop_assert_eq!(decoded.encode(), stored, "what OpenTSDB compares with is what is stored");
            let sorted = |meta: &UidDocument| {
                let custom = meta.custom.clone().map(|custom| {
                    let mut fields: Vec<_> = custom.iter().map(|(k, v)| (k.to_owned(), v.map(str::to_owned))).collect();
                    fields.sort();
                    fields
                });
                (meta.display_name.clone(), meta.description.clone(), meta.notes.clone(), meta.created_seconds, custom)
            };
            prop_assert_eq!(sorted(&decoded), sorted(&meta));
        }

        #[test]
        fn any_bytes_decode_or_fail(stored in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(meta) = UidDocument::decode(UidKind::Metric, &stored) {
                meta.encode();
            }
        }
    }
}
