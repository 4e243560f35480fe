//! Parses lines that are points, the usual input, in one pass.
//!
//! ```text
//!   put METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//!       ──┬───                 ────────────┬────────────
//!         └── text of the series in the cache: its names are parsed on a miss only
//! ```
//!
//! Stops before the first line that needs a reply, which [`lines`](super::lines) parses: any other command, a `put`
//! with an error, a line that is too long.

use std::ops::Range;

use memchr::{memchr, memchr_iter};
use oxtsdb_metadata::uids::series::{Requested, Series, SeriesRef, SeriesText, Syntax};
use oxtsdb_schema::value::parse_telnet;
use oxtsdb_schema::{Timestamp, Value};

use super::lines;
use crate::front::plain_number::{self, PlainNumber};

/// Points of consecutive lines.
#[derive(Debug, Default)]
pub(crate) struct Puts<'a> {
    /// Times and values.
    pub(crate) points: Vec<(Timestamp, Value)>,
    /// Bytes of text that were read.
    pub(crate) read: usize,
    /// The series of each point.
    series: Vec<SeriesText<'a>>,
    /// The same, if it is cached.
    known: Vec<Option<Series>>,
    /// Where the tags of each series that is not cached lie in `tags`.
    missing: Vec<Range<usize>>,
    tags: Vec<(&'a str, &'a str)>,
}

/// Parses whole lines until `max_points`, the first line that needs a reply, or the end. `known` returns the cached
/// series.
pub(crate) fn parse<'a>(
    text: &'a str,
    max_line_bytes: usize,
    max_points: usize,
    known: impl FnOnce(&[SeriesText<'a>]) -> Vec<Option<Series>>,
) -> Puts<'a> {
    // A line with a point has about 64 characters; a wrong guess only costs a copy.
    let guess = (text.len() / 64 + 1).min(max_points);
    let mut puts = Puts {
        points: Vec::with_capacity(guess),
        series: Vec::with_capacity(guess),
        ..Puts::default()
    };
    for end in memchr_iter(b'\n', text.as_bytes()).take(max_points) {
        let line = text.get(puts.read..end).unwrap_or_default();
        if line.len() > max_line_bytes {
            break;
        }
        let Some((series, timestamp, value)) = parse_put(line) else {
            break;
        };
        puts.series.push(series);
        puts.points.push((timestamp, value));
        puts.read = end + 1;
    }
    puts.known = known(&puts.series);
    if let Err(index) = puts.parse_missing() {
        puts.points.truncate(index);
        puts.known.truncate(index);
        let line_ends = || memchr_iter(b'\n', text.as_bytes());
        puts.read = line_ends().take(index).last().map_or(0, |end| end + 1);
    }
    puts
}

/// The text of the series, time and value of a line; `None` if it needs a reply.
fn parse_put(line: &str) -> Option<(SeriesText<'_>, Timestamp, Value)> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let (metric, words) = split_word(line.strip_prefix("put ")?)?;
    let (timestamp, words) = split_word(words)?;
    let (value, tags) = split_word(words)?;
    let timestamp = match plain_number::parse_without_points(timestamp) {
        Some(number) => Timestamp::from_opentsdb(number).ok()?,
        None => Timestamp::parse_telnet(timestamp).ok()?,
    };
    let value = match plain_number::parse(value) {
        Some(PlainNumber::Integer(number)) => Value::Int(number),
        Some(PlainNumber::Decimal(number)) => Value::number(number).ok()?,
        None => parse_telnet(value).ok()?,
    };
    let syntax = Syntax::Telnet;
    Some((SeriesText { syntax, metric, tags }, timestamp, value))
}

fn split_word(text: &str) -> Option<(&str, &str)> {
    let space = memchr(b' ', text.as_bytes())?;
    Some((text.get(..space)?, text.get(space + 1..)?))
}

impl Puts<'_> {
    /// Parses the names of the series that are not cached, or returns the index of the first that has an error.
    fn parse_missing(&mut self) -> Result<(), usize> {
        for (index, (series, known)) in self.series.iter().zip(&self.known).enumerate() {
            if known.is_some() {
                continue;
            }
            let start = self.tags.len();
            if series.metric.is_empty() || lines::parse_tags(&mut self.tags, series.tags).is_err() {
                return Err(index);
            }
            self.missing.push(start..self.tags.len());
        }
        Ok(())
    }

    /// The series of the points, in their order.
    pub(crate) fn take_series(&mut self) -> impl ExactSizeIterator<Item = Requested<'_>> + Send {
        let (tags, mut missing) = (&self.tags, self.missing.iter());
        let known = std::mem::take(&mut self.known).into_iter();
        known.zip(&self.series).map(move |(known, series)| match known {
            Some(known) => Requested::Known(known),
            None => {
                let range = missing.next().cloned().unwrap_or_default();
                Requested::Series(SeriesRef::Text {
                    text: *series,
                    tags: tags.get(range).unwrap_or_default(),
                })
            }
        })
    }
}

#[cfg(test)]
mod tests;
