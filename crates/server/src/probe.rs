//! Whether a store can serve, asked again and again.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::{ColumnSelection, DamagedRange, RowStore, StoreError, TableName};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{info, warn};

/// Asks a store whether it can serve.
///
/// The question is [`RowStore::check_health`], then a read of one row: HBase's master may answer
/// while the server of a table's regions does not.
#[derive(Clone, Debug)]
pub struct StoreProbe {
    store: Arc<dyn RowStore>,
    table: TableName,
}

/// How often it asks.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long an answer may take. Requests may wait longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Failures in a row that count: one alone may be a queue that was full for a moment.
const FAILURES: u32 = 2;

/// A row of each of our tables, mostly one that is not there.
const ROW: &[u8] = &[0];

impl StoreProbe {
    /// A probe that reads from `table`.
    pub fn new(store: Arc<dyn RowStore>, table: TableName) -> Self {
        Self { store, table }
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// The store cannot serve, or does not answer within 3 seconds. A full disk is no reason: what is
    /// stored can be read, and writers get an error. Nor is damage that the store has set aside
    /// ([`StoreProbe::damage`]): it serves all else.
    pub async fn check(&self) -> Result<(), StoreError> {
        let question = async {
            match self.store.check_health().await {
                Ok(()) | Err(StoreError::Full { .. }) => {}
                Err(error) => return Err(error),
            }
            let columns = ColumnSelection::default();
            match self.store.get(&self.table, ROW, &columns).await {
                // The row itself is among the damaged ones.
                Err(StoreError::Corrupt { .. }) if !self.store.damage().is_empty() => Ok(()),
                read => read.map(drop),
            }
        };
        match tokio::time::timeout(PATIENCE, question).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(StoreError::TimedOut {
                detail: format!("no answer to a health check in {} s", PATIENCE.as_secs()),
            }),
        }
    }

    /// The damage that the store has set aside: it serves, without these rows.
    pub fn damage(&self) -> Vec<DamagedRange> {
        self.store.damage()
    }

    /// Asks every second from now on.
    pub(crate) fn watch(self) -> Watch {
        let mut ticks = tokio::time::interval(INTERVAL);
        // What one answer took too long for does not have to be made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Watch {
            probe: self,
            ticks,
            failures: 0,
        }
    }
}

/// A probe that asks again and again. It begins with a store that serves.
#[derive(Debug)]
pub(crate) struct Watch {
    probe: StoreProbe,
    ticks: Interval,
    /// In a row.
    failures: u32,
}

impl Watch {
    /// Waits until that changes, and says whether the store serves: not any more after two failures
    /// in a row, again with the first success after that.
    pub(crate) async fn change(&mut self) -> bool {
        loop {
            self.ticks.tick().await;
            match self.probe.check().await {
                Ok(()) => {
                    if std::mem::take(&mut self.failures) >= FAILURES {
                        info!("the store serves again");
                        return true;
                    }
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    if self.failures == FAILURES {
                        warn!(%error, "the store cannot serve: health is NOT_SERVING until it can");
                        return false;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
