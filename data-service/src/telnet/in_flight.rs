//! The batches of a connection that are being stored, in their order.

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesOrdered;

use oxtsdb_resources::Reservation;

use crate::front::write_failure;
use crate::write::WriteError;

/// What a batch takes beside its lines, in bytes, so that many small ones fill a window too.
const BATCH_BYTES: usize = 1024;

/// A batch that is being stored.
#[derive(Debug)]
struct Batch {
    /// Its lines, in case it has to be stored again. All of them are points.
    text: Box<str>,
    points: usize,
    /// Of the text.
    memory: Reservation,
}

/// How a batch ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// So many points are stored.
    Stored(usize),
    /// So many points are not known to be stored, and never will be.
    Failed(usize, WriteError),
    /// It is among those to store again.
    Again,
}

/// Batches that are being stored, and the lines of those that have to be stored again.
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
        text: &str,
        points: usize,
        memory: Reservation,
        stored: BoxFuture<'static, Result<(), WriteError>>,
    ) {
        self.bytes += Self::bytes_of(text);
        let text = text.into();
        let storing = async move {
            let stored = stored.await;
            let batch = Batch { text, points, memory };
            (batch, stored)
        };
        self.batches.push_back(storing.boxed());
    }

    /// Waits until the first batch has ended; `None` if there is none. Nothing is lost when this is
    /// dropped.
    ///
    /// Behind a failure that may pass, all batches are to be stored again, also those that are stored:
    /// of two points of one instant the later one has to be stored last.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        let (Batch { text, points, memory }, stored) = self.batches.next().await?;
        self.bytes -= Self::bytes_of(&text);
        Some(match stored {
            Ok(()) if !self.has_again() => Ended::Stored(points),
            Err(error) if !self.has_again() && !write_failure::may_pass(&error) => {
                Ended::Failed(points, error)
            }
            _ => {
                self.again.push_str(&text);
                match &mut self.again_memory {
                    Some(held) => held.merge(memory),
                    None => self.again_memory = Some(memory),
                }
                Ended::Again
            }
        })
    }

    /// Whether there are lines to store again.
    pub(super) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Takes the lines to store again, in their order, and their memory. No batch may be under way any more.
    pub(super) fn take_again(&mut self) -> (String, Option<Reservation>) {
        (std::mem::take(&mut self.again), self.again_memory.take())
    }
}
