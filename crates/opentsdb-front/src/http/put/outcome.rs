//! The outcome of a request of `/api/put` and its siblings, and the response.
//!
//! Source: OpenTSDB 2.4, `PutDataPointRpc.processDataPoint`.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use http::StatusCode;
use oxtsdb_ingest::point_text::Rejection;
use oxtsdb_ingest::{
    AggregateError, Caller, Example, PointError, PointErrorReason, RejectionKind, WriteError, WriteOutcome,
};
use oxtsdb_server::metrics::Protocol;

use super::failure;
use crate::front::counters::Counters;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;

/// How long a request may wait for the store, unless `sync_timeout` is set.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The most errors that `details` lists. All are counted.
const MOST_DETAILS: usize = 10_000;

/// Bytes of a body that an example is made of.
const SHOWN_BYTES: usize = 1024;

/// The flags of the query string.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::http) struct Flags {
    pub(in crate::http) summary: bool,
    pub(in crate::http) details: bool,
    /// The limit of the wait if more than 0.
    pub(in crate::http) timeout_ms: Option<u64>,
}

/// The outcome of the points of a body.
#[derive(Debug, Default)]
pub(in crate::http) struct Outcome {
    pub(in crate::http) success: usize,
    pub(in crate::http) timeouts: usize,
    pub(in crate::http) failed: usize,
    /// The first failed points in the order of the body, with OpenTSDB's messages; only if requested.
    pub(in crate::http) details: Vec<(usize, String)>,
    /// The status, if a point failed that has no fault of its own.
    pub(in crate::http) failure: Option<StatusCode>,
}

/// OpenTSDB's message for an error that it did not expect.
pub(in crate::http) const UNEXPECTED: &str = "Unexpected exception";

/// A rule that a point of the body breaks, so that it is not passed to the writer; with OpenTSDB's message.
#[derive(Debug)]
pub(in crate::http) enum Violation {
    /// A value or timestamp is not one.
    InvalidValue(RejectionKind, String),
    /// Another rule.
    IllegalArgument(RejectionKind, String),
}

impl Violation {
    /// A rule with its message.
    pub(in crate::http) fn rule(kind: RejectionKind, text: &str) -> Self {
        Self::IllegalArgument(kind, text.to_owned())
    }

    /// A value is no number.
    pub(in crate::http) fn no_number() -> Self {
        let text = "Unable to parse value to a number";
        Self::InvalidValue(RejectionKind::Value, text.to_owned())
    }

    /// `null` in place of a point.
    pub(in crate::http) fn null() -> Self {
        let text = "Unexpected null datapoint encountered in set.";
        Self::rule(RejectionKind::Malformed, text)
    }
}

/// The batches of a body, and their outcome so far.
pub(in crate::http) struct Batches<'a> {
    counters: &'a Counters,
    caller: &'a Caller,
    flags: Flags,
    outcome: Outcome,
}

impl<'a> Batches<'a> {
    pub(in crate::http) fn new(counters: &'a Counters, caller: &'a Caller, flags: Flags) -> Self {
        Self {
            counters,
            caller,
            flags,
            outcome: Outcome::default(),
        }
    }

    /// Counts a point of the body that breaks a rule; `example` describes it with its error.
    pub(in crate::http) fn reject(
        &mut self,
        place: usize,
        violation: Violation,
        example: impl FnOnce(&str) -> Example,
    ) {
        let counters = self.counters;
        let (counter, kind, text) = match violation {
            Violation::InvalidValue(kind, text) => (&counters.invalid_values, kind, text),
            Violation::IllegalArgument(kind, text) => (&counters.illegal_arguments, kind, text),
        };
        counters.reject(self.caller, kind, || example(&text));
        self.fail(place, counter, text);
    }

    /// As [`Batches::reject`], by the error of the writer.
    pub(in crate::http) fn reject_point(
        &mut self,
        place: usize,
        reason: &PointErrorReason,
        tags: &[(&str, &str)],
        example: impl FnOnce(&str) -> Example,
    ) {
        let counters = self.counters;
        let (counter, text) = match Rejection::from_reason(reason, tags) {
            Rejection::NoTags => (&counters.illegal_arguments, "Missing tags".to_owned()),
            Rejection::Rule(text) => (&counters.illegal_arguments, text),
            Rejection::UnknownName { .. } => (&counters.unknown_metrics, "Unknown metric".to_owned()),
            Rejection::Storage(text) => (&counters.storage_errors, text),
        };
        self.outcome.failure = self.outcome.failure.or(failure::status_of_point(reason));
        counters.reject(self.caller, RejectionKind::from(reason), || example(&text));
        let text = match reason {
            // OpenTSDB has no message for it.
            PointErrorReason::InvalidRollup(AggregateError::NoSuchInterval { .. }) => UNEXPECTED.to_owned(),
            _ => text,
        };
        self.fail(place, counter, text);
    }

    fn fail(&mut self, place: usize, counter: &AtomicU64, text: String) {
        Counters::count(counter);
        self.outcome.failed += 1;
        if self.flags.details && self.outcome.details.len() < MOST_DETAILS {
            self.outcome.details.push((place, text));
        }
    }

    /// Whether an earlier batch has timed out; then the points of this one count as not confirmed.
    pub(in crate::http) fn skip(&mut self, points: usize) -> bool {
        let has_timed_out = self.outcome.timeouts > 0;
        if has_timed_out {
            self.outcome.timeouts += points;
        }
        has_timed_out
    }

    /// Counts the points of a batch by the result of its write. Returns the points' errors; none if the write has timed
    /// out.
    ///
    /// # Errors
    ///
    /// The write has failed for another reason.
    pub(in crate::http) fn end(
        &mut self,
        points: usize,
        written: Result<WriteOutcome, WriteError>,
    ) -> Result<Vec<PointError>, HttpError> {
        let ingest = self.counters.ingest(Protocol::Http);
        match written {
            Ok(WriteOutcome { errors, .. }) => {
                let stored = points - errors.len();
                self.outcome.success += stored;
                ingest.add_batch(stored as u64);
                Ok(errors)
            }
            Err(error) if self.flags.timeout_ms.is_some() && is_timeout(&error) => {
                self.outcome.timeouts = points;
                Ok(Vec::new())
            }
            Err(error) => {
                Counters::add(&self.counters.storage_errors, points);
                ingest.add_failed(points as u64);
                Err(failure(&error, self.outcome.success))
            }
        }
    }

    /// The outcome of all batches.
    pub(in crate::http) fn outcome(mut self) -> Outcome {
        self.outcome.details.sort_by_key(|(place, _)| *place);
        self.outcome
    }
}

impl Flags {
    /// Reads the flags.
    pub(in crate::http) fn parse(parameters: &Parameters) -> Result<Flags, HttpError> {
        let timeout_ms = match parameters.get("sync_timeout") {
            None => None,
            Some(text) => {
                let number: i32 = text.parse().map_err(|_| {
                    let message = "Unable to parse 'sync_timeout' as a number";
                    HttpError::bad_request(message)
                        .with_details(format!("`{text}` is no number of milliseconds"))
                })?;
                u64::try_from(number).ok().filter(|number| *number > 0)
            }
        };
        Ok(Flags {
            summary: parameters.has("summary"),
            details: parameters.has("details"),
            timeout_ms,
        })
    }

    /// When a wait for the store ends.
    pub(in crate::http) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout_ms.map_or(WRITE_TIMEOUT, Duration::from_millis)
    }
}

/// Describes a body without points that could be read, for the log.
pub(in crate::http) fn reject_body(counters: &Counters, caller: &Caller, error: &HttpError, body: &[u8]) {
    if !error.status.is_client_error() {
        return;
    }
    counters.reject_text(caller, || Example {
        reason: match &error.details {
            Some(details) => format!("{}: {details}", error.message),
            None => error.message.clone(),
        },
        point: String::from_utf8_lossy(body.get(..SHOWN_BYTES).unwrap_or(body)).into_owned(),
    });
}

/// Whether a write failed because it took too long.
fn is_timeout(error: &WriteError) -> bool {
    matches!(
        error,
        WriteError::DeadlineExceeded
            | WriteError::Overloaded { .. }
            | WriteError::Uids(oxtsdb_metadata::uids::UidsError::DeadlineExceeded)
    )
}

/// The error of a write that failed as a whole.
fn failure(error: &WriteError, stored: usize) -> HttpError {
    HttpError::new(failure::status_of_write(error), error.to_string())
        .with_details(format!(
            "{stored} points were stored before; sending all of them again is safe"
        ))
        .with_causes(error)
}

/// The response in the form that the flags request; `write_point` writes a point by its place in the body.
pub(in crate::http) fn reply(
    outcome: &Outcome,
    flags: Flags,
    write_point: impl Fn(&mut Vec<u8>, usize),
) -> Result<Reply, HttpError> {
    let Outcome {
        success,
        timeouts,
        failed,
        details,
        failure,
    } = outcome;
    let all_good = *failed == 0 && *timeouts == 0;
    let bad = failure.unwrap_or(StatusCode::BAD_REQUEST);
    if !flags.summary && !flags.details {
        if all_good {
            return Ok(Reply::empty());
        }
        let message = if *timeouts > 0 {
            format!(
                "The put call has timed out with {success} points stored, {failed} failed and \
                 {timeouts} not confirmed"
            )
        } else {
            "One or more data points had errors".to_owned()
        };
        return Err(HttpError::new(bad, message)
            .with_details("Please see the TSD logs or append \"details\" to the put request"));
    }
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(b"{\"success\":");
    json::write_integer(&mut out, *success);
    if flags.timeout_ms.is_some() {
        out.extend_from_slice(b",\"timeouts\":");
        json::write_integer(&mut out, *timeouts);
    }
    out.extend_from_slice(b",\"failed\":");
    json::write_integer(&mut out, *failed);
    if flags.details {
        out.extend_from_slice(b",\"errors\":[");
        for (number, (place, text)) in details.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"datapoint\":");
            write_point(&mut out, *place);
            out.extend_from_slice(b",\"error\":");
            json::write_string(&mut out, text);
            out.push(b'}');
        }
        out.push(b']');
    }
    out.push(b'}');
    let status = if all_good { StatusCode::OK } else { bad };
    Ok(Reply::json_with(status, out))
}
