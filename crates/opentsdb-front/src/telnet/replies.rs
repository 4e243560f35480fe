//! Replies to lines, in OpenTSDB's texts, and the counters that go with them.

use std::collections::BTreeMap;

use oxtsdb_ingest::point_text::{self, Rejection};
use oxtsdb_ingest::rollup::{AggregateError, NewAggregate};
use oxtsdb_ingest::{Caller, Example, NewPoint, PointError, PointErrorReason, RejectionKind, WriteError};
use oxtsdb_server::metrics::Protocol;

use crate::front::build_info;
use crate::front::counters::{Counters, Statistic, now_seconds};
use crate::telnet::lines::{self, Command, HistogramLine, OtherLine};
use crate::telnet::rollup;

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
    rejected.sort_by_key(|error| error.index);
    let mut rejected = rejected.iter().peekable();
    for (place, other) in others.iter().enumerate() {
        while let Some(error) = rejected.next_if(|error| error.index < other.points_before) {
            reply_to_rejected_point(
                replies,
                (counters, caller),
                points.get(error.index),
                &error.reason,
            );
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
        reply_to_rejected_point(
            replies,
            (counters, caller),
            points.get(error.index),
            &error.reason,
        );
    }
}

fn reply_to_rejected_point(
    replies: &mut Vec<u8>,
    (counters, caller): (&Counters, &Caller),
    point: Option<&NewPoint<'_>>,
    reason: &PointErrorReason,
) {
    let (metric, tags) = point.map_or(("", &[][..]), |point| (point.metric, point.tags));
    let kind = RejectionKind::from(reason);
    let reason = Rejection::of(reason, tags);
    count_rejected(counters, "put", &reason);
    let (counter, text) = match reason {
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
    counters.reject(caller, kind, || {
        let line =
            point.map(|point| point_text::line(point.metric, point.timestamp, point.value, point.tags));
        example(&text, &line.unwrap_or_default())
    });
    replies.extend_from_slice(text.as_bytes());
}

/// The reply to a histogram that was not stored.
pub(super) fn reply_to_rejected_histogram(
    (counters, caller): (&Counters, &Caller),
    (line, text): (&HistogramLine<'_>, &str),
    reason: &PointErrorReason,
) -> String {
    let kind = RejectionKind::from(reason);
    let reason = Rejection::of(reason, &line.tags);
    count_rejected(counters, "histogram", &reason);
    // OpenTSDB resolves names while it stores, so it reports all errors as errors of the store.
    let (counter, rule) = match reason {
        Rejection::NoTags => (&counters.illegal_arguments, point_text::no_tags(line.metric)),
        Rejection::Rule(rule) => (&counters.illegal_arguments, rule),
        Rejection::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            format!("No such name for '{kind}': '{name}'"),
        ),
        Rejection::Storage(rule) => (&counters.storage_errors, rule),
    };
    let reply = format!("histogram: HBase error: {rule}\n");
    Counters::count(counter);
    counters.reject(caller, kind, || example(&reply, text));
    reply
}

/// The reply to a rollup with an unresolved series.
pub(super) fn reply_to_rejected_rollup(
    (counters, caller): (&Counters, &Caller),
    (line, text): (&NewAggregate<'_>, &str),
    reason: &PointErrorReason,
) -> String {
    let point_kind = RejectionKind::from(reason);
    let reason = Rejection::of(reason, &line.tags);
    count_rejected(counters, "rollup", &reason);
    let (counter, rule) = match reason {
        Rejection::NoTags => (
            &counters.illegal_arguments,
            format!("illegal argument: {}", point_text::no_tags(line.metric)),
        ),
        Rejection::Rule(rule) => (&counters.illegal_arguments, format!("illegal argument: {rule}")),
        Rejection::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            format!("unknown metric: No such name for '{kind}': '{name}'"),
        ),
        Rejection::Storage(rule) => (&counters.storage_errors, format!("HBase error: {rule}")),
    };
    Counters::count(counter);
    let reply = format!("rollup: {rule}\n");
    counters.reject(caller, point_kind, || example(&reply, text));
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

/// The reply to a rollup that breaks a rule.
pub(super) fn reply_to_invalid_rollup(
    (counters, caller): (&Counters, &Caller),
    line: &str,
    error: &AggregateError,
) -> String {
    Counters::count(&counters.illegal_arguments);
    count_lines(counters, "rollup", ILLEGAL_ARGUMENT, 1);
    let reply = rollup::reply_to_invalid(error);
    counters.reject(caller, RejectionKind::Rollup, || example(&reply, line));
    reply
}

/// A rejected line for the log; the reply to it is the reason.
fn example(reply: &str, line: &str) -> Example {
    Example {
        reason: reply.to_owned(),
        point: line.to_owned(),
    }
}

fn count_rejected(counters: &Counters, method: &'static str, reason: &Rejection) {
    let code = match reason {
        Rejection::NoTags | Rejection::Rule(_) => ILLEGAL_ARGUMENT,
        Rejection::UnknownName { .. } => UNKNOWN_NAME,
        Rejection::Storage(_) => STORAGE_ERROR,
    };
    count_lines(counters, method, code, 1);
}

fn write_statistics(replies: &mut Vec<u8>, statistics: &[Statistic]) {
    let seconds = now_seconds();
    for statistic in statistics {
        replies.extend_from_slice(statistic.line(seconds).as_bytes());
        replies.push(b'\n');
    }
}
