//! The labels of a series as Prometheus has them.

use std::borrow::Cow;

use oxtsdb_query::Group;
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::http::prometheus::NAME;

/// The keys of fields: number, and type.
pub(super) const FIRST_MESSAGE: u8 = 1 << 3 | 2;
pub(super) const SECOND_MESSAGE: u8 = 2 << 3 | 2;

/// Labels, ascending by name.
pub(super) struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Labels<'a> {
    /// The labels of a series. Of two tag keys that become one name the first one counts.
    pub(super) fn new(group: &'a Group) -> Self {
        let mut labels = Vec::with_capacity(group.tags.len() + 1);
        labels.push((NAME.into(), legal(&group.metric, |c| c == ':')));
        let tags = group.tags.iter();
        labels.extend(tags.map(|(key, value)| (legal(key, |_| false), sent_value(key, value).into())));
        labels.sort_by(|(one, _), (other, _)| one.cmp(other));
        labels.dedup_by(|(one, _), (other, _)| one == other);
        Self(labels)
    }

    /// Bytes of their fields.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|label| bytes_of(message_bytes(label))).sum()
    }

    /// Writes them as field 1 of a series: each has 1 name, 2 value.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for label in &self.0 {
            begin(out, FIRST_MESSAGE, message_bytes(label));
            let (name, value) = label;
            text(out, FIRST_MESSAGE, name);
            text(out, SECOND_MESSAGE, value);
        }
    }

    /// Bytes that are in the order of Prometheus' labels: by the first name that differs, or by its value.
    pub(super) fn sort_key(&self) -> Vec<u8> {
        let texts = self.0.iter().flat_map(|(name, value)| [name, value]);
        let mut key = Vec::with_capacity(texts.clone().map(|text| text.len() + 1).sum());
        for text in texts {
            key.extend_from_slice(text.as_bytes());
            key.push(0);
        }
        key
    }
}

/// The value of a label as it was sent, where PromQL needs that: quantiles of histograms are computed from the bucket `+Inf`, and tags
/// cannot have a `+`.
fn sent_value<'v>(key: &str, value: &'v str) -> &'v str {
    match (key, value) {
        ("le", "_Inf") => "+Inf",
        _ => value,
    }
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
fn message_bytes((name, value): &(Cow<'_, str>, Cow<'_, str>)) -> usize {
    bytes_of(name.len()) + bytes_of(value.len())
}

/// Bytes of a field with a text or a message of this length.
pub(super) fn bytes_of(length: usize) -> usize {
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
