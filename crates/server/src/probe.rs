//! Periodic health checks of a store.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::{ColumnSelection, DamagedRange, RowStore, StoreError, TableName};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{info, warn};

/// Checks whether a store can serve.
///
/// A check is [`check_health`](oxtsdb_row_store::StoreControl::check_health) and a read of one row: HBase's master may
/// respond while the server of a table's regions does not.
#[derive(Clone, Debug)]
pub struct StoreProbe {
    store: Arc<dyn RowStore>,
    table: TableName,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHealth {
    /// It serves reads and writes.
    Serves,
    /// It serves reads and rejects writes, because the disk is full. It counts as available: an operator has to free
    /// space, and no other server could accept the writes.
    RejectsWrites(StoreError),
    /// It cannot serve, does not respond in time, or its writes fail for another reason, although it may serve reads.
    Fails(StoreError),
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

    /// Checks once. Damage that the store has set aside ([`StoreProbe::damage`]) is healthy: it serves all other rows.
    pub async fn check(&self) -> StoreHealth {
        let check = async {
            let full = match self.store.check_health().await {
                Ok(()) => None,
                Err(error @ StoreError::Full { .. }) => Some(error),
                Err(error) => return StoreHealth::Fails(error),
            };
            let columns = ColumnSelection::default();
            match self.store.get(&self.table, ROW, &columns).await {
                // The row itself is damaged.
                Err(StoreError::Corrupt { .. }) if !self.store.damage().is_empty() => {}
                Err(error) => return StoreHealth::Fails(error),
                Ok(_) => {}
            }
            full.map_or(StoreHealth::Serves, StoreHealth::RejectsWrites)
        };
        let checked = tokio::time::timeout(CHECK_TIMEOUT, check).await;
        checked.unwrap_or_else(|_elapsed| {
            StoreHealth::Fails(StoreError::TimedOut {
                detail: format!("no response to a health check in {} s", CHECK_TIMEOUT.as_secs()),
            })
        })
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
            health: StoreHealth::Serves,
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
    health: StoreHealth,
}

impl Watch {
    /// Waits for a change and returns it: the store fails after two consecutive failed checks, and serves again with the
    /// next success. Another error is a change, too, and is not logged.
    pub(crate) async fn change(&mut self) -> &StoreHealth {
        loop {
            self.ticks.tick().await;
            let health = self.probe.check().await;
            if matches!(health, StoreHealth::Fails(_)) {
                self.failures = self.failures.saturating_add(1);
                if self.failures < MAX_FAILURES {
                    continue;
                }
            } else {
                self.failures = 0;
            }
            if health != self.health {
                log(self.probe.table(), &self.health, &health);
                self.health = health;
                return &self.health;
            }
        }
    }
}

/// Logs a change, unless only the error is another one: a store that tries again may name another file each time.
fn log(table: &TableName, before: &StoreHealth, now: &StoreHealth) {
    if std::mem::discriminant(before) == std::mem::discriminant(now) {
        return;
    }
    match now {
        StoreHealth::Serves => info!(%table, "the store serves again"),
        StoreHealth::RejectsWrites(error) => {
            warn!(%table, %error, "the store rejects writes and serves reads: health is SERVING");
        }
        StoreHealth::Fails(error) => {
            warn!(%table, %error, "the store cannot serve: health is NOT_SERVING until it can");
        }
    }
}

#[cfg(test)]
mod tests;
