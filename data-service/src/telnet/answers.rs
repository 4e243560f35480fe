//! What lines are answered with, and what is counted with it.

use crate::front::build_info;
use crate::front::counters::{Counters, Statistic, now_seconds};
use crate::front::point_text::{self, Refusal};
use crate::telnet::lines::{self, Asks, Other};
use crate::write::{NewPoint, PointError, PointErrorReason, WriteError};

const HELP: &str = "available commands: stats version exit help put \n";

/// Answers the lines of a batch in their order: `others`, and those of `points` that were refused.
pub(super) fn answer_lines(
    answers: &mut Vec<u8>,
    counters: &Counters,
    points: &[NewPoint<'_>],
    mut refused: Vec<PointError>,
    others: &[Other<'_>],
) {
    refused.sort_by_key(|error| error.index);
    let mut refused = refused.iter().peekable();
    for other in others {
        while let Some(error) = refused.next_if(|error| error.index < other.points_before) {
            answer_refused(answers, counters, points.get(error.index), &error.reason);
        }
        match &other.asks {
            Asks::Version => answers.extend_from_slice(version_text().as_bytes()),
            Asks::Help => answers.extend_from_slice(HELP.as_bytes()),
            Asks::Stats => write_statistics(answers, &counters.statistics()),
            Asks::InvalidValue(text) | Asks::IllegalArgument(text) => {
                Counters::count(&counters.puts);
                let counter = match other.asks {
                    Asks::InvalidValue(_) => &counters.invalid_values,
                    _ => &counters.illegal_arguments,
                };
                Counters::count(counter);
                answers.extend_from_slice(text.as_bytes());
            }
            Asks::Unknown(command) => {
                let text = format!("unknown command: {command}.  Try `help'.\n");
                answers.extend_from_slice(text.as_bytes());
            }
        }
    }
    for error in refused {
        answer_refused(answers, counters, points.get(error.index), &error.reason);
    }
}

fn answer_refused(
    answers: &mut Vec<u8>,
    counters: &Counters,
    point: Option<&NewPoint<'_>>,
    reason: &PointErrorReason,
) {
    let (metric, tags) = point.map_or(("", &[][..]), |point| (point.metric, point.tags));
    let (counter, text) = match Refusal::of(reason, tags) {
        Refusal::NoTags => (
            &counters.illegal_arguments,
            lines::illegal(point_text::no_tags(metric)),
        ),
        Refusal::Rule(text) => (&counters.illegal_arguments, lines::illegal(text)),
        Refusal::UnknownName { kind, name } => (
            &counters.unknown_metrics,
            format!("put: unknown metric: No such name for '{kind}': '{name}'\n"),
        ),
        Refusal::Storage(text) => (&counters.storage_errors, format!("put: HBase error: {text}\n")),
    };
    Counters::count(counter);
    answers.extend_from_slice(text.as_bytes());
}

/// Answers a write that failed as a whole.
pub(super) fn answer_failed(answers: &mut Vec<u8>, counters: &Counters, points: usize, error: &WriteError) {
    Counters::add(&counters.storage_errors, points);
    let words = match error {
        WriteError::Overloaded { .. } => "Please throttle writes",
        WriteError::Store(_) | WriteError::Uids(_) | WriteError::DeadlineExceeded => "HBase error",
    };
    let text = format!("put: {words}: {error} ({points} points are not known to be stored)\n");
    answers.extend_from_slice(text.as_bytes());
}

/// Answers a line of more than `max` bytes.
pub(super) fn answer_too_long(answers: &mut Vec<u8>, max: usize) {
    let text = format!("error: line is too long, at most {max} bytes are allowed; closing\n");
    answers.extend_from_slice(text.as_bytes());
}

fn version_text() -> String {
    format!(
        "oxtsdb {} built at revision {}\nSpeaks the protocol of OpenTSDB {}\n",
        build_info::VERSION,
        build_info::REVISION,
        build_info::OPENTSDB_VERSION,
    )
}

/// `tsd.rpc.received 1795250492 1 type=telnet host=vm`.
fn write_statistics(answers: &mut Vec<u8>, statistics: &[Statistic]) {
    let seconds = now_seconds();
    let host = build_info::host();
    for Statistic { name, tag, value } in statistics {
        let tag = tag
            .map(|(key, value)| format!(" {key}={value}"))
            .unwrap_or_default();
        let line = format!("{name} {seconds} {value}{tag} host={host}\n");
        answers.extend_from_slice(line.as_bytes());
    }
}
