//! The telnet door: OpenTSDB's line protocol, as collectd, tcollector and scripts speak it.
//!
//! A `put` that is stored is silent; only what goes wrong is answered. So that a client may send
//! as fast as it likes, all whole lines that one read brings are a batch, and the next ones are
//! read while it is being stored:
//!
//! ```text
//!   reading ─► window, UIDs, permit (one batch) ─► in flight (in order) ─► stored
//! ```
//!
//! A store that falls behind gets larger writes that way, where it brings them together by row. When
//! the lines in flight fill the window of the connection, or there is no permit for another batch of
//! all connections, or no memory in the ingest pool, reading stops: a slow store slows the client down,
//! through TCP.
//!
//! Answers come in the order of the lines, and speak for all lines before them: a batch with
//! anything to answer is stored once those before it have ended, and the next one is read after its
//! answers. So what is in flight is silent, unless it fails.
//!
//! While the store or the UID service is not to be had, a write is repeated for [`PATIENCE`] before
//! its points are given up, because no client of this protocol sends again. If it was in flight, what
//! is behind it is written again too, one batch after the other: of two values for one instant, the
//! later line's stays.
//!
//! Differences from OpenTSDB: a line over the limit is answered before the connection is closed;
//! a write that failed is answered once with the number of its points, not once for each; half a
//! line at the end of the input is not stored, as there.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.handleTelnetRpc`, `PutDataPointRpc.execute`,
//! `PipelineFactory` (lines of 1024 bytes).

mod answers;
mod in_flight;
mod lines;
mod session;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_server::Shutdown;
use oxtsdb_server::connections::{ClientStream, Connection};
use tokio::time::Instant;

use self::session::Session;
use crate::front::counters::Counters;
use crate::front::write_failure;
use crate::settings::DataSettings;
use crate::write::{NewPoint, PointError, PointErrorReason, WriteError, WriteOutcome, Writer};

/// How long points wait for a store or UID service that is not to be had.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before the first repetition; each following is twice as long, up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Bytes of lines that a connection may have in flight; the last batch may go over it.
const WINDOW_BYTES: usize = 4 << 20;

/// The telnet side of the data service. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Telnet {
    writer: Writer,
    counters: Arc<Counters>,
    max_line_bytes: usize,
    batch_points: usize,
    window_bytes: usize,
}

impl Telnet {
    pub(crate) fn new(writer: Writer, settings: &DataSettings, counters: Arc<Counters>) -> Telnet {
        Telnet {
            writer,
            counters,
            max_line_bytes: settings.telnet.telnet_max_line_bytes,
            batch_points: settings.telnet.telnet_batch_points,
            window_bytes: WINDOW_BYTES,
        }
    }

    /// The same with another window.
    #[cfg(test)]
    pub(crate) fn with_window(self, window_bytes: usize) -> Telnet {
        Telnet { window_bytes, ..self }
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(
        &self,
        stream: ClientStream,
        connection: &Connection,
        shutdown: Shutdown,
    ) -> std::io::Result<()> {
        Session::new(self, stream).run(&shutdown, connection).await
    }

    /// Writes, and writes again while what is missing may be stored later: all points if the write failed,
    /// else those whose series could not be resolved.
    async fn write(&self, points: &[NewPoint<'_>]) -> Result<WriteOutcome, WriteError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        let mut outcome = WriteOutcome::default();
        let mut missing: Cow<'_, [NewPoint<'_>]> = Cow::Borrowed(points);
        // Where the missing points stand among all; empty if these are missing.
        let mut places: Vec<usize> = Vec::new();
        loop {
            let written = self.writer.write(&missing, Some(deadline.into_std())).await;
            let is_last = Instant::now() + pause >= deadline;
            match written {
                Ok(written) => {
                    outcome.written += written.written;
                    let place = |index: usize| places.get(index).copied().unwrap_or(index);
                    let (again, failed): (Vec<PointError>, _) = written
                        .errors
                        .into_iter()
                        .map(|error| PointError {
                            index: place(error.index),
                            ..error
                        })
                        .partition(|error| error.reason.is_transient() && !is_last);
                    outcome.errors.extend(failed);
                    if again.is_empty() {
                        return Ok(outcome);
                    }
                    places = again.iter().map(|error| error.index).collect();
                    missing = places
                        .iter()
                        .filter_map(|place| points.get(*place).copied())
                        .collect();
                }
                Err(error) if outcome.written == 0 && (is_last || !write_failure::may_pass(&error)) => {
                    return Err(error);
                }
                Err(error) if is_last || !write_failure::may_pass(&error) => {
                    // A part is stored; the rest fails for the reason that its lookups had.
                    let reason = Arc::new(match error {
                        WriteError::Uids(error) => PointErrorReason::Unresolved(error),
                        error => return Err(error),
                    });
                    outcome.errors.extend(places.iter().map(|index| PointError {
                        index: *index,
                        reason: Arc::clone(&reason),
                    }));
                    return Ok(outcome);
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

#[cfg(test)]
mod tests;
