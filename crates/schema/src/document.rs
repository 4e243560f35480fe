//! Fields shared by all stored documents: `custom`, and values as Jackson reads them.
//!
//! Documents have any field order, unknown fields, and values of other types: OpenTSDB's parser takes `30` and `"30"`
//! for a number, and `30` for a text. A `null` is the field's default.
//!
//! ```text
//!   "custom": null | {} | {"key":"value",...}      in the order of a Java HashMap
//! ```
//!
//! Source: OpenTSDB 2.4, `UIDMeta.setCustom`, `TSMeta.setCustom`; Jackson's `ObjectMapper` with its defaults.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use thiserror::Error;

use crate::java::{buckets_of_copy, sort_as_hash_map};

/// Stored bytes that are not the JSON of a document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("stored document cannot be read: {detail}")]
pub struct DocumentError {
    /// The message of the JSON parser.
    pub detail: String,
}

/// Reads a document.
///
/// # Errors
///
/// If the bytes are not a JSON object with the fields of the type.
pub fn read<T: DeserializeOwned>(stored: &[u8]) -> Result<T, DocumentError> {
    // A derived `Deserialize` also takes an array of the fields.
    if stored.trim_ascii_start().first() != Some(&b'{') {
        let detail = "it is not a JSON object".to_owned();
        return Err(DocumentError { detail });
    }
    serde_json::from_slice(stored).map_err(|error| DocumentError {
        detail: error.to_string(),
    })
}

/// The `custom` fields of a document: distinct keys with their values.
///
/// Serialised in the order of a `HashMap` that was copied from a map with the keys in their order here, as
/// OpenTSDB's setters do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomFields(Vec<(String, Option<String>)>);

impl CustomFields {
    /// The fields in their order. A key that occurs again gets the later value and keeps its place.
    pub fn new(fields: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        let mut custom = Self::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (key, value) in fields {
            let place = *places.entry(key.clone()).or_insert(custom.0.len());
            match custom.0.get_mut(place) {
                Some(field) => field.1 = value,
                None => custom.0.push((key, value)),
            }
        }
        custom
    }

    /// The fields, in their order; `None` is a null.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == key)
            .and_then(|(_, value)| value)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sorts by key.
struct ByKey<'a>(&'a str, Option<&'a str>);

impl AsRef<str> for ByKey<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl Serialize for CustomFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields: Vec<ByKey<'_>> = self.iter().map(|(key, value)| ByKey(key, value)).collect();
        let buckets = buckets_of_copy(fields.len());
        sort_as_hash_map(&mut fields, buckets);
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for ByKey(key, value) in fields {
            map.serialize_entry(key, &value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for CustomFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = CustomFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CustomFields, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Scalar>()? {
                    fields.push((key, value.into_text()));
                }
                Ok(CustomFields::new(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A value that is no object and no array.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Null(()),
}

impl Scalar {
    fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Boolean(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Double(value) => Some(value.to_string()),
            Self::Null(()) => None,
        }
    }
}

/// A text. For `deserialize_with`.
///
/// # Errors
///
/// An object or an array.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Scalar::deserialize(deserializer)?.into_text().unwrap_or_default())
}

/// An integer, also as a text; a fraction is cut off. For `deserialize_with`.
///
/// # Errors
///
/// A value that is no number, or is out of the range of the type.
pub fn integer<'de, D: Deserializer<'de>, T: TryFrom<i64> + Default>(deserializer: D) -> Result<T, D::Error> {
    let number = match Scalar::deserialize(deserializer)? {
        Scalar::Null(()) => return Ok(T::default()),
        Scalar::Integer(number) => number,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a fraction is cut off, as Jackson does"
        )]
        Scalar::Double(number) => number as i64,
        Scalar::Text(text) if text.trim().is_empty() => return Ok(T::default()),
        Scalar::Text(text) => {
            let number = text.trim().parse();
            number.map_err(|_| D::Error::custom(format_args!("`{text}` is no integer")))?
        }
        Scalar::Boolean(value) => return Err(D::Error::custom(format_args!("`{value}` is no integer"))),
    };
    T::try_from(number).map_err(|_| D::Error::custom(format_args!("{number} is out of range")))
}

/// The integer part, if it fits in 64 bits.
pub fn truncated(number: f64) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "truncation is intended; the range is checked"
    )]
    let whole = number.trunc() as i64;
    (number.abs() < 9.2e18).then_some(whole)
}

/// A double, also as a text: `"NaN"`, `"Infinity"`, `"1.5"`. For `deserialize_with`.
///
/// # Errors
///
/// A value that is no number.
pub fn double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Double(number) => Ok(number),
        #[expect(clippy::cast_precision_loss, reason = "the field is a double")]
        Scalar::Integer(number) => Ok(number as f64),
        Scalar::Null(()) => Ok(0.0),
        Scalar::Text(text) => match text.trim() {
            "" => Ok(0.0),
            "INF" | "+INF" | "+Infinity" => Ok(f64::INFINITY),
            "-INF" => Ok(f64::NEG_INFINITY),
            number => {
                let parsed = number.parse();
                parsed.map_err(|_| D::Error::custom(format_args!("`{text}` is no number")))
            }
        },
        Scalar::Boolean(value) => Err(D::Error::custom(format_args!("`{value}` is no number"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_json;

    fn custom(json: &str) -> CustomFields {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn custom_fields_are_in_the_order_of_a_hash_map() {
        let fields = custom(r#"{"owner":"Jane","department":"Ops","z":"1","a":"2","mm":"3"}"#);
        let stored = stored_json::to_bytes(&fields);
        assert_eq!(
            String::from_utf8(stored).unwrap(),
            r#"{"owner":"Jane","mm":"3","a":"2","z":"1","department":"Ops"}"#
        );
        assert_eq!(fields.get("a"), Some("2"));
        assert_eq!(stored_json::to_bytes(&CustomFields::default()), b"{}");
    }

    #[test]
    fn a_repeated_key_has_the_last_value() {
        assert_eq!(
            custom(r#"{"a":"1","b":"2","a":"3"}"#).0,
            [
                ("a".to_owned(), Some("3".to_owned())),
                ("b".to_owned(), Some("2".to_owned()))
            ]
        );
    }

    #[test]
    fn scalars_are_read_as_texts_and_numbers() {
        #[derive(Deserialize)]
        struct Values {
            #[serde(deserialize_with = "text")]
            text: String,
            #[serde(deserialize_with = "integer")]
            integer: i32,
            #[serde(deserialize_with = "double")]
            double: f64,
        }
        let read = |json: &str| serde_json::from_str::<Values>(json);
        let values = read(r#"{"text":5,"integer":"7","double":"-1.5"}"#).unwrap();
        assert_eq!(
            (values.text.as_str(), values.integer, values.double),
            ("5", 7, -1.5)
        );
        let values = read(r#"{"text":null,"integer":7.9,"double":"NaN"}"#).unwrap();
        assert_eq!((values.text.as_str(), values.integer), ("", 7));
        assert!(values.double.is_nan());
        assert!(read(r#"{"text":"","integer":"x","double":0}"#).is_err());
        assert!(read(r#"{"text":"","integer":3000000000,"double":0}"#).is_err());
        assert!(read(r#"{"text":{},"integer":0,"double":0}"#).is_err());
        let fields = custom(r#"{"a":1,"b":true,"c":null}"#);
        assert_eq!(
            stored_json::to_bytes(&fields),
            br#"{"a":"1","b":"true","c":null}"#
        );
    }
}
