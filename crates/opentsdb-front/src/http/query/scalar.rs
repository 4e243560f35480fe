//! Strings and whole numbers in request bodies, which OpenTSDB's parser accepts from any scalar.

use oxtsdb_schema::document::truncated;
use oxtsdb_schema::value::parse_java_float;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

/// A string; a number or a boolean becomes its source text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::http) struct Text(pub(in crate::http) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        let source = <&RawValue>::deserialize(deserializer)?.get();
        match source.as_bytes().first() {
            Some(b'"') => serde_json::from_str(source).map(Text).map_err(D::Error::custom),
            Some(b'{' | b'[' | b'n') => Err(D::Error::custom(format!("expected a text, found {source}"))),
            _ => Ok(Text(source.to_owned())),
        }
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A whole number; also as a string. A fraction is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Whole(pub(in crate::http) i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        let source = <&RawValue>::deserialize(deserializer)?.get();
        let is_text = source.starts_with('"');
        let number = source.trim_matches('"').trim();
        let whole = number.parse().ok().or_else(|| {
            let number: f64 = number.parse().ok().filter(|_| !is_text)?;
            truncated(number)
        });
        whole
            .map(Whole)
            .ok_or_else(|| D::Error::custom(format!("expected a whole number, found {source}")))
    }
}

/// A percentile; also as a string.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::http) struct Percentile(pub(in crate::http) f32);

impl<'de> Deserialize<'de> for Percentile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percentile, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        parse_java_float(&text)
            .map(Percentile)
            .ok_or_else(|| D::Error::custom(format!("expected a percentile, found `{text}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_scalars() {
        let text = |source: &str| serde_json::from_str::<Text>(source).ok().map(|text| text.0);
        for (source, expected) in [
            (r#""a\n""#, Some("a\n")),
            ("5", Some("5")),
            ("1.50", Some("1.50")),
            ("true", Some("true")),
            ("null", None),
            ("[]", None),
            ("{}", None),
        ] {
            assert_eq!(text(source).as_deref(), expected, "{source}");
        }
        let whole = |source: &str| serde_json::from_str::<Whole>(source).ok().map(|whole| whole.0);
        for (source, expected) in [
            ("5", Some(5)),
            ("-5", Some(-5)),
            (r#""5""#, Some(5)),
            ("1.9", Some(1)),
            (r#""1.9""#, None),
            (r#""x""#, None),
            ("1e30", None),
            ("{}", None),
        ] {
            assert_eq!(whole(source), expected, "{source}");
        }
    }
}
