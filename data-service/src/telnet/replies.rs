//! Replies to lines, in OpenTSDB's texts, and the counters that go with them.

use std::collections::BTreeMap;

use crate::front::build_info;
use crate::front::counters::{Counters, Statistic, now_seconds};
use crate::front::point_text::{self, Rejection};
use crate::rollup::NewAggregate;
use crate::telnet::histogram::HistogramLine;
use crate::telnet::lines::{self, Command, OtherLine};
use crate::write::{NewPoint, PointError, PointErrorReason, WriteError};

const HELP: &str = "available commands: stats dropcaches version exit help put rollup histogram \n";

/// Replies to the lines of a batch in their order: to `others`, and to the `points` that were rejected. `others_rejected`
/// has the replies to histograms and rollups that were not stored, by their places among `others`.
pub(super) fn reply_to_lines(
    replies: &mut Vec<u8>,
    counters: &Counters,
    points: &[NewPoint<'_>],
    mut rejected: Vec<PointError>,
    others: &[OtherLine<'_>],
    others_rejected: &BTreeMap<usize, String>,
) {
    rejected.sort_by_key(|error| error.index);
    let mut rejected = rejected.iter().peekable();
    for (place, other) in others.iter().enumerate() {
        while let Some(error) = rejected.next_if(|error| error.index < other.points_before) {
            reply_to_rejected_point(replies, counters, points.get(error.index), &error.reason);
        }
        match &other.command {
            Command::Version => replies.extend_from_slice(build_info::version_text().as_bytes()),
            Command::Help => replies.extend_from_slice(HELP.as_bytes()),
            Command::DropCaches => replies.extend_from_slice(b"Caches dropped.\n"),
            Command::Stats => write_statistics(replies, &counters.statistics()),
            Command::InvalidValue(text) | Command::IllegalArgument(text) => {
                Counters::count(&counters.puts);
                let counter = match other.command {
                    Command::InvalidValue(_) => &counters.invalid_values,
                    _ => &counters.illegal_arguments,
                };
                Counters::count(counter);
                replies.extend_from_slice(text.as_bytes());
            }
            Command::Histogram(_) | Command::Rollup(_) => {
                let reply = others_rejected.get(&place).map_or("", String::as_str);
                replies.extend_from_slice(reply.as_bytes());
            }
            Command::Unknown(command) => {
                let text = format!("unknown command: {command}.  Try `help'.\n");
                replies.extend_from_slice(text.as_bytes());
            }
        }
    }
    for error in rejected {
        reply_to_rejected_point(replies, counters, points.get(error.index), &error.reason);
    }
}

fn reply_to_rejected_point(
    replies: &mut Vec<u8>,
    counters: &Counters,
    point: Option<&NewPoint<'_>>,
    reason: &PointErrorReason,
) {
    let (metric, tags) = point.map_or(("", &[][..]), |point| (point.metric, point.tags));
    let (counter, text) = match Rejection::of(reason, tags) {
        Rejection::NoTags => (
            &counters.illegal_arguments,
            lines::illegal(point_text::no_tags(metric)),
        ),
        Rejection::Rule(text) => (&counters.illegal_arguments, lines::illegal(text)),
        Rejection::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            format!("put: unknown metric: No such name for '{kind}': '{name}'\n"),
        ),
        Rejection::Storage(text) => (&counters.storage_errors, format!("put: HBase error: {text}\n")),
    };
    Counters::count(counter);
    replies.extend_from_slice(text.as_bytes());
}

/// The reply to a histogram that was not stored.
pub(super) fn reply_to_rejected_histogram(
    counters: &Counters,
    line: &HistogramLine<'_>,
    reason: &PointErrorReason,
) -> String {
    // OpenTSDB resolves names while it stores, so that all errors are those of the store.
    let (counter, text) = match Rejection::of(reason, &line.tags) {
        Rejection::NoTags => (&counters.illegal_arguments, point_text::no_tags(line.metric)),
        Rejection::Rule(text) => (&counters.illegal_arguments, text),
        Rejection::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            format!("No such name for '{kind}': '{name}'"),
        ),
        Rejection::Storage(text) => (&counters.storage_errors, text),
    };
    Counters::count(counter);
    format!("histogram: HBase error: {text}\n")
}

/// The reply to a rollup whose series could not be resolved.
pub(super) fn reply_to_rejected_rollup(
    counters: &Counters,
    line: &NewAggregate<'_>,
    reason: &PointErrorReason,
) -> String {
    let (counter, text) = match Rejection::of(reason, &line.tags) {
        Rejection::NoTags => (
            &counters.illegal_arguments,
            format!("illegal argument: {}", point_text::no_tags(line.metric)),
        ),
        Rejection::Rule(text) => (&counters.illegal_arguments, format!("illegal argument: {text}")),
        Rejection::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            format!("unknown metric: No such name for '{kind}': '{name}'"),
        ),
        Rejection::Storage(text) => (&counters.storage_errors, format!("HBase error: {text}")),
    };
    Counters::count(counter);
    format!("rollup: {text}\n")
}

/// Replies to a write that failed as a whole.
pub(super) fn reply_to_failed_write(
    replies: &mut Vec<u8>,
    counters: &Counters,
    points: usize,
    error: &WriteError,
) {
    Counters::add(&counters.storage_errors, points);
    let cause = match error {
        WriteError::Overloaded { .. } => "Please throttle writes",
        WriteError::Store(_) | WriteError::Uids(_) | WriteError::DeadlineExceeded => "HBase error",
    };
    let text = format!("put: {cause}: {error} ({points} points are not known to be stored)\n");
    replies.extend_from_slice(text.as_bytes());
}

/// Replies to a line of more than `max` bytes.
pub(super) fn reply_to_long_line(replies: &mut Vec<u8>, max: usize) {
    let text = format!("error: line is too long, at most {max} bytes are allowed; closing\n");
    replies.extend_from_slice(text.as_bytes());
}

fn write_statistics(replies: &mut Vec<u8>, statistics: &[Statistic]) {
    let seconds = now_seconds();
    for statistic in statistics {
        replies.extend_from_slice(statistic.line(seconds).as_bytes());
        replies.push(b'\n');
    }
}
