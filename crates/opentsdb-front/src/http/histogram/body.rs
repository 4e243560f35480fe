//! The JSON body of `/api/histogram`: one histogram, or an array of them.
//!
//! ```text
//!   {"metric","timestamp","tags":{},"buckets":{"LOWER,UPPER":COUNT},"underflow":COUNT,"overflow":COUNT}
//!   {"metric","timestamp","tags":{},"id":ID,"value":"BASE64"}
//! ```
//!
//! Scalars stand in for each other as they do for OpenTSDB's parser, unknown fields are ignored.
//!
//! Source: OpenTSDB 2.4, `HistogramPojo`, `HttpJsonSerializer.parsePutV1`.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use oxtsdb_ingest::RejectionKind;
use oxtsdb_schema::histogram::{self, Bucket, BucketTextError};
use oxtsdb_schema::{Histogram, HistogramCodecs, HistogramError};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::front::histogram_text::{self, decode_base64};
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::put::outcome::{UNEXPECTED, Violation};
use crate::http::query::scalar::{Text, Whole};

/// A histogram as it was sent; nothing is checked yet.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SentHistogram {
    pub(super) metric: Option<Text>,
    #[serde(default, deserialize_with = "zero_if_null")]
    pub(super) timestamp: i64,
    value: Option<Text>,
    pub(super) tags: Option<Entries<Text>>,
    #[serde(default, deserialize_with = "zero_if_null")]
    id: i64,
    buckets: Option<Entries<Whole>>,
    #[serde(default, deserialize_with = "zero_if_null")]
    underflow: i64,
    #[serde(default, deserialize_with = "zero_if_null")]
    overflow: i64,
}

/// An object, in its order; of two equal keys the last value counts. `None` is `null`.
#[derive(Debug)]
pub(super) struct Entries<T>(pub(super) Vec<(String, Option<T>)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries: Vec<(String, Option<T>)> = Vec::new();
                let mut places: HashMap<String, usize> = HashMap::new();
                while let Some((key, value)) = map.next_entry::<String, Option<T>>()? {
                    match places.get(&key).and_then(|place| entries.get_mut(*place)) {
                        Some(entry) => entry.1 = value,
                        None => {
                            places.insert(key.clone(), entries.len());
                            entries.push((key, value));
                        }
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

fn zero_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(Option::<Whole>::deserialize(deserializer)?.map_or(0, |whole| whole.0))
}

/// Parses a body; `None` where the array has `null`.
pub(super) fn parse(content: &[u8]) -> Result<Vec<Option<SentHistogram>>, HttpError> {
    let unreadable = |error: serde_json::Error| HttpError::unreadable_json(error.to_string());
    match content.iter().find(|byte| **byte > b' ') {
        None => Err(HttpError::bad_request("Missing request content")),
        Some(b'[') => serde_json::from_slice(content).map_err(unreadable),
        Some(b'{') => serde_json::from_slice(content)
            .map(|one| vec![Some(one)])
            .map_err(unreadable),
        Some(_) => Err(HttpError::bad_request(
            "The JSON must start as an object or an array",
        )),
    }
}

/// A rule for histograms.
fn violation(text: impl ToString) -> Violation {
    Violation::IllegalArgument(RejectionKind::Histogram, text.to_string())
}

impl SentHistogram {
    /// Checks the fields in OpenTSDB's order, and returns the histogram.
    pub(super) fn check(&self, codecs: &HistogramCodecs) -> Result<Histogram, Violation> {
        if self.metric.as_ref().is_none_or(|metric| metric.0.is_empty()) {
            return Err(Violation::rule(RejectionKind::Name, "Metric name was empty"));
        }
        if self.timestamp <= 0 {
            return Err(Violation::rule(RejectionKind::Timestamp, "Invalid timestamp"));
        }
        if self.tags.as_ref().is_none_or(|tags| tags.0.is_empty()) {
            return Err(Violation::rule(RejectionKind::Tags, "Missing tags"));
        }
        match self.value.as_ref().filter(|value| !value.0.is_empty()) {
            Some(value) => {
                let id =
                    u8::try_from(self.id).map_err(|_| violation("Invalid type. Must be from 0 to 255."))?;
                decode(codecs, id, &decode_base64(&value.0))
            }
            None => self.parse_buckets(),
        }
    }

    fn parse_buckets(&self) -> Result<Histogram, Violation> {
        let Some(Entries(entries)) = self.buckets.as_ref().filter(|buckets| !buckets.0.is_empty()) else {
            return Err(violation(
                "Histogram buckets cannot be null or empty if 'value' is empty.",
            ));
        };
        let mut buckets = Vec::with_capacity(entries.len());
        for (text, count) in entries {
            let bounds = histogram::parse_bounds(text).map_err(|error| match error {
                BucketTextError::NotANumber { .. } => Violation::no_number(),
                error => violation(error),
            })?;
            let bounds = bounds.ok_or_else(|| violation(format!("Unable to parse bucket bounds: {text}")))?;
            let count = count.map_or(0, |count| count.0);
            buckets.push(Bucket { bounds, count });
        }
        Histogram::new(buckets, self.underflow, self.overflow).map_err(violation)
    }

    /// The JSON of an error, without the fields that are not there.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        if let Some(metric) = &self.metric {
            out.extend_from_slice(b"\"metric\":");
            json::write_string(out, &metric.0);
            out.push(b',');
        }
        out.extend_from_slice(b"\"timestamp\":");
        json::write_integer(out, self.timestamp);
        if let Some(value) = &self.value {
            out.extend_from_slice(b",\"value\":");
            json::write_string(out, &value.0);
        }
        if let Some(tags) = &self.tags {
            out.extend_from_slice(b",\"tags\":");
            write_entries(out, tags, |out, value| json::write_string(out, &value.0));
        }
        out.extend_from_slice(b",\"id\":");
        json::write_integer(out, self.id);
        if let Some(buckets) = &self.buckets {
            out.extend_from_slice(b",\"buckets\":");
            write_entries(out, buckets, |out, count| json::write_integer(out, count.0));
        }
        out.extend_from_slice(b",\"underflow\":");
        json::write_integer(out, self.underflow);
        out.extend_from_slice(b",\"overflow\":");
        json::write_integer(out, self.overflow);
        out.push(b'}');
    }
}

/// Decodes a histogram with OpenTSDB's messages.
fn decode(codecs: &HistogramCodecs, id: u8, bytes: &[u8]) -> Result<Histogram, Violation> {
    histogram_text::decode(codecs, id, bytes).map_err(|error| match error {
        histogram_text::SentError::TooShort(text) => violation(text),
        histogram_text::SentError::Histogram(error @ HistogramError::UnknownCodec { .. }) => violation(error),
        histogram_text::SentError::Histogram(_) => violation(UNEXPECTED),
    })
}

fn write_entries<T>(out: &mut Vec<u8>, entries: &Entries<T>, write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'{');
    for (place, (key, value)) in entries.0.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        json::write_string(out, key);
        out.push(b':');
        match value {
            Some(value) => write(out, value),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}
