//! Series of a `WriteRequest`, one after the other.
//!
//! ```text
//!   1.0  WriteRequest  1 timeseries: TimeSeries*, 3 metadata
//!        TimeSeries    1 labels: Label* (1 name, 2 value), 2 samples: Sample*, 3 exemplars, 4 histograms: Histogram*
//!   2.0  Request       4 symbols: string*, 5 timeseries: TimeSeries*
//!        TimeSeries    1 labels_refs: packed uint32, name and value in turn, 2 samples: Sample*,
//!                      3 histograms: Histogram*, 4 exemplars
//!   both Sample        1 value: double, 2 timestamp: int64, milliseconds
//!        Histogram     see `histogram`
//! ```
//!
//! The numbers of the fields tell the version of a body: 2.0 reserves the numbers of 1.0.

use std::ops::Range;

use prost::bytes::Buf as _;

use crate::http::mapped::{CHUNK_POINTS, MOST_TAGS};
use crate::http::protobuf::{FieldValue, Malformed, next, next_short, text, varint};

/// Labels with the name of the metric.
const MOST_LABELS: usize = MOST_TAGS + 1;

/// A position in the series of a body.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The message of the last series, as a part of the body; bytes up to its end were read.
    message: Range<usize>,
    /// Series that were read.
    count: usize,
    /// The symbols of 2.0, as parts of the body.
    symbols: Vec<Range<u32>>,
}

/// A series.
#[derive(Debug, Default)]
pub(super) struct Series<'a> {
    pub(super) labels: Vec<(&'a str, &'a str)>,
    /// Value and milliseconds since the epoch.
    pub(super) samples: Vec<(f64, i64)>,
    /// Messages of native histograms.
    pub(super) histograms: Vec<&'a [u8]>,
    /// Exemplars.
    pub(super) left_out: usize,
}

/// A decoded series, or the limit that it exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A series, with its number from 1.
    Series { number: usize },
    /// A series with more labels than are read.
    TooManyLabels { number: usize },
    /// A series with more samples than a write takes.
    TooManySamples { number: usize },
}

/// The key of a sample of a `TimeSeries`.
pub(super) const SAMPLE: u8 = 2 << 3 | 2;

/// The first byte of a body that begins with a symbol.
const SYMBOL: u8 = 4 << 3 | 2;

impl Decoder {
    /// The most memory that a decoder of a body takes: the place of a symbol has 8 bytes, an empty symbol 2.
    pub(super) fn most_bytes(body: &[u8]) -> usize {
        if body.first() == Some(&SYMBOL) {
            4 * body.len()
        } else {
            0
        }
    }

    /// A decoder of a body; reads the symbols.
    ///
    /// # Errors
    ///
    /// If the body is no message.
    pub(super) fn new(body: &[u8]) -> Result<Self, Malformed> {
        let mut symbols = Vec::new();
        let mut rest = body;
        while let Some((number, value)) = next(&mut rest)? {
            if let (4, FieldValue::Bytes(symbol)) = (number, value) {
                if body.first() != Some(&SYMBOL) {
                    return Err(Malformed("symbols follow series"));
                }
                text(symbol)?;
                let end = body.len() - rest.len();
                let place = |at: usize| u32::try_from(at).map_err(|_| Malformed("more than 4 GiB"));
                symbols.push(place(end - symbol.len())?..place(end)?);
            }
        }
        Ok(Self {
            message: 0..0,
            count: 0,
            symbols,
        })
    }

    /// The part of a body that was not read.
    pub(super) fn rest<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(self.message.end..).unwrap_or_default()
    }

    /// The message of the last series, as a part of the body.
    pub(super) fn message(&self) -> Range<usize> {
        self.message.clone()
    }

    /// Whether series are of version 2.0, and refer to symbols.
    pub(super) fn has_symbols(&self) -> bool {
        !self.symbols.is_empty()
    }

    /// Replaces `series` by the next one of the body; `None` at the end. Skips the first `skipped` bytes of a series of 1.0:
    /// the labels of a series that is known by them.
    ///
    /// # Errors
    ///
    /// If a part of the body is no message, or refers to a symbol that it does not have.
    pub(super) fn next<'a>(
        &mut self,
        body: &'a [u8],
        series: &mut Series<'a>,
        skipped: usize,
    ) -> Result<Option<Decoded>, Malformed> {
        let mut rest = self.rest(body);
        while let Some((number, value)) = next(&mut rest)? {
            let end = body.len() - rest.len();
            self.message = end..end;
            let FieldValue::Bytes(message) = value else {
                continue;
            };
            self.message.start -= message.len();
            series.labels.clear();
            series.samples.clear();
            series.histograms.clear();
            series.left_out = 0;
            match number {
                1 => series.read(message.get(skipped..).unwrap_or_default())?,
                5 => series.read_2(message, body, &self.symbols)?,
                _ => continue,
            }
            self.count += 1;
            let number = self.count;
            return Ok(Some(if series.labels.len() > MOST_LABELS {
                Decoded::TooManyLabels { number }
            } else if series.has_too_many_samples() {
                Decoded::TooManySamples { number }
            } else {
                Decoded::Series { number }
            }));
        }
        Ok(None)
    }
}

impl<'a> Series<'a> {
    /// Whether it has more than is read.
    fn is_too_large(&self) -> bool {
        self.labels.len() > MOST_LABELS || self.has_too_many_samples()
    }

    const fn has_too_many_samples(&self) -> bool {
        self.samples.len() + self.histograms.len() > CHUNK_POINTS
    }

    /// Reads a series of 1.0, up to one label or sample too many.
    fn read(&mut self, mut message: &'a [u8]) -> Result<(), Malformed> {
        while !self.is_too_large() {
            if let Some(sample) = next_short(&mut message, SAMPLE) {
                self.samples.push(read_sample(sample)?);
                continue;
            }
            let Some((number, value)) = next(&mut message)? else {
                break;
            };
            match (number, value) {
                (1, FieldValue::Bytes(label)) => self.labels.push(read_label(label)?),
                (2, FieldValue::Bytes(sample)) => self.samples.push(read_sample(sample)?),
                (3, FieldValue::Bytes(_)) => self.left_out += 1,
                (4, FieldValue::Bytes(histogram)) => self.histograms.push(histogram),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads a series of 2.0, up to one label or sample too many.
    fn read_2(
        &mut self,
        mut message: &'a [u8],
        body: &'a [u8],
        symbols: &[Range<u32>],
    ) -> Result<(), Malformed> {
        let mut name = None;
        let mut add = |labels: &mut Vec<_>, reference: u64| {
            let place = usize::try_from(reference)
                .ok()
                .and_then(|reference| symbols.get(reference));
            let bytes = place.and_then(|place| body.get(place.start as usize..place.end as usize));
            let symbol = text(bytes.ok_or(Malformed("a label refers to a symbol that is not there"))?)?;
            match name.take() {
                None => name = Some(symbol),
                Some(name) => labels.push((name, symbol)),
            }
            Ok(())
        };
        while !self.is_too_large()
            && let Some((number, value)) = next(&mut message)?
        {
            match (number, value) {
                (1, FieldValue::Varint(reference)) => add(&mut self.labels, reference)?,
                (1, FieldValue::Bytes(mut packed)) => {
                    while !packed.is_empty() && self.labels.len() <= MOST_LABELS {
                        add(&mut self.labels, varint(&mut packed)?)?;
                    }
                }
                (2, FieldValue::Bytes(sample)) => self.samples.push(read_sample(sample)?),
                (3, FieldValue::Bytes(histogram)) => self.histograms.push(histogram),
                (4, FieldValue::Bytes(_)) => self.left_out += 1,
                _ => {}
            }
        }
        if name.is_some() && !self.is_too_large() {
            return Err(Malformed("a label has no value"));
        }
        Ok(())
    }
}

/// The labels of fields of a `TimeSeries` of 1.0.
///
/// # Errors
///
/// If they are no fields.
pub(super) fn labels(fields: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    let mut series = Series::default();
    series.read(fields)?;
    Ok(series.labels)
}

fn read_label(mut label: &[u8]) -> Result<(&str, &str), Malformed> {
    let (mut name, mut of_name) = ("", "");
    while let Some((number, value)) = next(&mut label)? {
        match (number, value) {
            (1, FieldValue::Bytes(bytes)) => name = text(bytes)?,
            (2, FieldValue::Bytes(bytes)) => of_name = text(bytes)?,
            _ => {}
        }
    }
    Ok((name, of_name))
}

fn read_sample(mut sample: &[u8]) -> Result<(f64, i64), Malformed> {
    // The form that senders write: the value, then the timestamp.
    if let Some(([0x09, bits @ .., 0x10], mut rest)) = sample.split_first_chunk::<10>()
        && let timestamp_ms = varint(&mut rest)?.cast_signed()
        && rest.is_empty()
    {
        return Ok(((&bits[..]).get_f64_le(), timestamp_ms));
    }
    let (mut of_sample, mut timestamp_ms) = (0.0, 0);
    while let Some((number, value)) = next(&mut sample)? {
        match (number, value) {
            (1, FieldValue::Fixed64(bits)) => of_sample = f64::from_bits(bits),
            (2, FieldValue::Varint(number)) => timestamp_ms = number.cast_signed(),
            _ => {}
        }
    }
    Ok((of_sample, timestamp_ms))
}
