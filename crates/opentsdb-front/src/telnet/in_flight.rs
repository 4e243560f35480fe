//! The batches of a connection that are being stored, in the order of their lines.

use std::time::Instant;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesOrdered;
use oxtsdb_ingest::WriteError;
use oxtsdb_resources::Reservation;

/// Bytes that a batch counts for beside its lines, so that many small batches fill a window too.
const BATCH_BYTES: usize = 1024;

/// A batch that is being stored.
#[derive(Debug)]
pub(super) struct Batch {
    /// Its lines, to store them again. All of them are points.
    text: Box<str>,
    points: usize,
    /// Covers the text.
    memory: Reservation,
    begun: Instant,
}

/// The result of a batch.
#[derive(Debug)]
pub(super) enum BatchResult {
    /// This number of points is stored, of a batch that was begun then.
    Stored(usize, Instant),
    /// This number of points is not known to be stored, and a retry does not help.
    Failed(usize, WriteError),
    /// The batch has to be stored again.
    StoreAgain,
}

/// Batches that are being stored, and the lines of batches that have to be stored again.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    batches: FuturesOrdered<BoxFuture<'static, (Batch, Result<(), WriteError>)>>,
    bytes: usize,
    again: String,
    again_memory: Option<Reservation>,
}

impl InFlight {
    /// Bytes that a batch of these lines counts for.
    pub(super) fn bytes_of(text: &str) -> usize {
        text.len() + BATCH_BYTES
    }

    /// Bytes of all batches that are being stored.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds a batch behind the others. Batches are polled first in the order in which they are added.
    pub(super) fn push(
        &mut self,
        (text, points): (&str, usize),
        memory: Reservation,
        begun: Instant,
        stored: BoxFuture<'static, Result<(), WriteError>>,
    ) {
        self.bytes += Self::bytes_of(text);
        let text = text.into();
        let storing = async move {
            let stored = stored.await;
            let batch = Batch {
                text,
                points,
                memory,
                begun,
            };
            (batch, stored)
        };
        self.batches.push_back(storing.boxed());
    }

    /// Waits for the result of the first batch; `None` if there is none. Cancel-safe.
    ///
    /// Behind a transient failure, all batches have to be stored again, also those that are stored: of two points
    /// with one timestamp the later has to be stored last.
    pub(super) async fn next(&mut self) -> Option<BatchResult> {
        let (batch, stored) = self.batches.next().await?;
        let Batch {
            text,
            points,
            memory,
            begun,
        } = batch;
        self.bytes -= Self::bytes_of(&text);
        Some(match stored {
            Ok(()) if !self.has_again() => BatchResult::Stored(points, begun),
            Err(error) if !self.has_again() && !error.is_transient() => BatchResult::Failed(points, error),
            _ => {
                self.again.push_str(&text);
                match &mut self.again_memory {
                    Some(held) => held.merge(memory),
                    None => self.again_memory = Some(memory),
                }
                BatchResult::StoreAgain
            }
        })
    }

    /// Whether lines have to be stored again.
    pub(super) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Takes the lines to store again, in their order, and their memory. No batch may be in flight.
    pub(super) fn take_again(&mut self) -> (String, Option<Reservation>) {
        (std::mem::take(&mut self.again), self.again_memory.take())
    }
}
