//! Sends the frames of a query to the protocol.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_schema::Annotation;
use tokio::sync::mpsc;

use crate::context::admission::{Admitted, PAUSE_AFTER};
use crate::context::budget::Held;
use crate::error::QueryError;
use crate::exec::encoded::ResultForm;
use crate::exec::frame::{Delivery, Frame};
use crate::exec::statistics::Statistics;
use crate::exec::totals::QueryTotals;

/// The channel to the protocol.
pub(super) type FrameSender = mpsc::Sender<Result<Delivery, QueryError>>;

/// Sends frames, and counts the reads and the sent results of the query.
pub(crate) struct FrameOutput<'a> {
    frames: &'a FrameSender,
    admitted: &'a mut Admitted,
    totals: &'a QueryTotals,
    /// Counts of reads and sent results so far.
    pub(crate) statistics: Statistics,
    /// Groups of all sub-queries so far.
    pub(crate) groups: usize,
    /// The form of results that the protocol receives.
    pub(crate) form: ResultForm,
    /// Global annotations, for groups that are encoded, with their memory.
    pub(crate) global: Option<(Arc<[Arc<Annotation>]>, Held)>,
}

impl<'a> FrameOutput<'a> {
    /// An output that has sent no frames yet.
    pub(super) fn new(
        frames: &'a FrameSender,
        admitted: &'a mut Admitted,
        form: ResultForm,
        totals: &'a QueryTotals,
    ) -> Self {
        Self {
            frames,
            admitted,
            totals,
            statistics: Statistics::default(),
            groups: 0,
            form,
            global: None,
        }
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, frame: Frame) -> Result<(), QueryError> {
        self.send_held(frame, None).await
    }

    /// Sends a frame, with memory that is held for a part of it already. The memory stays held until the protocol has
    /// encoded the frame. While the client reads no frames, the query releases its permit to other queries. A client
    /// that disconnects is noticed elsewhere, and cancels the query.
    pub(crate) async fn send_held(&mut self, frame: Frame, held: Option<Held>) -> Result<(), QueryError> {
        let mut held = match held {
            Some(held) => held,
            None => self.admitted.budget().hold(0)?,
        };
        held.grow(frame.held_bytes().saturating_sub(held.bytes()))?;
        let delivery = Ok(Delivery { frame, held });
        let begun = Instant::now();
        let capacity = match tokio::time::timeout(PAUSE_AFTER, self.frames.reserve()).await {
            Ok(capacity) => capacity,
            Err(_elapsed) => {
                self.admitted.pause();
                let capacity = self.frames.reserve().await;
                self.admitted.resume().await;
                capacity
            }
        };
        self.totals.client.observe_since(begun);
        if let Ok(capacity) = capacity {
            self.admitted.note_sent();
            capacity.send(delivery);
        }
        Ok(())
    }
}
