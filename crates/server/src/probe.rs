//! Periodic health checks of a store.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::{ColumnSelection, DamagedRange, RowStore, StoreError, TableName};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{info, warn};

/// Checks whether a store can serve.
///
/// A check is [`RowStore::check_health`] and a read of one row: HBase's master may respond while the server of
/// a table's regions does not.
#[derive(Clone, Debug)]
pub struct StoreProbe {
    store: Arc<dyn RowStore>,
    table: TableName,
}

/// Time between checks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time-out of a check. Requests may wait longer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Consecutive failures until the store counts as unavailable: a single one may be a full queue.
const MAX_FAILURES: u32 = 2;

/// A row key that is valid in every table; the row need not exist.
const ROW: &[u8] = &[0];

impl StoreProbe {
    /// A probe that reads from `table`.
    pub fn new(store: Arc<dyn RowStore>, table: TableName) -> Self {
        Self { store, table }
    }

    /// Checks once.
    ///
    /// # Errors
    ///
    /// The store cannot serve, or does not respond within 3 seconds. A full disk is not an error: stored rows
    /// can be read, and writers get an error. Neither is damage that the store has set aside
    /// ([`StoreProbe::damage`]): it serves all other rows.
    pub async fn check(&self) -> Result<(), StoreError> {
        let check = async {
            match self.store.check_health().await {
                Ok(()) | Err(StoreError::Full { .. }) => {}
                Err(error) => return Err(error),
            }
            let columns = ColumnSelection::default();
            match self.store.get(&self.table, ROW, &columns).await {
                // The row itself is damaged.
                Err(StoreError::Corrupt { .. }) if !self.store.damage().is_empty() => Ok(()),
                read => read.map(drop),
            }
        };
        match tokio::time::timeout(CHECK_TIMEOUT, check).await {
            Ok(checked) => checked,
            Err(_elapsed) => Err(StoreError::TimedOut {
                detail: format!("no response to a health check in {} s", CHECK_TIMEOUT.as_secs()),
            }),
        }
    }

    /// The table that it reads from.
    pub(crate) fn table(&self) -> &TableName {
        &self.table
    }

    /// Damaged rows that the store has set aside; it serves all others.
    pub fn damage(&self) -> Vec<DamagedRange> {
        self.store.damage()
    }

    /// Starts to check every second.
    pub(crate) fn watch(self) -> Watch {
        let mut ticks = tokio::time::interval(INTERVAL);
        // Checks that a slow one delayed are skipped.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Watch {
            probe: self,
            ticks,
            failures: 0,
        }
    }
}

/// A probe that checks periodically. It starts with a healthy store.
#[derive(Debug)]
pub(crate) struct Watch {
    probe: StoreProbe,
    ticks: Interval,
    /// Consecutive failures.
    failures: u32,
}

impl Watch {
    /// Waits for a change and returns whether the store can serve: not after two consecutive failures, again
    /// with the next success.
    pub(crate) async fn change(&mut self) -> bool {
        loop {
            self.ticks.tick().await;
            match self.probe.check().await {
                Ok(()) => {
                    if std::mem::take(&mut self.failures) >= MAX_FAILURES {
                        info!("the store serves again");
                        return true;
                    }
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    if self.failures == MAX_FAILURES {
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
