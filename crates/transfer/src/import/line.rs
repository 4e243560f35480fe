//! One line of an import file.
//!
//! ```text
//!   [put ]METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//!   rollup INTERVAL-AGGREGATOR[:GROUPBY] METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//!   rollup GROUPBY METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//! ```
//!
//! Points of a metric called `rollup` need `put `, unless a number follows.
//!
//! Words are separated by blanks or tabs, as many as there are. Timestamps are seconds, or
//! milliseconds if they do not fit 32 bits. `1346846400.250` is milliseconds too; other decimals
//! are rejected, because OpenTSDB drops the dot and reads 1346846400.5 as a time in 1970.
//!
//! Source: OpenTSDB 2.4, `TextImporter.importFile`, `Tags.parse`.

use memchr::memchr2;
use oxtsdb_schema::timestamp::{TimestampError, TimestampTextError};
use oxtsdb_schema::value::{ValueTextError, parse_integer, parse_telnet};
use oxtsdb_schema::{Timestamp, Value};
use thiserror::Error;

/// A point or a rollup, with its words as in the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line<'a> {
    /// Metric name; not empty.
    pub(super) metric: &'a str,
    /// When.
    pub(super) timestamp_ms: i64,
    /// The value.
    pub(super) value: Value,
    /// All tags; not empty. See [`tags`].
    pub(super) tags: &'a str,
    /// The aggregate of a rollup; `None` for a point.
    pub(super) aggregate: Option<&'a str>,
}

/// Why a line is not a point.
#[derive(Debug, Clone, PartialEq, Error)]
pub(super) enum LineError {
    /// Fewer words than a point has.
    #[error("has {words} words, expected metric, timestamp, value and at least one tag")]
    TooFewWords {
        /// How many.
        words: usize,
    },
    /// The bytes are not text.
    #[error("is not UTF-8")]
    NotUtf8,
    /// More bytes than any point needs.
    #[error("has more than {limit} bytes")]
    TooLong {
        /// The most that are read.
        limit: usize,
    },
    /// The second word is not a time.
    #[error("timestamp `{text}`: {error}")]
    Timestamp {
        /// The word.
        text: String,
        /// Why not.
        error: TimestampTextError,
    },
    /// The second word has a dot, and not three digits behind it.
    #[error(
        "timestamp `{text}` is ambiguous, expected seconds, milliseconds, or seconds with exactly 3 decimals"
    )]
    AmbiguousTimestamp {
        /// The word.
        text: String,
    },
    /// The third word is not a number that can be stored.
    #[error("value `{text}`: {error}")]
    Value {
        /// The word.
        text: String,
        /// Why not.
        error: ValueTextError,
    },
    /// A word that should be a tag.
    #[error("tag `{text}` is not of the form tagk=tagv")]
    Tag {
        /// The word.
        text: String,
    },
    /// Two values for one tag key.
    #[error("duplicate tag key `{key}`: `{first}` and `{second}`")]
    DuplicateTag {
        /// The key.
        key: String,
        /// Its first value.
        first: String,
        /// Its other value.
        second: String,
    },
}

/// Parses a line without its end; `None` if it is blank.
///
/// Names are not validated: the deployment decides which are allowed.
///
/// # Errors
///
/// [`LineError`], with the word that is wrong.
pub(super) fn parse(line: &str) -> Result<Option<Line<'_>>, LineError> {
    let text = line.trim_matches(is_blank);
    if text.is_empty() {
        return Ok(None);
    }
    // A metric called `put` is followed by a number, the command by a metric and then a number.
    let (text, aggregate) = match text.strip_prefix("put ") {
        Some(rest) => (rest.trim_start_matches(is_blank), None),
        None => aggregate(text).map_or((text, None), |(aggregate, rest)| (rest, Some(aggregate))),
    };
    let (metric, rest) = word(text);
    let (timestamp, rest) = word(rest);
    let (value, tags) = word(rest);
    if tags.is_empty() {
        let words = line.split(is_blank).filter(|word| !word.is_empty()).count();
        return Err(LineError::TooFewWords { words });
    }
    Ok(Some(Line {
        metric,
        timestamp_ms: timestamp_ms(timestamp)?,
        value: parse_telnet(value).map_err(|error| LineError::Value {
            text: value.to_owned(),
            error,
        })?,
        tags,
        aggregate,
    }))
}

/// The aggregate of a line with a rollup, and the words behind it.
fn aggregate(text: &str) -> Option<(&str, &str)> {
    let rest = text
        .strip_prefix("rollup")
        .filter(|rest| rest.starts_with(is_blank))?;
    let (aggregate, rest) = word(rest.trim_start_matches(is_blank));
    let is_timestamp = aggregate
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    (!is_timestamp).then_some((aggregate, rest))
}

/// The tags of a line, in their order; a tag that is repeated with its value counts once.
///
/// # Errors
///
/// [`LineError::Tag`] and [`LineError::DuplicateTag`].
pub(super) fn tags(text: &str) -> Result<Vec<(&str, &str)>, LineError> {
    let mut tags: Vec<(&str, &str)> = Vec::with_capacity(4);
    for word in text.split(is_blank).filter(|word| !word.is_empty()) {
        let pair = word
            .split_once('=')
            .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='));
        let Some((key, value)) = pair else {
            return Err(LineError::Tag {
                text: word.to_owned(),
            });
        };
        match tags.iter().find(|(known, _)| *known == key) {
            None => tags.push((key, value)),
            Some((_, same)) if *same == value => {}
            Some((_, first)) => {
                return Err(LineError::DuplicateTag {
                    key: key.to_owned(),
                    first: (*first).to_owned(),
                    second: value.to_owned(),
                });
            }
        }
    }
    Ok(tags)
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r')
}

/// The first word, and the rest after the blanks that follow it.
fn word(text: &str) -> (&str, &str) {
    match memchr2(b' ', b'\t', text.as_bytes()) {
        Some(end) => {
            let (word, rest) = text.split_at(end);
            (word, rest.trim_start_matches(is_blank))
        }
        None => (text, ""),
    }
}

fn timestamp_ms(text: &str) -> Result<i64, LineError> {
    let rejected = |error: TimestampTextError| LineError::Timestamp {
        text: text.to_owned(),
        error,
    };
    if let Some((seconds, millis)) = text.split_once('.') {
        if millis.len() != 3 || !millis.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LineError::AmbiguousTimestamp {
                text: text.to_owned(),
            });
        }
        let seconds = parse_integer(seconds).map_err(|error| rejected(error.into()))?;
        let millis = parse_integer(millis).map_err(|error| rejected(error.into()))?;
        let value = seconds.saturating_mul(1000).saturating_add(millis);
        if value <= 0 {
            return Err(rejected(TimestampError::NotPositive { value }.into()));
        }
        return match Timestamp::from_millis(value) {
            Ok(timestamp) => Ok(timestamp.as_millis()),
            Err(error) => Err(rejected(error.into())),
        };
    }
    let number = parse_integer(text).map_err(|error| rejected(error.into()))?;
    match Timestamp::from_opentsdb(number) {
        Ok(timestamp) => Ok(timestamp.as_millis()),
        Err(error) => Err(rejected(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(text: &str) -> Line<'_> {
        parse(text).unwrap().unwrap()
    }

    fn refusal(text: &str) -> String {
        parse(text)
            .and_then(|line| tags(line.unwrap().tags).map(|_| ()))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn parses_opentsdbs_lines() {
        let line = point("sys.cpu.nice 1346846400 18 host=web01 dc=lga");
        assert_eq!(line.metric, "sys.cpu.nice");
        assert_eq!(line.timestamp_ms, 1_346_846_400_000);
        assert_eq!(line.value, Value::Int(18));
        assert_eq!(tags(line.tags).unwrap(), [("host", "web01"), ("dc", "lga")]);
    }

    #[test]
    fn put_blanks_tabs_and_carriage_returns_are_accepted() {
        let plain = point("m 1 2 a=b");
        for text in ["put m 1 2 a=b", "  m\t1   2 a=b \r", "put   m 1 2 a=b"] {
            let line = point(text);
            assert_eq!(
                (line.metric, line.timestamp_ms, line.tags),
                (plain.metric, 1000, "a=b"),
                "{text:?}"
            );
        }
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse(" \t\r").unwrap(), None);
    }

    #[test]
    fn times_are_seconds_or_milliseconds() {
        for (text, expected) in [
            ("1", 1000),
            ("4294967295", 4_294_967_295_000),
            ("4294967296", 4_294_967_296),
            ("1346846400250", 1_346_846_400_250),
            ("1346846400.250", 1_346_846_400_250),
            ("0.001", 1),
        ] {
            assert_eq!(timestamp_ms(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn values_keep_their_precision() {
        assert_eq!(point("m 1 0.5 a=b").value, Value::Float(0.5));
        assert_eq!(
            point("m 1 0.1 a=b").value,
            Value::Double(0.1),
            "import files of OpenTSDB lose this"
        );
        assert_eq!(point("m 1 42.0 a=b").value, Value::Float(42.0));
        assert_eq!(point("m 1 -9223372036854775808 a=b").value, Value::Int(i64::MIN));
    }

    #[test]
    fn errors_name_the_invalid_word() {
        for (text, expected) in [
            (
                "m 1 2",
                "has 3 words, expected metric, timestamp, value and at least one tag",
            ),
            (
                "put",
                "has 1 words, expected metric, timestamp, value and at least one tag",
            ),
            ("m 0 2 a=b", "timestamp `0`: timestamp 0 is not positive"),
            ("m -5 2 a=b", "timestamp `-5`: timestamp -5 is not positive"),
            ("m x 2 a=b", "timestamp `x`: Invalid character 'x' in x"),
            (
                "m 4294967296000 2 a=b",
                "timestamp `4294967296000`: timestamp 4294967296000 ms is after 4294967295999, the last that can be stored",
            ),
            ("m 1 NaN a=b", "value `NaN`: Invalid character 'N' in NaN"),
            (
                "m 1 1e400 a=b",
                "value `1e400`: value is NaN or Infinite: Infinity",
            ),
            (
                "m 1 9223372036854775808 a=b",
                "value `9223372036854775808`: Overflow in 9223372036854775808",
            ),
            ("m 1 2 host", "tag `host` is not of the form tagk=tagv"),
            ("m 1 2 host=", "tag `host=` is not of the form tagk=tagv"),
            ("m 1 2 a=b=c", "tag `a=b=c` is not of the form tagk=tagv"),
            ("m 1 2 a=b a=c", "duplicate tag key `a`: `b` and `c`"),
        ] {
            assert_eq!(refusal(text), expected, "{text}");
        }
        assert!(refusal("m 1346846400.5 2 a=b").starts_with("timestamp `1346846400.5` is ambiguous"));
        assert!(refusal("m 0.000 2 a=b").contains("not positive"));
    }

    #[test]
    fn a_tag_repeated_with_its_value_counts_once() {
        assert_eq!(tags("a=b a=b c=d").unwrap(), [("a", "b"), ("c", "d")]);
    }

    proptest! {
        #[test]
        fn no_line_panics(line in r"\PC{0,80}") {
            if let Ok(Some(point)) = parse(&line) {
                let _ = tags(point.tags);
            }
        }

        #[test]
        fn points_are_read_as_they_were_written(
            metric in "[a-z.]{1,20}",
            seconds in 1..=u32::MAX,
            value: i64,
            host in "[a-z0-9]{1,9}",
        ) {
            let text = format!("{metric} {seconds} {value} host={host}");
            let line = point(&text);
            prop_assert_eq!(line.metric, metric);
            prop_assert_eq!(line.timestamp_ms, i64::from(seconds) * 1000);
            prop_assert_eq!(line.value, Value::Int(value));
            prop_assert_eq!(tags(line.tags).unwrap(), vec![("host", host.as_str())]);
        }
    }
}
