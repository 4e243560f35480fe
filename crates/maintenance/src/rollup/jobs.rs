//! The standing job that builds rollups (`--rollup-jobs`).
//!
//! ```text
//!            position           end = clock - delay
//!   ───────────┼──────────────────┼──────► time
//!        └─ look-back ────────────┘          built again each time: late points change what they are in
//!   └──────────┴── and at least this, after a pause of the server
//! ```
//!
//! Each pass builds the whole intervals up to its end from the look-back or the position of the last pass on, whichever
//! is earlier, begun at a multiple of the longest interval. Points that cannot be read are left out, with the intervals that
//! they are in; they are counted and logged, and all others are built. A build writes only what has changed, so passes of several
//! servers and passes without a position are harmless. The position is a row of a table of its own, which OpenTSDB does
//! not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use oxtsdb_data_settings::JobRules;
use oxtsdb_query::RequestContext;
use oxtsdb_row_store::{CellAddress, ColumnSelection, RowStore, StoreError, TableDef, TableName, WriteBatch};
use oxtsdb_server::Shutdown;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::build::{BuildError, BuildProgress, BuildRequest, RollupBuilder};

/// The family of the position.
const FAMILY: &str = "s";

/// The row and the column of the position: seconds, 4 bytes.
const ROW: &[u8] = b"position";
const COLUMN: &[u8] = b"until";

/// The pause after a pass that failed.
const RETRY: Duration = Duration::from_secs(60);

/// The job.
#[derive(Debug)]
pub struct RollupJobs {
    builder: RollupBuilder,
    store: Arc<dyn RowStore>,
    table: TableName,
    rules: JobRules,
}

/// The table of the position.
pub fn state_table(table: TableName) -> TableDef {
    TableDef::new(table, &[FAMILY])
}

impl RollupJobs {
    /// Creates a job that keeps its position in `table`, which has the shape of [`state_table`].
    pub const fn new(
        builder: RollupBuilder,
        store: Arc<dyn RowStore>,
        table: TableName,
        rules: JobRules,
    ) -> Self {
        Self {
            builder,
            store,
            table,
            rules,
        }
    }

    /// Runs passes until the server drains.
    pub async fn run(self, shutdown: Shutdown) {
        let work = async {
            loop {
                let pause = match self.pass(SystemTime::now()).await {
                    Ok(Some(built)) => {
                        let cells = built.cells;
                        info!(
                            points = built.points,
                            written = cells.written,
                            unchanged = cells.unchanged,
                            removed = cells.removed,
                            "built rollups"
                        );
                        self.rules.every
                    }
                    Ok(None) => self.rules.every,
                    Err(BuildError::Draining) => return,
                    Err(error) => {
                        warn!(%error, "rollups are not built; the next pass builds them");
                        self.rules.every.min(RETRY)
                    }
                };
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.draining() => {}
        }
    }

    /// One pass; `None`: there is nothing to build.
    pub(crate) async fn pass(&self, now: SystemTime) -> Result<Option<BuildProgress>, BuildError> {
        let seconds = |duration: Duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, seconds);
        let until = now.saturating_sub(seconds(self.rules.delay));
        let position = self.position().await?;
        let back = until.saturating_sub(seconds(self.rules.look_back));
        let longest = self.builder.longest_interval()?;
        let from = position.map_or(back, |position| position.min(back));
        let from = from - from % longest;
        if from >= until {
            return Ok(None);
        }
        let request = BuildRequest {
            metric: None,
            range_ms: (i64::from(from) * 1000, i64::from(until) * 1000),
            intervals: Vec::new(),
            position: None,
            skips_unreadable: true,
        };
        let (sender, mut receiver) = mpsc::channel::<BuildProgress>(1);
        let progress = async {
            while let Some(step) = receiver.recv().await {
                debug!(metric = %step.metric, points = step.points, "building rollups");
            }
        };
        let build = async {
            let built = self
                .builder
                .build(request, RequestContext::local(None), &sender)
                .await;
            // Ends the progress.
            drop(sender);
            built
        };
        let (built, ()) = tokio::join!(build, progress);
        let built = built?;
        if let Some(first) = &built.skipped.first {
            let skipped = built.skipped.count;
            self.builder
                .shared()
                .skipped
                .fetch_add(skipped, Ordering::Relaxed);
            warn!(
                skipped, %first,
                "points that cannot be read are in no rollups; after a repair, `tsdb rollup` builds their intervals"
            );
        }
        self.set_position(until).await?;
        Ok(Some(built))
    }

    /// Up to where the last pass has built, in seconds.
    async fn position(&self) -> Result<Option<u32>, StoreError> {
        let cell = CellAddress::new(ROW, FAMILY, COLUMN);
        let columns = ColumnSelection::Columns(vec![(cell.family.clone(), cell.qualifier.clone())]);
        let row = self.store.get(&self.table, ROW, &columns).await?;
        let value = row.as_ref().and_then(|row| row.get(FAMILY, COLUMN));
        // Other bytes are not ours: as without a position.
        Ok(value
            .and_then(|cell| cell.value.try_into().ok())
            .map(u32::from_be_bytes))
    }

    async fn set_position(&self, seconds: u32) -> Result<(), StoreError> {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        batch.row(ROW).put(family, COLUMN, &seconds.to_be_bytes());
        self.store.write(batch).await
    }
}

#[cfg(test)]
mod tests;
