//! Lines with a rollup or a pre-aggregate, with OpenTSDB's errors.
//!
//! ```text
//!   rollup INTERVAL-AGGREGATOR[:GROUPBY] METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//!   rollup GROUPBY METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]
//! ```
//!
//! [`AggregateWord`] is the first word.
//!
//! Source: OpenTSDB 2.4, `RollupDataPointRpc.importDataPoint`; replies recorded from 2.4.1.

use std::fmt::Display;

use oxtsdb_ingest::RejectionKind as Kind;
use oxtsdb_ingest::rollup::{Aggregate, NewAggregate};
use oxtsdb_schema::rollup::AggregateWord;

use super::lines::{Batch, Command, PutLine, next_word};

/// Parses the words behind `rollup`.
pub(super) fn parse<'a>(words: Option<&'a str>) -> Result<NewAggregate<'a>, Command<'a>> {
    let (first, rest) = next_word(words);
    let mut count = 0;
    let mut left = words;
    while count < 5 && left.is_some() {
        (_, left) = next_word(left);
        count += 1;
    }
    let Some(first) = first.filter(|_| count == 5) else {
        return Err(illegal(
            Kind::Malformed,
            format_args!("not enough arguments (need least 7, got {count})"),
        ));
    };
    if first.is_empty() {
        return Err(illegal(Kind::Rollup, "Missing interval or aggregator"));
    }
    let mut batch = Batch::default();
    let PutLine {
        metric,
        timestamp,
        value,
        ..
    } = batch.parse_point(rest, 0).map_err(rollup_reply)?;
    Ok(NewAggregate {
        metric,
        tags: batch.tags,
        timestamp: match timestamp.is_millis() {
            true => timestamp.as_millis(),
            false => timestamp.as_millis() / 1000,
        },
        value,
        aggregate: aggregate(first),
    })
}

/// The aggregate that the first word names.
fn aggregate(word: &str) -> Aggregate<'_> {
    let AggregateWord {
        interval,
        aggregator,
        group_by,
    } = AggregateWord::parse(word);
    Aggregate {
        interval,
        aggregator,
        group_by,
    }
}

/// The same reply, to a line with a rollup.
fn rollup_reply(command: Command<'_>) -> Command<'_> {
    let renamed = |text: String| format!("rollup{}", text.trim_start_matches("put"));
    match command {
        Command::InvalidValue(kind, text) => Command::InvalidValue(kind, renamed(text)),
        Command::IllegalArgument(kind, text) => Command::IllegalArgument(kind, renamed(text)),
        other => other,
    }
}

fn illegal<'a>(kind: Kind, rule: impl Display) -> Command<'a> {
    Command::IllegalArgument(kind, format!("rollup: illegal argument: {rule}\n"))
}

#[cfg(test)]
mod tests;
