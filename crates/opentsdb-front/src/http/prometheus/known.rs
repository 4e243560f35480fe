//! Series of remote write 1.0 that are known by the bytes of their labels.
//!
//! A sender repeats the labels of a series in each request, byte for byte. So the series of the next messages are looked up together
//! before they are decoded, and the labels of a known series are not decoded.

use std::collections::VecDeque;

use oxtsdb_ingest::Writer;
use oxtsdb_metadata::uids::series::{Series, SeriesText, Syntax};

use super::decode::SAMPLE;
use crate::http::mapped::NameMap;
use crate::http::protobuf::{FieldValue, next, next_short};

/// Series that are looked up together, one for each message.
const LOOK_AHEAD: usize = 4096;

/// The labels of a series as they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentLabels<'a> {
    /// The value of `__name__`, which is stored as it is.
    name: &'a str,
    /// The fields of all labels, with which the message begins.
    labels: &'a str,
}

/// The look-up of a message.
#[derive(Debug, Default)]
pub(super) struct LookedUp {
    /// The bytes of its labels, if they identify the series; else 0.
    pub(super) labels_length: usize,
    /// The series, if it is known by them.
    pub(super) series: Option<Series>,
}

/// The look-ups of the next messages of a body.
#[derive(Debug, Default)]
pub(super) struct Upcoming(VecDeque<LookedUp>);

impl Upcoming {
    /// Takes the look-up of the next message; `rest` is the body from it on.
    pub(super) fn next(&mut self, rest: &[u8], map: &NameMap, writer: &Writer) -> LookedUp {
        if self.0.is_empty() {
            self.look_up(rest, map, writer);
        }
        self.0.pop_front().unwrap_or_default()
    }

    fn look_up(&mut self, mut rest: &[u8], map: &NameMap, writer: &Writer) {
        let mut labels = Vec::new();
        while labels.len() < LOOK_AHEAD
            && let Ok(Some((number, value))) = next(&mut rest)
        {
            match (number, value) {
                (1, FieldValue::Bytes(message)) => labels.push(SentLabels::new(message, map)),
                // A series of 2.0, which the decoder takes as well.
                (5, FieldValue::Bytes(_)) => labels.push(None),
                _ => {}
            }
        }
        let texts: Vec<SeriesText<'_>> = labels.iter().flatten().map(SentLabels::text).collect();
        let mut known = writer.known(&texts).into_iter();
        self.0.extend(labels.iter().map(|labels| match labels {
            None => LookedUp::default(),
            Some(labels) => LookedUp {
                labels_length: labels.labels.len(),
                series: known.next().flatten(),
            },
        }));
    }
}

impl<'a> SentLabels<'a> {
    /// The labels of a `TimeSeries`; `None` if they are not its first fields, if one is longer than 127 bytes, if the name is stored in
    /// another form, or if it has histograms, as the series of a histogram have other names.
    fn new(message: &'a [u8], map: &NameMap) -> Option<Self> {
        let (mut rest, mut name) = (message, None);
        while let Some(label) = next_short(&mut rest, LABEL) {
            if name.is_none()
                && let Some([length, value @ ..]) = label.strip_prefix(NAME)
                && usize::from(*length) == value.len()
            {
                name = Some(value);
            }
        }
        let labels = &message[..message.len() - rest.len()];
        while next_short(&mut rest, SAMPLE).is_some() {}
        while let Some((number, _)) = next(&mut rest).ok()? {
            if matches!(number, 1 | 4) {
                return None;
            }
        }
        let name = std::str::from_utf8(name?).ok()?;
        let labels = std::str::from_utf8(labels).ok()?;
        (!name.is_empty() && map.keeps(name)).then_some(Self { name, labels })
    }

    const fn text(&self) -> SeriesText<'a> {
        series_text(self.name, self.labels)
    }
}

/// A series with these labels, as they were sent.
pub(super) const fn series_text<'a>(metric: &'a str, labels: &'a str) -> SeriesText<'a> {
    SeriesText {
        syntax: Syntax::RemoteWrite,
        metric,
        tags: labels,
    }
}

/// The key of a label of a `TimeSeries`.
const LABEL: u8 = 1 << 3 | 2;

/// A label with the name of the metric, up to the length of its value.
const NAME: &[u8] = b"\x0a\x08__name__\x12";

#[cfg(test)]
mod tests {
    use oxtsdb_schema::NameRules;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        assert!(length < 0x80);
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn label(name: &str, value: &str) -> Vec<u8> {
        field(
            1,
            &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat(),
        )
    }

    fn sample() -> Vec<u8> {
        field(2, b"\x10\x01")
    }

    fn labels(message: &[u8]) -> Option<(String, usize)> {
        let map = NameMap::new(&NameRules::default(), "prometheus");
        let labels = SentLabels::new(message, &map)?;
        Some((labels.name.to_owned(), labels.labels.len()))
    }

    #[test]
    fn labels_that_come_first_identify_a_series() {
        let sent = [label("A", "b"), label("__name__", "up"), label("job", "a b")].concat();
        let message = [&sent[..], &sample(), &sample()].concat();
        assert_eq!(labels(&message), Some(("up".to_owned(), sent.len())));
    }

    #[test]
    fn other_series_are_decoded() {
        let name = label("__name__", "up");
        let mut long = b"\x0a\x81\x01".to_vec();
        long.extend(b"\x0a\x01k\x12\x7c");
        long.extend([b'v'; 124]);
        for message in [
            [label("job", "a"), sample()].concat(),
            [name.clone(), sample(), label("job", "a")].concat(),
            [name.clone(), long, sample()].concat(),
            [name.clone(), field(4, b""), sample()].concat(),
            [label("__name__", "a:b"), sample()].concat(),
            [label("__name__", ""), sample()].concat(),
            [name.clone(), label("job", "é")].concat()[..name.len() + 5].to_vec(),
        ] {
            assert_eq!(labels(&message), None, "{message:?}");
        }
    }
}
