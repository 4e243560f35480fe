//! A `WriteRequest` as columns: texts are borrowed from its bytes, numbers are collected over all series.
//!
//! [`WriteView::decode`] reads the encoding that clients usually produce, in one pass that also counts elements:
//!
//! ```text
//!   request   { 0A len series | 12 len options }         options at most once
//!   series    { 0A len name | 12 len tsuid               one of them, at most once
//!             | 1A len varints | 18 varint               timestamps
//!             | 22 len doubles | 21 double               values
//!             | 2A len varints | 28 varint }             int_values
//!   name      0A len metric { 12 len tag }
//!   tag       0A len key 12 len value                    with lengths up to 127
//! ```
//!
//! It returns nothing for all other encodings, valid or not; these are decoded as messages, which has the errors.
//! An accepted encoding is a valid message within its bounds, with these contents. A name is returned as its metric
//! and the bytes behind it: equal bytes are equal tags, so a known series is looked up without parsing its tags.

use bytes::Buf as _;
use prost::Message as _;

use crate::common::v1::SeriesName;
use crate::data::v1::time_series::Series;
use crate::data::v1::{WriteOptions, WriteRequest};

/// The most series, tags and numbers of one column that are decoded, for requests with up to 100,000 points: less than
/// the bounds of the contract, which other messages are checked against.
const MAX_SERIES: usize = 1 << 17;
const MAX_TAGS: usize = 1 << 19;
const MAX_NUMBERS: usize = 1 << 17;

/// The usual minimum of the encoding of a series with a point, in bytes.
const SERIES_BYTES: usize = 64;

/// A request with its points in columns.
#[derive(Debug, Default, PartialEq)]
pub struct WriteView<'a> {
    /// The series, in the order of the message.
    series: Vec<SeriesView<'a>>,
    timestamps: Vec<i64>,
    values: Vec<f64>,
    int_values: Vec<i64>,
    /// As sent.
    pub options: Option<WriteOptions>,
}

/// A series with the ends of its columns; they start where the columns of the series before end.
#[derive(Debug, PartialEq)]
struct SeriesView<'a> {
    series: SeriesKey<'a>,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ends {
    timestamps: usize,
    values: usize,
    int_values: usize,
}

/// How a request names a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SeriesKey<'a> {
    /// Not at all.
    Missing,
    /// By names, encoded.
    Encoded {
        /// The metric.
        metric: &'a str,
        /// The encoded tags; see [`tags`].
        tags: &'a str,
    },
    /// By names, decoded.
    Name(&'a SeriesName),
    /// By TSUID.
    Tsuid(&'a [u8]),
}

/// The columns of a series, as they were sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesColumns<'a> {
    /// Timestamps.
    pub timestamps: &'a [i64],
    /// Floating-point values.
    pub values: &'a [f64],
    /// Integer values.
    pub int_values: &'a [i64],
}

impl<'a> WriteView<'a> {
    /// Decodes the usual encoding of a request; see the module.
    pub fn decode(message: &'a [u8]) -> Option<Self> {
        // A wrong guess only costs a copy.
        let guess = (message.len() / SERIES_BYTES).min(MAX_SERIES);
        let mut view = Self {
            series: Vec::with_capacity(guess),
            timestamps: Vec::with_capacity(guess),
            values: Vec::with_capacity(guess),
            int_values: Vec::with_capacity(guess),
            options: None,
        };
        let (mut rest, mut tags) = (message, 0);
        while let Some((key, behind)) = rest.split_first() {
            rest = behind;
            match key {
                0x0a => view.decode_series(bytes(&mut rest)?, &mut tags)?,
                0x12 if view.options.is_none() => {
                    view.options = Some(WriteOptions::decode(bytes(&mut rest)?).ok()?);
                }
                _ => return None,
            }
        }
        Some(view)
    }

    fn decode_series(&mut self, mut rest: &'a [u8], tags: &mut usize) -> Option<()> {
        let mut series = SeriesKey::Missing;
        while let Some((key, behind)) = rest.split_first() {
            rest = behind;
            match key {
                0x0a if series == SeriesKey::Missing => series = name(bytes(&mut rest)?, tags)?,
                0x12 if series == SeriesKey::Missing => series = SeriesKey::Tsuid(bytes(&mut rest)?),
                0x1a => {
                    let mut packed = bytes(&mut rest)?;
                    while !packed.is_empty() {
                        push(&mut self.timestamps, varint(&mut packed)?.cast_signed())?;
                    }
                }
                0x18 => push(&mut self.timestamps, varint(&mut rest)?.cast_signed())?,
                0x22 => {
                    let (doubles, []) = bytes(&mut rest)?.as_chunks::<8>() else {
                        return None;
                    };
                    for double in doubles {
                        push(&mut self.values, double.as_slice().get_f64_le())?;
                    }
                }
                0x21 => push(&mut self.values, rest.try_get_f64_le().ok()?)?,
                0x2a => {
                    let mut packed = bytes(&mut rest)?;
                    while !packed.is_empty() {
                        push(&mut self.int_values, zigzag(varint(&mut packed)?))?;
                    }
                }
                0x28 => push(&mut self.int_values, zigzag(varint(&mut rest)?))?,
                _ => return None,
            }
        }
        let ends = self.ends();
        self.series.push(SeriesView { series, ends });
        (self.series.len() <= MAX_SERIES && *tags <= MAX_TAGS).then_some(())
    }

    /// A view of a decoded request.
    pub fn from_request(request: &'a WriteRequest) -> Self {
        let mut view = Self {
            series: Vec::with_capacity(request.series.len()),
            options: request.options,
            ..Self::default()
        };
        for series in &request.series {
            view.timestamps.extend_from_slice(&series.timestamps);
            view.values.extend_from_slice(&series.values);
            view.int_values.extend_from_slice(&series.int_values);
            let series = match &series.series {
                None => SeriesKey::Missing,
                Some(Series::Name(name)) => SeriesKey::Name(name),
                Some(Series::Tsuid(tsuid)) => SeriesKey::Tsuid(tsuid),
            };
            let ends = view.ends();
            view.series.push(SeriesView { series, ends });
        }
        view
    }

    /// The ends of the columns so far.
    const fn ends(&self) -> Ends {
        Ends {
            timestamps: self.timestamps.len(),
            values: self.values.len(),
            int_values: self.int_values.len(),
        }
    }

    /// Bytes in memory, beside the bytes of the message.
    pub fn byte_len(&self) -> usize {
        let numbers = self.timestamps.capacity() + self.values.capacity() + self.int_values.capacity();
        self.series.capacity() * size_of::<SeriesView<'_>>() + numbers * size_of::<u64>()
    }

    /// How the series are named, in their order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = SeriesKey<'a>> + Clone {
        self.series.iter().map(|series| series.series)
    }

    /// The columns of each series.
    pub fn columns(&self) -> impl Iterator<Item = SeriesColumns<'_>> {
        let mut start = Ends::default();
        self.series.iter().map(move |series| {
            let (first, ends) = (std::mem::replace(&mut start, series.ends), series.ends);
            // The ends ascend up to the lengths.
            SeriesColumns {
                timestamps: &self.timestamps[first.timestamps..ends.timestamps],
                values: &self.values[first.values..ends.values],
                int_values: &self.int_values[first.int_values..ends.int_values],
            }
        })
    }
}

/// Keys and values of [`SeriesKey::Encoded`].
pub fn tags(mut encoded: &str) -> impl Iterator<Item = (&str, &str)> {
    std::iter::from_fn(move || tag(&mut encoded))
}

/// Checks a name, and counts its tags.
fn name<'a>(name: &'a [u8], count: &mut usize) -> Option<SeriesKey<'a>> {
    // Keys and lengths up to 127 are ASCII, so the texts are UTF-8 if all of it is and they end between characters.
    let mut rest = std::str::from_utf8(name).ok()?;
    let metric = text(&mut rest, "\u{a}")?;
    let tags = rest;
    while !rest.is_empty() {
        tag(&mut rest)?;
        *count += 1;
    }
    Some(SeriesKey::Encoded { metric, tags })
}

/// The next tag.
#[inline]
fn tag<'a>(rest: &mut &'a str) -> Option<(&'a str, &'a str)> {
    let mut tag = text(rest, "\u{12}")?;
    let pair = (text(&mut tag, "\u{a}")?, text(&mut tag, "\u{12}")?);
    tag.is_empty().then_some(pair)
}

/// The text of the next field, if its key is `key` and its length is below 128.
#[inline]
fn text<'a>(rest: &mut &'a str, key: &str) -> Option<&'a str> {
    let behind = rest.strip_prefix(key)?;
    let length = behind.as_bytes().first().filter(|length| **length < 0x80)?;
    let (text, behind) = behind.get(1..)?.split_at_checked(usize::from(*length))?;
    *rest = behind;
    Some(text)
}

/// The bytes of a field with a length.
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(rest)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

#[inline]
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (index, byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (index * 7);
        if *byte < 0x80 {
            *rest = &rest[index + 1..];
            // Of the tenth byte, one bit is left.
            return (index < 9 || *byte < 2).then_some(value);
        }
    }
    None
}

const fn zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[inline]
fn push<T>(column: &mut Vec<T>, number: T) -> Option<()> {
    column.push(number);
    (column.len() <= MAX_NUMBERS).then_some(())
}

#[cfg(test)]
mod tests;
