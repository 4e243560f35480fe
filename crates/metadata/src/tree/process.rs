//! Places new series in the background (`tsd.core.tree.enable_processing`).
//!
//! Series wait in the bounded queue of their announcements; those beyond are lost and counted there. A batch that
//! fails for a transient reason is repeated with growing pauses for a limited time, and then lost. A pass over all
//! series ([`super::sync`]) places what was lost.

use std::time::{Duration, Instant};

use oxtsdb_schema::Tsuid;
use oxtsdb_server::Shutdown;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::Trees;
use super::error::TreeError;
use super::place::PlaceCounts;

/// Announcements that wait at most.
pub const QUEUE_SERIES: usize = 65_536;

/// Series that are placed at a time.
const BATCH_SERIES: usize = 512;

/// The first pause after a failure; each is twice as long as the one before, up to a limit.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a batch is repeated.
const PATIENCE: Duration = Duration::from_secs(60);

impl Trees {
    /// Places series until the sender of their announcements is dropped or the program drains.
    pub async fn process<T>(
        self,
        mut new: mpsc::Receiver<T>,
        tsuid: impl Fn(T) -> Tsuid + Send,
        shutdown: Shutdown,
    ) where
        T: Send,
    {
        loop {
            let mut batch = Vec::with_capacity(BATCH_SERIES);
            let received = tokio::select! {
                received = new.recv_many(&mut batch, BATCH_SERIES) => received,
                () = shutdown.draining() => return,
            };
            if received == 0 {
                return;
            }
            let series: Vec<Tsuid> = batch.into_iter().map(&tsuid).collect();
            tokio::select! {
                () = self.place_patiently(&series) => {}
                () = shutdown.draining() => return,
            }
        }
    }

    /// Places series in the enabled trees; repeats it while that may help.
    async fn place_patiently(&self, series: &[Tsuid]) {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.place_in_enabled(series).await {
                Ok(counts) => {
                    debug!(series = series.len(), ?counts, "new series were placed in trees");
                    return;
                }
                Err(error) => error,
            };
            if !error.is_transient() || begun.elapsed() > PATIENCE {
                let series = series.len();
                warn!(series, %error, "new series are in no tree; run `tsdb uid treesync`");
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Places series in the enabled trees, and counts the outcomes over all trees.
    ///
    /// # Errors
    ///
    /// If a table cannot be read or written, or the UID service fails. Some series may have been placed; placing them
    /// again is safe.
    pub async fn place_in_enabled(&self, series: &[Tsuid]) -> Result<PlaceCounts, TreeError> {
        let trees = self.enabled().await?;
        if trees.is_empty() {
            return Ok(PlaceCounts::default());
        }
        Ok(self.place_series(&trees, series).await?.0)
    }
}
