//! TSMeta: notes about a series, in table `tsdb-meta`.
//!
//! ```text
//!   row key: the TSUID, without salt
//!   name:ts_meta   {"tsuid":"000001000001000001","displayName":"","description":"","notes":"","created":1356998400,
//!                   "custom":null,"units":"","dataType":"","retention":0,"max":"NaN","min":"NaN"}
//!   name:ts_ctr    8 bytes: points; the cell's timestamp is the time of the last one
//! ```
//!
//! One line in storage. The metadata of the metric and of the tags is in table `tsdb-uid`.
//!
//! Source: OpenTSDB 2.4, `TSMeta.getStorageJSON`.

use serde::{Deserialize, Serialize};

use crate::document::{self, CustomFields, DocumentError};
use crate::stored_json;

/// The qualifier of the document in table `tsdb-meta`.
pub const TS_META_QUALIFIER: &[u8] = b"ts_meta";

/// The metadata of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct TsMeta {
    /// A name to show.
    pub display_name: String,
    /// One line.
    pub description: String,
    /// Longer text.
    pub notes: String,
    /// When the first point was written, in seconds since the epoch; 0: not known.
    pub created_seconds: i64,
    /// Anything else.
    pub custom: Option<CustomFields>,
    /// The unit of the values.
    pub units: String,
    /// The kind of data, free text.
    pub data_type: String,
    /// Days that points are to be kept; 0: for good. Nothing enforces it.
    pub retention_days: i32,
    /// The largest value that makes sense; NaN: not known.
    pub max: f64,
    /// The smallest value that makes sense; NaN: not known.
    pub min: f64,
}

impl TsMeta {
    /// The document that OpenTSDB writes for a new series.
    pub fn new(created_seconds: i64) -> Self {
        Self {
            display_name: String::new(),
            description: String::new(),
            notes: String::new(),
            created_seconds,
            custom: None,
            units: String::new(),
            data_type: String::new(),
            retention_days: 0,
            max: f64::NAN,
            min: f64::NAN,
        }
    }

    /// Decodes a stored document. Ignores the TSUID that it names: the row key counts.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] if the bytes are not the JSON of such a document.
    pub fn decode(stored: &[u8]) -> Result<Self, DocumentError> {
        let read: Read = document::read(stored)?;
        Ok(Self {
            display_name: read.display_name,
            description: read.description,
            notes: read.notes,
            created_seconds: read.created,
            custom: read.custom,
            units: read.units,
            data_type: read.data_type,
            retention_days: read.retention,
            max: read.max,
            min: read.min,
        })
    }

    /// The document of a series as OpenTSDB stores it.
    pub fn encode(&self, tsuid: &[u8]) -> Vec<u8> {
        stored_json::to_bytes(&Stored {
            tsuid: &hex::encode_upper(tsuid),
            display_name: &self.display_name,
            description: &self.description,
            notes: &self.notes,
            created: self.created_seconds,
            custom: self.custom.as_ref(),
            units: &self.units,
            data_type: &self.data_type,
            retention: self.retention_days,
            max: self.max,
            min: self.min,
        })
    }
}

/// The fields in the order of the stored document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stored<'a> {
    tsuid: &'a str,
    display_name: &'a str,
    description: &'a str,
    notes: &'a str,
    created: i64,
    custom: Option<&'a CustomFields>,
    units: &'a str,
    data_type: &'a str,
    retention: i32,
    #[serde(serialize_with = "stored_json::double")]
    max: f64,
    #[serde(serialize_with = "stored_json::double")]
    min: f64,
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
    #[serde(default, deserialize_with = "document::text")]
    units: String,
    #[serde(default, deserialize_with = "document::text")]
    data_type: String,
    #[serde(default, deserialize_with = "document::integer")]
    retention: i32,
    #[serde(default = "unknown", deserialize_with = "document::double")]
    max: f64,
    #[serde(default = "unknown", deserialize_with = "document::double")]
    min: f64,
}

fn unknown() -> f64 {
    f64::NAN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TSUID: &[u8] = &[0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2];

    /// Documents that OpenTSDB 2.4.1 stored: vectors V94 and V96.
    const NEW: &str = r#"{"tsuid":"000001000001000001000002000002","displayName":"","description":"","notes":"","created":1356998400,"custom":null,"units":"","dataType":"","retention":0,"max":"NaN","min":"NaN"}"#;
    const EDITED: &str = r#"{"tsuid":"000001000001000001000002000002","displayName":"","description":"","notes":"","created":1356998400,"custom":null,"units":"pct","dataType":"","retention":30,"max":100.0,"min":-1.5}"#;

    fn encoded(meta: &TsMeta) -> String {
        String::from_utf8(meta.encode(TSUID)).unwrap()
    }

    #[test]
    fn documents_are_opentsdb_s() {
        let new = TsMeta::new(1_356_998_400);
        assert_eq!(encoded(&new), NEW);
        let edited = TsMeta {
            units: "pct".to_owned(),
            retention_days: 30,
            max: 100.0,
            min: -1.5,
            ..new
        };
        assert_eq!(encoded(&edited), EDITED);
        for stored in [NEW, EDITED] {
            assert_eq!(encoded(&TsMeta::decode(stored.as_bytes()).unwrap()), stored);
        }
    }

    #[test]
    fn reads_any_field_order_and_unknown_fields() {
        let meta = TsMeta::decode(br#"{"min":"-5","x":{},"retention":"3","max":1e10,"tsuid":"x"}"#).unwrap();
        assert_eq!((meta.min, meta.max, meta.retention_days), (-5.0, 1e10, 3));
        assert!(encoded(&meta).ends_with(r#""retention":3,"max":1.0E10,"min":-5.0}"#));
        let meta = TsMeta::decode(b"{}").unwrap();
        assert!(meta.max.is_nan() && meta.min.is_nan());
    }

    #[test]
    fn rejects_bytes_that_are_no_document() {
        for stored in [
            &b""[..],
            b"{",
            b"[1]",
            br#"{"max":"x"}"#,
            br#"{"retention":99999999999}"#,
        ] {
            TsMeta::decode(stored).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(
            texts in proptest::array::uniform5(".*"), created_seconds: i64, retention_days: i32,
            max: f64, min in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY), any::<f64>()],
            custom in proptest::option::of(proptest::collection::vec((".*", proptest::option::of(".*")), 0..20)),
        ) {
            let [display_name, description, notes, units, data_type] = texts;
            let custom = custom.map(CustomFields::new);
            let meta = TsMeta {
                display_name, description, notes, created_seconds, custom, units, data_type, retention_days, max, min,
            };
            let stored = meta.encode(TSUID);
            let decoded = TsMeta::decode(&stored).unwrap();
            prop_assert_eq!(decoded.encode(TSUID), stored);
            prop_assert!(decoded.max == max || max.is_nan() && decoded.max.is_nan());
            prop_assert_eq!(
                (decoded.display_name, decoded.units, decoded.retention_days),
                (meta.display_name, meta.units, meta.retention_days)
            );
        }

        #[test]
        fn any_bytes_decode_or_fail(stored in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(meta) = TsMeta::decode(&stored) {
                meta.encode(TSUID);
            }
        }
    }
}
