//! Data of the kinds that have an endpoint of their own beside `/api/put`: histograms, rollups and pre-aggregates.
//!
//! ```text
//!   body ─► parsed ─► checked ─► batches ─► writer ─► response, with the flags of `/api/put`
//!           └ by each kind ┘                └ by each kind
//! ```
//!
//! Data are independent: the valid ones of a body are stored even if others are rejected, and the server responds when
//! they are durable.

use std::time::Instant;

use futures::future::BoxFuture;
use oxtsdb_ingest::{Caller, Example, WriteError, WriteOutcome};

use crate::front::counters::Counters;
use crate::http::error::HttpError;
use crate::http::put::outcome::{Batches, Flags, Violation, reply};
use crate::http::reply::Reply;

/// A kind of data that bodies have.
pub(super) trait DatumKind {
    /// A datum as it was sent.
    type Sent;
    /// A datum that breaks no rule.
    type Checked<'s>: Send + Sync
    where
        Self::Sent: 's;

    /// Data in one call of the writer.
    const BATCH: usize;

    /// Checks a datum in OpenTSDB's order.
    fn check<'s>(&self, sent: &'s Self::Sent) -> Result<Self::Checked<'s>, Violation>;

    /// The tags of a datum.
    fn tags<'c>(checked: &'c Self::Checked<'_>) -> &'c [(&'c str, &'c str)];

    /// Writes data; their errors are by index.
    fn write<'b>(
        &'b self,
        data: &'b [Self::Checked<'_>],
        deadline: Instant,
    ) -> BoxFuture<'b, Result<WriteOutcome, WriteError>>;

    /// Appends the JSON of a datum, for its error.
    fn write_json(sent: &Self::Sent, out: &mut Vec<u8>);
}

/// Checks the data of a body, and writes the valid ones in batches. `None` is a `null` of the body.
///
/// # Errors
///
/// The write of a batch has failed as a whole, or, without the flags `summary` and `details`, of a datum.
pub(super) async fn store<K: DatumKind>(
    kind: &K,
    sent: &[Option<K::Sent>],
    (counters, caller): (&Counters, &Caller),
    flags: Flags,
) -> Result<Reply, HttpError> {
    let deadline = flags.deadline();
    let mut batches = Batches::new(counters, caller, flags);
    let datum = |place: usize| sent.get(place).and_then(Option::as_ref);
    for first in (0..sent.len()).step_by(K::BATCH) {
        let end = sent.len().min(first + K::BATCH);
        let mut places = Vec::with_capacity(end - first);
        let mut good = Vec::with_capacity(end - first);
        for place in first..end {
            match datum(place).map_or_else(|| Err(Violation::null()), |datum| kind.check(datum)) {
                Ok(checked) => {
                    places.push(place);
                    good.push(checked);
                }
                Err(violation) => {
                    batches.reject(place, violation, |text| example::<K>(text, datum(place)));
                }
            }
        }
        if batches.skip(good.len()) {
            continue;
        }
        let written = kind.write(&good, deadline).await;
        for error in batches.end(good.len(), written)? {
            let (Some(place), Some(checked)) = (places.get(error.index), good.get(error.index)) else {
                continue;
            };
            batches.reject_point(*place, &error.reason, K::tags(checked), |text| {
                example::<K>(text, datum(*place))
            });
        }
    }
    reply(&batches.outcome(), flags, |out, place| {
        write_json::<K>(datum(place), out);
    })
}

/// A rejected datum for the log.
fn example<K: DatumKind>(reason: &str, sent: Option<&K::Sent>) -> Example {
    let mut json = Vec::new();
    write_json::<K>(sent, &mut json);
    Example {
        reason: reason.to_owned(),
        point: String::from_utf8_lossy(&json).into_owned(),
    }
}

fn write_json<K: DatumKind>(sent: Option<&K::Sent>, out: &mut Vec<u8>) {
    match sent {
        Some(sent) => K::write_json(sent, out),
        None => out.extend_from_slice(b"null"),
    }
}
