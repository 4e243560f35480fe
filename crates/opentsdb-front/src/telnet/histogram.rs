//! Lines with a histogram, with OpenTSDB's errors.
//!
//! ```text
//!   histogram METRIC TIMESTAMP LOWER,UPPER=COUNT:...:u=UNDERFLOW:o=OVERFLOW TAGK=TAGV [TAGK=TAGV ...]
//!   histogram METRIC TIMESTAMP ID BASE64 TAGK=TAGV [TAGK=TAGV ...]
//! ```
//!
//! OpenTSDB has no reply to a payload in the first form that it cannot parse, and stores nothing; here it has the form
//! of the replies to those in the second form.
//!
//! Source: OpenTSDB 2.4, `HistogramDataPointRpc.importDataPoint`, `HistogramDataPointRpc.parseTelnet`.

use std::fmt::Display;

use oxtsdb_ingest::RejectionKind as Kind;
use oxtsdb_ingest::point_text;
use oxtsdb_schema::timestamp::{TimestampError, TimestampTextError};
use oxtsdb_schema::value::parse_integer;
use oxtsdb_schema::{Histogram, HistogramCodecs, HistogramError, Timestamp, histogram};

use super::lines::{Command, next_word, parse_tags};
use crate::front::histogram_text::{self, CheckedHistogram, DISABLED, SentError, decode_base64};

/// Parses the words behind `histogram`.
pub(super) fn parse<'a>(
    words: Option<&'a str>,
    codecs: Option<&HistogramCodecs>,
) -> Result<CheckedHistogram<'a>, Command<'a>> {
    let Some(codecs) = codecs else {
        return Err(illegal(Kind::Histogram, DISABLED));
    };
    let (metric, words) = next_word(words);
    let (timestamp_text, words) = next_word(words);
    let (first, words) = next_word(words);
    let (Some(metric), Some(timestamp_text), Some(first), Some(tags)) =
        (metric, timestamp_text, first, words)
    else {
        let got = [metric, timestamp_text, first].iter().flatten().count();
        return Err(illegal(
            Kind::Malformed,
            format_args!("not enough arguments (need least 5, got {got})"),
        ));
    };
    if metric.is_empty() {
        return Err(illegal(Kind::Name, "empty metric name"));
    }
    let timestamp = match Timestamp::parse_telnet(timestamp_text) {
        Ok(timestamp) => Ok(timestamp),
        Err(TimestampTextError::NotAnInteger(error)) => {
            let text = format!("histogram: invalid value: {error}\n");
            return Err(Command::InvalidValue(Kind::Timestamp, text));
        }
        Err(TimestampTextError::Timestamp(TimestampError::TooLate { value })) => Err(value),
        Err(TimestampTextError::Timestamp(_)) => {
            let number = parse_integer(&timestamp_text.replace('.', "")).unwrap_or(0);
            return Err(illegal(
                Kind::Timestamp,
                format_args!("invalid timestamp: {number}"),
            ));
        }
    };
    let id = first.parse::<i32>().ok();
    let (payload, tag_words) = match id {
        Some(_) => {
            let (payload, tags) = next_word(Some(tags));
            (payload.unwrap_or_default(), tags)
        }
        None => (first, Some(tags)),
    };
    if payload.is_empty() {
        return Err(illegal(Kind::Histogram, "empty histogram value"));
    }
    let mut tags = Vec::new();
    if let Some(words) = tag_words {
        // The texts of its errors begin with the command.
        parse_tags(&mut tags, words).map_err(|command| match command {
            Command::IllegalArgument(kind, text) => {
                Command::IllegalArgument(kind, format!("histogram{}", text.trim_start_matches("put")))
            }
            other => other,
        })?;
    }
    let histogram = match id {
        Some(id) => decode_payload(codecs, id, payload)?,
        None => histogram::parse_histogram(payload).map_err(storage)?,
    };
    let value = codecs.encode_cell(&histogram).map_err(storage)?;
    let timestamp = timestamp.map_err(|number| {
        let tags = tags.iter().copied();
        let text = point_text::bad_timestamp_of(number, metric, tags, &value, 0);
        Command::IllegalArgument(Kind::Timestamp, hbase_error(text))
    })?;
    Ok(CheckedHistogram {
        metric,
        timestamp,
        value,
        tags,
    })
}

fn decode_payload<'a>(codecs: &HistogramCodecs, id: i32, payload: &str) -> Result<Histogram, Command<'a>> {
    let Ok(id) = u8::try_from(id) else {
        return Err(storage(format_args!("No codec found mapped to ID {id}")));
    };
    histogram_text::decode(codecs, id, &decode_base64(payload)).map_err(|error| match error {
        SentError::TooShort(text) => storage(text),
        SentError::Histogram(HistogramError::CutOff { .. }) => storage("Buffer underflow."),
        SentError::Histogram(error) => storage(error),
    })
}

fn illegal<'a>(kind: Kind, rule: impl Display) -> Command<'a> {
    Command::IllegalArgument(kind, format!("histogram: illegal argument: {rule}\n"))
}

/// An error that OpenTSDB detects while it stores, which it reports as an error of HBase.
fn storage<'a>(error: impl Display) -> Command<'a> {
    Command::IllegalArgument(Kind::Histogram, hbase_error(error))
}

fn hbase_error(error: impl Display) -> String {
    format!("histogram: HBase error: {error}\n")
}

#[cfg(test)]
mod tests;
