//! The messages of a `ReadResponse`.
//!
//! ```text
//!   ReadResponse  1 results: QueryResult*
//!   QueryResult   1 timeseries: TimeSeries*
//!   TimeSeries    1 labels: Label* (1 name, 2 value), ascending by name, 2 samples: Sample*
//!   Sample        1 value: double, 2 timestamp: int64, milliseconds
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use oxtsdb_query::{Budget, Group, GroupEncoder, Held, QueryError};
use oxtsdb_resources::yield_to_others;
use oxtsdb_schema::Annotation;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::matcher::LabelTest;
use crate::http::body::BodyWriter;
use crate::http::prometheus::NAME;

/// Points that are written at a time; then a part of the body may end.
const RUN_POINTS: usize = 4096;

/// The keys of fields: number, and type.
pub(super) const FIRST_MESSAGE: u8 = 1 << 3 | 2;
const SECOND_MESSAGE: u8 = 2 << 3 | 2;
const VALUE: u8 = 1 << 3 | 1;
const TIMESTAMP: u8 = 2 << 3;

/// Bytes of a sample without its timestamp: the value and both keys.
const SAMPLE_BYTES: usize = 1 + size_of::<f64>() + 1;

/// Encodes the series that pass all tests.
#[derive(Debug)]
pub(super) struct SeriesEncoder {
    pub(super) tests: Vec<LabelTest>,
}

impl SeriesEncoder {
    fn passes(&self, group: &Group) -> bool {
        self.tests.iter().all(|test| {
            let name = test.name();
            let tag = || group.tags.iter().find(|(key, _)| **key == *name);
            let value = if name == NAME {
                &*group.metric
            } else {
                tag().map_or("", |(_, value)| &**value)
            };
            test.passes(value)
        })
    }
}

impl GroupEncoder for SeriesEncoder {
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = (Group, Option<Held>)>,
        _global: Option<&[Arc<Annotation>]>,
        budget: &Budget,
    ) -> Result<(Vec<Bytes>, Held), QueryError> {
        let mut body = BodyWriter::with_budget(budget)?;
        for (group, _held) in groups {
            if !group.points.is_empty() && self.passes(&group) {
                write(&group, &mut body)?;
            }
        }
        let (parts, held) = body.finish()?.into_parts();
        Ok((parts, held.map_or_else(|| budget.hold(0), Ok)?))
    }
}

/// Writes a series.
fn write(group: &Group, body: &mut BodyWriter) -> Result<(), QueryError> {
    let labels = labels(group);
    let of_labels = labels.iter().map(|label| bytes_of(label_bytes(label)));
    let of_samples = group
        .points
        .times_ms()
        .iter()
        .map(|ms| bytes_of(sample_bytes(*ms)));
    let length: usize = of_labels.chain(of_samples).sum();
    let out = body.out();
    begin(out, FIRST_MESSAGE, length);
    for label in &labels {
        begin(out, FIRST_MESSAGE, label_bytes(label));
        let (name, value) = label;
        text(out, FIRST_MESSAGE, name);
        text(out, SECOND_MESSAGE, value);
    }
    let mut points = group.points.iter();
    while points.len() > 0 {
        yield_to_others();
        let out = body.out();
        for (time_ms, value) in points.by_ref().take(RUN_POINTS) {
            begin(out, SECOND_MESSAGE, sample_bytes(time_ms));
            out.push(VALUE);
            out.put_f64_le(value.as_f64());
            out.push(TIMESTAMP);
            encode_varint(time_ms.cast_unsigned(), out);
        }
        body.roll()?;
    }
    Ok(())
}

/// A name and its value.
type Label<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The labels of a series, ascending by name. Of two tag keys that become one name the first one counts.
fn labels(group: &Group) -> Vec<Label<'_>> {
    let mut labels: Vec<Label<'_>> = Vec::with_capacity(group.tags.len() + 1);
    labels.push((NAME.into(), legal(&group.metric, |c| c == ':')));
    let tags = group.tags.iter();
    labels.extend(tags.map(|(key, value)| (legal(key, |_| false), Cow::Borrowed(&**value))));
    labels.sort_by(|(one, _), (other, _)| one.cmp(other));
    labels.dedup_by(|(one, _), (other, _)| one == other);
    labels
}

/// A name as Prometheus 2 accepts it: letters, digits, `_` and others, and no digit in front.
fn legal(name: &str, others: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || others(c);
    let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    if !begins_with_digit && name.chars().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let first = begins_with_digit.then_some('_');
    let mapped = name.chars().map(|c| if is_legal(c) { c } else { '_' });
    Cow::Owned(first.into_iter().chain(mapped).collect())
}

/// Bytes of a label's message.
fn label_bytes((name, value): &Label<'_>) -> usize {
    bytes_of(name.len()) + bytes_of(value.len())
}

/// Bytes of a sample's message.
fn sample_bytes(time_ms: i64) -> usize {
    SAMPLE_BYTES + encoded_len_varint(time_ms.cast_unsigned())
}

/// Bytes of a field with a text or a message of this length.
fn bytes_of(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// Begins a field with a text or a message.
pub(super) fn begin(out: &mut Vec<u8>, key: u8, length: usize) {
    out.push(key);
    encode_varint(length as u64, out);
}

fn text(out: &mut Vec<u8>, key: u8, text: &str) {
    begin(out, key, text.len());
    out.extend_from_slice(text.as_bytes());
}
