//! Lines of the telnet protocol: their commands, and the parser of a point, with OpenTSDB's errors.
//!
//! ```text
//!   put METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//! ```
//!
//! Words are separated by single spaces, so two spaces make an empty word; among the tags an empty word
//! is skipped.
//!
//! Source: OpenTSDB 2.4, `PutDataPointRpc.importDataPoint`, `Tags.parse`, `WordSplitter`.

use std::ops::Range;

use memchr::memchr;
use oxtsdb_ingest::RejectionKind;
use oxtsdb_ingest::point_text;
use oxtsdb_ingest::rollup::NewAggregate;
use oxtsdb_schema::timestamp::{TimestampError, TimestampTextError};
use oxtsdb_schema::value::{ValueTextError, parse_integer, parse_telnet};
use oxtsdb_schema::{Timestamp, Value};

use crate::front::histogram_text::CheckedHistogram;

/// Tags that are parsed of one point. The writer rejects points with fewer tags than that.
const MAX_TAGS_READ: usize = 256;

/// Parsed lines, in their order.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Points to store.
    pub(crate) points: Vec<PutLine<'a>>,
    /// Tags of all points, each in the order of its line.
    pub(crate) tags: Vec<(&'a str, &'a str)>,
    /// All other lines.
    pub(crate) others: Vec<OtherLine<'a>>,
    /// Lines that were read.
    pub(crate) lines: usize,
    /// Bytes of text that were read; the rest belongs to the next batch.
    pub(crate) read: usize,
    /// Whether the last line was `exit`; the lines behind it were not read.
    pub(crate) exit: bool,
    /// Whether parsing stopped before a line that is longer than allowed.
    pub(crate) too_long: bool,
}

/// A point.
#[derive(Debug, PartialEq)]
pub(crate) struct PutLine<'a> {
    pub(crate) metric: &'a str,
    pub(crate) timestamp: Timestamp,
    pub(crate) value: Value,
    /// Where its tags lie in [`Batch::tags`].
    pub(crate) tags: Range<usize>,
}

/// A line that is not a valid `put`.
#[derive(Debug, PartialEq)]
pub(crate) struct OtherLine<'a> {
    /// Points of lines before it.
    pub(crate) points_before: usize,
    /// The line, without its end.
    pub(crate) line: &'a str,
    /// Its command.
    pub(crate) command: Command<'a>,
}

/// The command of a line that is not a valid `put`.
#[derive(Debug, PartialEq)]
pub(crate) enum Command<'a> {
    /// `version`.
    Version,
    /// `help`.
    Help,
    /// `stats`.
    Stats,
    /// `dropcaches`.
    DropCaches,
    /// A valid `histogram`.
    Histogram(CheckedHistogram<'a>),
    /// A valid `rollup`.
    Rollup(NewAggregate<'a>),
    /// A `put` with a timestamp or value that is not a number; the reply.
    InvalidValue(RejectionKind, String),
    /// A `put` that breaks another rule; the reply.
    IllegalArgument(RejectionKind, String),
    /// An unknown command.
    Unknown(&'a str),
}

impl<'a> Batch<'a> {
    /// Parses the words behind `put`.
    pub(super) fn parse_put(&mut self, words: Option<&'a str>) -> Result<(), Command<'a>> {
        let start = self.tags.len();
        match self.parse_point(words, start) {
            Ok(point) => {
                self.points.push(point);
                Ok(())
            }
            Err(command) => {
                self.tags.truncate(start);
                Err(command)
            }
        }
    }

    pub(super) fn parse_point(
        &mut self,
        words: Option<&'a str>,
        start: usize,
    ) -> Result<PutLine<'a>, Command<'a>> {
        let (metric, words) = next_word(words);
        let (timestamp_text, words) = next_word(words);
        let (value_text, words) = next_word(words);
        let (Some(metric), Some(timestamp_text), Some(value_text), Some(tags)) =
            (metric, timestamp_text, value_text, words)
        else {
            let got = [metric, timestamp_text, value_text].iter().flatten().count();
            let kind = RejectionKind::Malformed;
            return Err(rejected(
                kind,
                format_args!("not enough arguments (need least 4, got {got})"),
            ));
        };
        if metric.is_empty() {
            return Err(rejected(RejectionKind::Name, "empty metric name"));
        }
        let timestamp = match Timestamp::parse_telnet(timestamp_text) {
            Ok(timestamp) => Ok(timestamp),
            Err(TimestampTextError::NotAnInteger(error)) => {
                return Err(not_a_number(RejectionKind::Timestamp, error));
            }
            Err(TimestampTextError::Timestamp(TimestampError::TooLate { value })) => Err(value),
            Err(TimestampTextError::Timestamp(_)) => {
                let number = timestamp_text.replace('.', "");
                let number = parse_integer(&number).unwrap_or(0);
                let kind = RejectionKind::Timestamp;
                return Err(rejected(kind, format_args!("invalid timestamp: {number}")));
            }
        };
        if value_text.is_empty() {
            return Err(rejected(RejectionKind::Value, "empty value"));
        }
        parse_tags(&mut self.tags, tags)?;
        let value = parse_telnet(value_text).map_err(|error| match error {
            ValueTextError::Value(error) => {
                let timestamp = timestamp.map_or_else(|number| number.to_string(), |t| t.to_string());
                let text = point_text::not_finite(&error, metric, timestamp);
                rejected(RejectionKind::Value, text)
            }
            error => not_a_number(RejectionKind::Value, error),
        })?;
        let tags = start..self.tags.len();
        let timestamp = timestamp.map_err(|number| {
            let tags = self.tags.get(tags.clone()).unwrap_or_default();
            let text = point_text::bad_timestamp(number, metric, tags.iter().copied(), &value);
            rejected(RejectionKind::Timestamp, text)
        })?;
        Ok(PutLine {
            metric,
            timestamp,
            value,
            tags,
        })
    }
}

/// Parses the tags of a point, and adds them to `tags`.
pub(super) fn parse_tags<'a>(
    tags: &mut Vec<(&'a str, &'a str)>,
    mut words: &'a str,
) -> Result<(), Command<'a>> {
    let start = tags.len();
    loop {
        let (tag, behind) = split_word(words);
        if !tag.is_empty() {
            parse_tag(tags, start, tag)?;
        }
        match behind {
            Some(behind) => words = behind,
            None => return Ok(()),
        }
    }
}

fn parse_tag<'a>(tags: &mut Vec<(&'a str, &'a str)>, start: usize, tag: &'a str) -> Result<(), Command<'a>> {
    let pair = tag
        .split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='));
    let Some((key, value)) = pair else {
        return Err(rejected(RejectionKind::Tags, format_args!("invalid tag: {tag}")));
    };
    let mine = tags.get(start..).unwrap_or_default();
    match mine.iter().find(|(name, _)| *name == key) {
        Some((_, same)) if *same == value => Ok(()),
        Some(_) => {
            let tags = point_text::tag_map(mine.iter().copied());
            let kind = RejectionKind::Tags;
            Err(rejected(kind, format_args!("duplicate tag: {tag}, tags={tags}")))
        }
        None => {
            // If the limit of lines is large, the search above would take quadratic time.
            if mine.len() < MAX_TAGS_READ {
                tags.push((key, value));
            }
            Ok(())
        }
    }
}

/// The first word of a line, and the rest behind its space.
pub(super) fn split_word(text: &str) -> (&str, Option<&str>) {
    match memchr(b' ', text.as_bytes()) {
        Some(space) => {
            let (word, rest) = text.split_at(space);
            (word, rest.get(1..))
        }
        None => (text, None),
    }
}

pub(super) fn next_word(words: Option<&str>) -> (Option<&str>, Option<&str>) {
    match words {
        Some(words) => {
            let (word, rest) = split_word(words);
            (Some(word), rest)
        }
        None => (None, None),
    }
}

/// The reply to a `put` that breaks a rule.
pub(crate) fn illegal(rule: impl std::fmt::Display) -> String {
    format!("put: illegal argument: {rule}\n")
}

fn rejected<'a>(kind: RejectionKind, rule: impl std::fmt::Display) -> Command<'a> {
    Command::IllegalArgument(kind, illegal(rule))
}

fn not_a_number<'a>(kind: RejectionKind, error: impl std::fmt::Display) -> Command<'a> {
    Command::InvalidValue(kind, format!("put: invalid value: {error}\n"))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
