//! Replies to lines, in OpenTSDB's texts, and the counters that go with them.

use std::collections::BTreeMap;

use oxtsdb_ingest::point_text::{self, Rejection};
use oxtsdb_ingest::{
    AggregateError, Caller, Example, NewPoint, PointError, PointErrorReason, RejectionKind, WriteError,
};
use oxtsdb_server::metrics::Protocol;

use crate::front::build_info;
use crate::front::counters::{Counters, Statistic, now_seconds};
use crate::telnet::datum::{DatumKind as _, Histograms};
use crate::telnet::lines::{Command, OtherLine};

/// Codes of lines in the metrics.
pub(super) const OK: &str = "ok";
const INVALID_VALUE: &str = "invalid_value";
const ILLEGAL_ARGUMENT: &str = "illegal_argument";
const UNKNOWN_NAME: &str = "unknown_name";
const STORAGE_ERROR: &str = "storage_error";

const HELP: &str = "available commands: stats dropcaches version exit help put rollup histogram \n";

/// Replies to the lines of a batch in their order: to `others`, and to the rejected `points`. `others_rejected` has the
/// replies to histograms and rollups that were not stored, by their places among `others`.
pub(super) fn reply_to_lines(
    replies: &mut Vec<u8>,
    (counters, caller): (&Counters, &Caller),
    points: &[NewPoint<'_>],
    mut rejected: Vec<PointError>,
    others: &[OtherLine<'_>],
    others_rejected: &BTreeMap<usize, String>,
) {
    let of = (counters, caller);
    rejected.sort_by_key(|error| error.index);
    let mut rejected = rejected.iter().peekable();
    for (place, other) in others.iter().enumerate() {
        while let Some(error) = rejected.next_if(|error| error.index < other.points_before) {
            reply_to_rejected_point(replies, of, points.get(error.index), &error.reason);
        }
        let (method, code) = method_and_code(&other.command);
        if !others_rejected.contains_key(&place) {
            count_lines(counters, method, code, 1);
        }
        match &other.command {
            Command::Version => replies.extend_from_slice(build_info::version_text().as_bytes()),
            Command::Help => replies.extend_from_slice(HELP.as_bytes()),
            Command::DropCaches => replies.extend_from_slice(b"Caches dropped.\n"),
            Command::Stats => write_statistics(replies, &counters.statistics()),
            Command::InvalidValue(kind, text) | Command::IllegalArgument(kind, text) => {
                Counters::count(&counters.puts);
                counters.reject(caller, *kind, || example(text, other.line));
                let counter = match other.command {
                    Command::InvalidValue(..) => &counters.invalid_values,
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
                counters.reject_text(caller, || example(&text, other.line));
                replies.extend_from_slice(text.as_bytes());
            }
        }
    }
    for error in rejected {
        reply_to_rejected_point(replies, of, points.get(error.index), &error.reason);
    }
}

fn reply_to_rejected_point(
    replies: &mut Vec<u8>,
    of: (&Counters, &Caller),
    point: Option<&NewPoint<'_>>,
    reason: &PointErrorReason,
) {
    let series = point.map_or(("", &[][..]), |point| (point.metric, point.tags));
    let reply = reply_to_rejected(of, "put", series, reason, || {
        let line =
            |point: &NewPoint<'_>| point_text::line(point.metric, point.timestamp, point.value, point.tags);
        point.map(line).unwrap_or_default()
    });
    replies.extend_from_slice(reply.as_bytes());
}

/// The reply to a line of `command` that was not stored.
pub(super) fn reply_to_rejected(
    (counters, caller): (&Counters, &Caller),
    command: &'static str,
    (metric, tags): (&str, &[(&str, &str)]),
    reason: &PointErrorReason,
    line: impl FnOnce() -> String,
) -> String {
    let (counter, code, cause, error) = match Rejection::from_reason(reason, tags) {
        Rejection::NoTags => (
            &counters.illegal_arguments,
            ILLEGAL_ARGUMENT,
            "illegal argument",
            point_text::no_tags(metric),
        ),
        Rejection::Rule(rule) => (
            &counters.illegal_arguments,
            ILLEGAL_ARGUMENT,
            "illegal argument",
            rule,
        ),
        Rejection::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            UNKNOWN_NAME,
            "unknown metric",
            format!("No such name for '{kind}': '{name}'"),
        ),
        Rejection::Storage(error) => (&counters.storage_errors, STORAGE_ERROR, "HBase error", error),
    };
    let cause = match reason {
        // OpenTSDB resolves a histogram's names while it stores, so it reports all errors as errors of the store.
        _ if command == Histograms::COMMAND => "HBase error",
        PointErrorReason::InvalidRollup(AggregateError::NoInterval) => "HBase error",
        PointErrorReason::InvalidRollup(AggregateError::NoSuchInterval { .. }) => "No such rollup",
        _ => cause,
    };
    let reply = format!("{command}: {cause}: {error}\n");
    Counters::count(counter);
    count_lines(counters, command, code, 1);
    counters.reject(caller, RejectionKind::from(reason), || example(&reply, &line()));
    reply
}

/// Replies to a write that failed as a whole.
pub(super) fn reply_to_failed_write(
    replies: &mut Vec<u8>,
    counters: &Counters,
    points: usize,
    error: &WriteError,
) {
    Counters::add(&counters.storage_errors, points);
    counters.ingest(Protocol::Telnet).add_failed(points as u64);
    count_lines(counters, "put", STORAGE_ERROR, points as u64);
    let cause = match error {
        WriteError::Overloaded { .. } => "Please throttle writes",
        WriteError::Store(_) | WriteError::Uids(_) | WriteError::DeadlineExceeded => "HBase error",
    };
    let text = format!("put: {cause}: {error} ({points} points are not known to be stored)\n");
    replies.extend_from_slice(text.as_bytes());
}

/// Replies to a line of more than `max` bytes.
pub(super) fn reply_to_long_line(
    replies: &mut Vec<u8>,
    (counters, caller): (&Counters, &Caller),
    max: usize,
    line: &str,
) {
    count_lines(counters, "other", ILLEGAL_ARGUMENT, 1);
    let text = format!("error: line is too long, at most {max} bytes are allowed; closing\n");
    counters.reject_text(caller, || example(&text, line));
    replies.extend_from_slice(text.as_bytes());
}

/// The labels of a line, as far as it is known without storing it.
pub(super) fn method_and_code(command: &Command<'_>) -> (&'static str, &'static str) {
    match command {
        Command::Version => ("version", OK),
        Command::Help => ("help", OK),
        Command::DropCaches => ("dropcaches", OK),
        Command::Stats => ("stats", OK),
        Command::Histogram(_) => ("histogram", OK),
        Command::Rollup(_) => ("rollup", OK),
        Command::InvalidValue(..) => ("put", INVALID_VALUE),
        Command::IllegalArgument(..) => ("put", ILLEGAL_ARGUMENT),
        Command::Unknown(_) => ("other", "unknown_command"),
    }
}

fn count_lines(counters: &Counters, method: &'static str, code: &'static str, lines: u64) {
    counters.requests().count(Protocol::Telnet, method, code, lines);
}

/// Counts histograms or rollups that could not be stored.
pub(super) fn count_failed(counters: &Counters, method: &'static str, lines: usize) {
    Counters::add(&counters.storage_errors, lines);
    counters.ingest(Protocol::Telnet).add_failed(lines as u64);
    count_lines(counters, method, STORAGE_ERROR, lines as u64);
}

/// A rejected line for the log; the reply to it is the reason.
fn example(reply: &str, line: &str) -> Example {
    Example {
        reason: reply.to_owned(),
        point: line.to_owned(),
    }
}

fn write_statistics(replies: &mut Vec<u8>, statistics: &[Statistic]) {
    let seconds = now_seconds();
    for statistic in statistics {
        replies.extend_from_slice(statistic.line(seconds).as_bytes());
        replies.push(b'\n');
    }
}
