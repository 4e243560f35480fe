//! The JSON body of `/api/put`: one point, or an array of points.
//!
//! Read without an allocation for each point: texts borrow from the body, and the tags of all
//! points lie in one table, in the order of the document (names get their UIDs in that order).
//! Bodies of the usual form are only scanned, see [`scan`]; this module has the rules for all others.
//! The source text of a number is kept, because it decides how the number is stored: `42` is an
//! integer, `42.0` is not.
//!
//! Scalars stand in for each other as they do for OpenTSDB's parser: a number may be a metric, a
//! text may be a timestamp, `null` is as good as a missing field. Unknown fields are ignored, and
//! the last of two equal fields wins. An object or array in the place of a scalar makes the whole
//! body unreadable, and so does anything behind the array.
//!
//! Source: OpenTSDB 2.4, `HttpJsonSerializer.parsePutV1`, `IncomingDataPoint`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use thiserror::Error as ThisError;

use super::point::{DEDUPLICATED_TAGS, PutPoint, PutTags};
use super::scan;

/// All points of a body.
#[derive(Debug, Default)]
pub(crate) struct PutBody<'a> {
    /// In the order of the document; `None` where the array held `null`.
    pub(crate) points: Vec<Option<PutPoint<'a>>>,
    /// Tag keys and values of points that have them [`Parsed`](PutTags::Parsed); `None` is a `null` value.
    tags: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>,
}

/// Keys and values; `None` is a `null` value.
pub(crate) type TagList<'b> = SmallVec<[(&'b str, Option<&'b str>); 8]>;

/// Error of a body without points.
#[derive(Debug, ThisError)]
pub(crate) enum PutBodyError {
    /// Nothing but white space.
    #[error("body is empty")]
    Empty,
    /// The body starts with neither `{` nor `[`.
    #[error("body starts with neither an object nor an array")]
    NoObject,
    /// Not JSON, or a field of the wrong shape.
    #[error("{0}")]
    Unreadable(String),
    /// More elements than points fit into a body.
    #[error("body has more than {max} points")]
    TooMany {
        /// The most that are read.
        max: usize,
    },
}

impl<'a> PutBody<'a> {
    /// Reads a body of at most `max_points` elements.
    ///
    /// # Errors
    ///
    /// [`PutBodyError`]; then no point of the body may be stored.
    pub(crate) fn parse(body: &'a [u8], max_points: usize) -> Result<PutBody<'a>, PutBodyError> {
        let text = std::str::from_utf8(body).map_err(|error| {
            PutBodyError::Unreadable(format!("byte {} is not UTF-8", error.valid_up_to()))
        })?;
        match scan::scan(text, max_points) {
            Some(points) => Ok(PutBody::from_points(points)),
            None => PutBody::parse_any(text, max_points),
        }
    }

    pub(super) fn from_points(points: Vec<Option<PutPoint<'a>>>) -> PutBody<'a> {
        let tags = Vec::new();
        PutBody { points, tags }
    }

    /// Reads a body of any form.
    pub(super) fn parse_any(text: &'a str, max_points: usize) -> Result<PutBody<'a>, PutBodyError> {
        let first = text
            .bytes()
            .find(|byte| *byte > b' ')
            .ok_or(PutBodyError::Empty)?;
        let mut collector = Collector {
            body: PutBody::default(),
            max_points,
            too_many: false,
        };
        let mut json = serde_json::Deserializer::from_str(text);
        let read = match first {
            b'[' => Elements(&mut collector).deserialize(&mut json),
            b'{' => Element(&mut collector).deserialize(&mut json),
            _ => return Err(PutBodyError::NoObject),
        };
        match read.and_then(|()| json.end()) {
            Ok(()) => Ok(collector.body),
            Err(_) if collector.too_many => Err(PutBodyError::TooMany { max: max_points }),
            Err(error) => Err(PutBodyError::Unreadable(error.to_string())),
        }
    }

    /// The tags of a point of this body.
    pub(crate) fn tags_of<'b>(&'b self, point: &PutPoint<'b>) -> TagList<'b> {
        match &point.tags {
            PutTags::Missing => TagList::new(),
            PutTags::Parsed(range) => {
                let tags = self.tags.get(range.clone()).unwrap_or_default().iter();
                tags.map(|(key, value)| (key.as_ref(), value.as_deref()))
                    .collect()
            }
            PutTags::Text(text) => {
                let tags = scan::tags(text).into_iter();
                tags.map(|(key, value)| (key, Some(value))).collect()
            }
        }
    }
}

struct Collector<'de> {
    body: PutBody<'de>,
    max_points: usize,
    too_many: bool,
}

/// The array.
struct Elements<'c, 'de>(&'c mut Collector<'de>);

impl<'de> DeserializeSeed<'de> for Elements<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(Element(self.0))?.is_some() {}
        Ok(())
    }
}

/// A point or `null`.
struct Element<'c, 'de>(&'c mut Collector<'de>);

impl<'de> DeserializeSeed<'de> for Element<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.0.body.points.len() >= self.0.max_points {
            self.0.too_many = true;
            return Err(D::Error::custom("too many points"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a point")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.body.points.push(None);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let body = &mut self.0.body;
        let mut point = PutPoint::default();
        while let Some(field) = fields.next_key_seed(FieldName)? {
            match field {
                Field::Metric => point.metric = fields.next_value_seed(Text)?,
                Field::Timestamp => point.timestamp = fields.next_value_seed(Integer)?,
                Field::Value => {
                    let source: &'de RawValue = fields.next_value()?;
                    point.value = value_text(source.get()).map_err(A::Error::custom)?;
                }
                Field::Tags => {
                    // Of two equal fields the last wins.
                    if let PutTags::Parsed(earlier) = &point.tags {
                        body.tags.truncate(earlier.start);
                    }
                    let start = body.tags.len();
                    point.tags = match fields.next_value_seed(Tags(&mut body.tags))? {
                        true => PutTags::Parsed(start..body.tags.len()),
                        false => PutTags::Missing,
                    };
                }
                Field::Unknown => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        body.points.push(Some(point));
        Ok(())
    }
}

enum Field {
    Metric,
    Timestamp,
    Value,
    Tags,
    Unknown,
}

struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Field, E> {
        Ok(match name {
            "metric" => Field::Metric,
            "timestamp" => Field::Timestamp,
            "value" => Field::Value,
            "tags" => Field::Tags,
            _ => Field::Unknown,
        })
    }
}

/// The tag object, or `null`; returns whether it was an object.
struct Tags<'c, 'de>(&'c mut Vec<(Cow<'de, str>, Option<Cow<'de, str>>)>);

impl<'de> DeserializeSeed<'de> for Tags<'_, 'de> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tags<'_, 'de> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tags")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<bool, A::Error> {
        let start = self.0.len();
        while let Some(key) = pairs.next_key_seed(Text)? {
            let key = key.unwrap_or_default();
            let value = pairs.next_value_seed(Text)?;
            let mine = self.0.get_mut(start..).unwrap_or_default();
            let earlier = mine
                .iter_mut()
                .take(DEDUPLICATED_TAGS)
                .find(|(name, _)| *name == key);
            match earlier {
                Some(earlier) => earlier.1 = value,
                None => self.0.push((key, value)),
            }
        }
        Ok(true)
    }
}

/// A scalar as text; `None` is `null`.
pub(crate) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(oxtsdb_schema::java::double_to_string(number))))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(if truth { "true" } else { "false" })))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// An integer: a number, truncated to an integer, or a text with an integer. `null` and the
/// empty text are 0.
struct Integer;

impl<'de> DeserializeSeed<'de> for Integer {
    type Value = i64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<i64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Integer {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a timestamp of 64 bits")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "cutting off the fraction is the rule"
    )]
    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        // 2^63, the first number that does not fit.
        if number.abs() < 9_223_372_036_854_775_808.0 {
            return Ok(number as i64);
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        let digits = text.trim();
        if digits.is_empty() {
            return Ok(0);
        }
        digits
            .parse()
            .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_unit<E: Error>(self) -> Result<i64, E> {
        Ok(0)
    }
}

/// The text of a value from its JSON source.
fn value_text(source: &str) -> Result<Option<Cow<'_, str>>, String> {
    match source.as_bytes().first() {
        Some(b'"') => {
            let inner = source.get(1..source.len() - 1).unwrap_or_default();
            if !inner.contains('\\') {
                return Ok(Some(Cow::Borrowed(inner)));
            }
            let text: String = serde_json::from_str(source).map_err(|error| error.to_string())?;
            Ok(Some(Cow::Owned(text)))
        }
        Some(b'{' | b'[') => Err("invalid type: the field `value` is no number".to_owned()),
        Some(b'n') => Ok(None),
        _ => Ok(Some(Cow::Borrowed(source))),
    }
}

#[cfg(test)]
mod tests;
