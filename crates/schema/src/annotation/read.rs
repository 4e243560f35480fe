//! Reads annotations with the conversions of OpenTSDB's JSON parser.
//!
//! A text can be any scalar, a number keeps its source; a time can be a string or a fraction, which is cut off.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Annotation, AnnotationError, Custom};
use crate::document::truncated;

/// Reads a document.
pub(super) fn annotation(json: &[u8]) -> Result<Annotation, AnnotationError> {
    let read: Result<Read, _> = serde_json::from_slice(json);
    read.map(|read| read.0).map_err(|error| AnnotationError {
        reason: error.to_string(),
    })
}

struct Read(Annotation);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an annotation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read, A::Error> {
        let mut annotation = Annotation {
            description: Some(String::new()),
            notes: Some(String::new()),
            ..Annotation::default()
        };
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "tsuid" => annotation.tsuid = map.next_value::<Text>()?.0.unwrap_or_default(),
                "startTime" => annotation.start_time = map.next_value::<Time>()?.0,
                "endTime" => annotation.end_time = map.next_value::<Time>()?.0,
                "description" => annotation.description = map.next_value::<Text>()?.0,
                "notes" => annotation.notes = map.next_value::<Text>()?.0,
                "custom" => annotation.custom = map.next_value::<Option<CustomFields>>()?.map(|read| read.0),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Read(annotation))
    }
}

/// A text, or null.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        let source = <&RawValue>::deserialize(deserializer)?.get();
        match source.as_bytes().first() {
            Some(b'"') => serde_json::from_str(source).map(Text).map_err(D::Error::custom),
            Some(b'n') => Ok(Text(None)),
            Some(b'{' | b'[') => Err(D::Error::custom("expected a text, found an object or an array")),
            _ => Ok(Text(Some(source.to_owned()))),
        }
    }
}

/// A number of seconds or milliseconds; null and an empty text are 0.
struct Time(i64);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let source = <&RawValue>::deserialize(deserializer)?.get();
        let wrong = || D::Error::custom(format_args!("expected a time, found {source:.40}"));
        let whole = match source.as_bytes().first() {
            Some(b'"') => {
                let text: String = serde_json::from_str(source).map_err(D::Error::custom)?;
                match text.trim() {
                    "" | "null" => Some(0),
                    text => text.parse().ok(),
                }
            }
            Some(b'n') => Some(0),
            Some(b'-' | b'0'..=b'9') => source
                .parse()
                .ok()
                .or_else(|| source.parse().ok().and_then(truncated)),
            _ => None,
        };
        whole.map(Time).ok_or_else(wrong)
    }
}

struct CustomFields(Custom);

impl<'de> Deserialize<'de> for CustomFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CustomFields, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = CustomFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CustomFields, A::Error> {
                let mut custom = Custom::new();
                while let Some((key, value)) = map.next_entry::<String, Text>()? {
                    custom.insert(key, value.0);
                }
                Ok(CustomFields(custom))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
