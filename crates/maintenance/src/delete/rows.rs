//! Deletes points in rows: HBase's, and the cells of the embedded store that are not in its points.

use std::time::Duration;

use oxtsdb_point_store::TimeRange;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, Row, RowStore, StoreError, TableName, WriteBatch,
};
use oxtsdb_schema::RowKeyLayout;

use super::row::{RECENT_MS, RowDelete};
use crate::row_rewrite::{FAMILY, RowRewrite, rewrite};

/// How often a row is tried whose cells change meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// The wait for recent rows.
const RECENT: Duration = Duration::from_millis(RECENT_MS.unsigned_abs());

/// A table of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) store: &'a dyn RowStore,
    pub(super) table: &'a TableName,
    pub(super) layout: &'a RowKeyLayout,
    pub(super) range: TimeRange,
}

/// The changes of a row, by its key.
pub(super) type KeyedDelete = (Vec<u8>, RowDelete);

impl Rows<'_> {
    /// The changes of rows that have points in the range.
    pub(super) fn plan(layout: &RowKeyLayout, range: TimeRange, rows: &[Row]) -> Vec<KeyedDelete> {
        let now_ms = now_ms();
        let plan = |row: &Row| RowDelete::plan(row, range, layout, now_ms, None);
        rows.iter()
            .filter_map(|row| Some((row.key().to_vec(), plan(row)?)))
            .filter(|(_, plan)| !plan.is_empty() || plan.damaged > 0)
            .collect()
    }

    /// Applies changes, and returns how many rows still have points in the range, because other writers changed them
    /// each time.
    ///
    /// # Errors
    ///
    /// Those of the store. Repeating the delete completes it.
    pub(super) async fn apply(&self, mut rows: Vec<KeyedDelete>) -> Result<u64, StoreError> {
        for attempt in 1.. {
            self.change(&rows).await?;
            if rows.iter().any(|(_, plan)| plan.is_recent) {
                tokio::time::sleep(RECENT).await;
            }
            let unsure = rows.into_iter().filter(|(_, plan)| plan.needs_check());
            let keys: Vec<Vec<u8>> = unsure.map(|(key, _)| key).collect();
            if keys.is_empty() {
                return Ok(0);
            }
            let family = ColumnSelection::Family(FAMILY.to_owned());
            let found = self.store.get_rows(self.table, &keys, &family, None).await?;
            // A replacing cell may be hidden by an older delete of its column.
            let now_ms = now_ms();
            rows = found
                .iter()
                .flatten()
                .filter_map(|row| {
                    let plan = RowDelete::plan(row, self.range, self.layout, now_ms, Some(now_ms))?;
                    Some((row.key().to_vec(), plan))
                })
                .filter(|(_, plan)| !plan.is_empty())
                .collect();
            if rows.is_empty() || attempt == MAX_ATTEMPTS {
                break;
            }
        }
        Ok(rows.len() as u64)
    }

    async fn change(&self, rows: &[KeyedDelete]) -> Result<(), StoreError> {
        let mut deletes = WriteBatch::new(self.table.clone());
        let family = deletes.family(FAMILY);
        for (key, plan) in rows.iter().filter(|(_, plan)| !plan.removed.is_empty()) {
            deletes.row(key);
            for removal in &plan.removed {
                deletes.delete_column_up_to(family, &removal.qualifier, removal.up_to_ms);
            }
        }
        if !deletes.is_empty() {
            self.store.write(deletes).await?;
        }
        // A rewrite takes a row once.
        let most = rows.iter().map(|(_, plan)| plan.replaced.len()).max();
        for index in 0..most.unwrap_or(0) {
            let nth = rows.iter().filter_map(|(key, plan)| {
                let (cells, removal) = plan.replaced.get(index)?.clone();
                Some(RowRewrite {
                    row_key: key.clone(),
                    cells,
                    remove: vec![removal],
                })
            });
            let rewrites: Vec<RowRewrite> = nth.collect();
            rewrite(self.store, self.table, &rewrites).await?;
        }
        for (key, plan) in rows {
            let Some(appended) = &plan.appended else { continue };
            let condition = Condition {
                cell: CellAddress::new(key.clone(), FAMILY, appended.qualifier.clone()),
                expected: Some(appended.before.clone()),
            };
            self.store
                .check_and_put(self.table, &condition, &appended.after)
                .await?;
        }
        Ok(())
    }
}
