//! Writes windows as cells of the rollup tables.
//!
//! The width and the type of a value are part of a cell's qualifier, so a value that changes may need another cell. The
//! rows are therefore read first: equal cells are left alone, and after a new cell is put, older forms of the same
//! interval and aggregate are deleted, in one mutation of the row: a build deletes only what it replaces, so that two
//! builds at once, of two servers, leave a value. A second build of the same points writes nothing.
//!
//! Rollups that were lost to damage are written again.
//!
//! Intervals without points keep their cells, since points may have been deleted on purpose after they were rolled up.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{ColumnSelection, DamageLog, Row, RowStore, StoreError, WriteBatch};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::rollup::{self, Aggregate, RollupCell};

use super::BuildError;
use super::plan::{BuildPlan, BuiltRow, Target};

/// Rows that are read together.
const READ_ROWS: usize = 1000;

/// Bytes of rows that are read together, roughly.
const READ_BYTES: usize = 8 << 20;

/// Bytes of a stored cell in memory, roughly.
const CELL_BYTES: usize = 48;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenCells {
    /// New cells, and cells with other values than before.
    pub written: u64,
    /// Cells that had their values already.
    pub unchanged: u64,
    /// Cells of another width or type that were replaced.
    pub removed: u64,
}

impl WrittenCells {
    pub(crate) const fn add(&mut self, other: Self) {
        self.written += other.written;
        self.unchanged += other.unchanged;
        self.removed += other.removed;
    }
}

/// Writes rows; they are durable when this returns.
pub(super) async fn write(
    store: &dyn RowStore,
    compute: &ComputePool,
    plan: &Arc<BuildPlan>,
    mut rows: Vec<BuiltRow>,
) -> Result<WrittenCells, BuildError> {
    rows.sort_by(|one, other| (one.target, &one.key).cmp(&(other.target, &other.key)));
    rows.dedup_by(|next, kept| {
        let is_same = (next.target, &next.key) == (kept.target, &kept.key);
        if is_same {
            kept.windows.append(&mut next.windows);
        }
        is_same
    });
    let columns = ColumnSelection::Family(String::from_utf8_lossy(FAMILY).into_owned());
    let mut written = WrittenCells::default();
    let mut rows = rows.into_iter().peekable();
    while let Some(index) = rows.peek().map(|row| row.target) {
        let Some(target) = plan.targets.get(index) else {
            break;
        };
        let cells = usize::from(target.interval.intervals()) * target.ids.len();
        let most = (READ_BYTES / (cells * CELL_BYTES)).clamp(1, READ_ROWS);
        let mut chunk = Vec::with_capacity(most);
        while chunk.len() < most
            && let Some(row) = rows.next_if(|row| row.target == index)
        {
            chunk.push(row);
        }
        let keys: Vec<Vec<u8>> = chunk.iter().map(|row| row.key.clone()).collect();
        let damage = DamageLog::default();
        let stored = store.get_rows(&target.table, &keys, &columns, Some(&damage));
        let stored = stored.await?;
        let plan = Arc::clone(plan);
        let edited = compute.run(move || {
            let target = plan.targets.get(index)?;
            Some(edit(target, &chunk, &stored))
        });
        let edited = edited
            .await
            .map_err(|panicked| BuildError::Internal(panicked.to_string()))?;
        let Some((batch, cells)) = edited else {
            break;
        };
        written.add(cells);
        if !batch.is_empty() {
            store.write(batch).await?;
        }
    }
    Ok(written)
}

/// The mutations that give rows their values.
fn edit(target: &Target, rows: &[BuiltRow], stored: &[Option<Row>]) -> (WriteBatch, WrittenCells) {
    let mut batch = WriteBatch::new(target.table.clone());
    let family = batch.family(&String::from_utf8_lossy(FAMILY));
    let mut cells = WrittenCells::default();
    let nothing = None;
    for (row, stored) in rows.iter().zip(stored.iter().chain(std::iter::repeat(&nothing))) {
        let old = OldCells::of(stored.as_ref(), target);
        let mut has_row = false;
        for (name, id) in &target.ids {
            for (offset, window) in &row.windows {
                let Some(value) = window.value(name) else {
                    continue;
                };
                let (qualifier, bytes) = (rollup::qualifier(*id, *offset, &value), value.encoded());
                let forms = old.at(*id, *offset);
                let is_stored =
                    |form: &OldCell<'_>| form.qualifier == qualifier && form.value == bytes.as_bytes();
                let is_unchanged = forms.iter().any(is_stored);
                let mut others = forms.iter().filter(|form| form.qualifier != qualifier).peekable();
                if is_unchanged {
                    cells.unchanged += 1;
                } else {
                    cells.written += 1;
                }
                if is_unchanged && others.peek().is_none() {
                    continue;
                }
                if !has_row {
                    batch.row(&row.key);
                    has_row = true;
                }
                // Also an unchanged value: another build may be deleting it, in favour of one of the others.
                batch.put(family, &qualifier, bytes.as_bytes());
                for other in others {
                    cells.removed += 1;
                    batch.delete_column(family, other.qualifier);
                }
            }
        }
    }
    (batch, cells)
}

/// A cell of a stored row.
#[derive(Debug)]
struct OldCell<'a> {
    id: u8,
    offset: u16,
    qualifier: &'a [u8],
    value: &'a [u8],
}

/// The cells of a stored row by id and offset; cells that are no rollups of the target are left out.
#[derive(Debug)]
struct OldCells<'a>(Vec<OldCell<'a>>);

impl<'a> OldCells<'a> {
    fn of(row: Option<&'a Row>, target: &Target) -> Self {
        let cells = row.into_iter().flat_map(Row::cells);
        let decoded = cells.filter_map(|cell| {
            let found = RollupCell::decode(cell.qualifier, cell.value, &target.interval).ok()?;
            let id = match found.aggregate {
                Aggregate::Id(id) => id,
                Aggregate::Name(name) => {
                    let own = target.ids.iter().find(|(own, _)| own.as_bytes() == name);
                    own.map(|(_, id)| *id)?
                }
            };
            Some(OldCell {
                id,
                offset: found.offset,
                qualifier: cell.qualifier,
                value: cell.value,
            })
        });
        let mut cells: Vec<_> = decoded.collect();
        cells.sort_by_key(|cell| (cell.id, cell.offset));
        Self(cells)
    }

    /// All forms of a value.
    fn at(&self, id: u8, offset: u16) -> &[OldCell<'a>] {
        let from = self
            .0
            .partition_point(|cell| (cell.id, cell.offset) < (id, offset));
        let to = self
            .0
            .partition_point(|cell| (cell.id, cell.offset) <= (id, offset));
        self.0.get(from..to).unwrap_or_default()
    }
}

impl From<StoreError> for BuildError {
    fn from(error: StoreError) -> Self {
        Self::Query(error.into())
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_query::{RollupRules, Rollups};
    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{RowStore, TableDef};
    use oxtsdb_schema::{RollupConfig, RowKeyLayout, Value};

    use super::super::window::{Accumulator, Window};
    use super::*;

    const CONFIG: &str = r#"{"aggregationIds": {"sum": 0}, "intervals": [
        {"table": "r", "preAggregationTable": "p", "interval": "1h", "rowSpan": "1d"}]}"#;

    fn window(value: i32) -> Window {
        let mut windows = Vec::new();
        let mut accumulator = Accumulator::new(3_600_000, (0, i64::MAX));
        accumulator.feed(&[5], &[f64::from(value)], true, &mut |_| {});
        accumulator.advance(i64::MAX, &mut |window| windows.push(window));
        windows[0]
    }

    /// Two builds have read a row with two forms of a value, and each wants another one.
    #[tokio::test]
    async fn builds_at_once_leave_a_value() {
        let config = RollupConfig::parse(CONFIG).unwrap();
        let rollups = Rollups::new(config, RollupRules::default()).unwrap();
        let plan = BuildPlan::new(Some(&rollups), (0, 1), &[], RowKeyLayout::default()).unwrap();
        let target = &plan.targets[0];
        let store = MemoryStore::new();
        let table = TableDef::new(target.table.clone(), &["t"]);
        store.create_table(&table).await.unwrap();
        let key = vec![0, 0, 1, 0, 0, 0, 0];
        let mut batch = WriteBatch::new(target.table.clone());
        let family = batch.family("t");
        for value in [Value::Int(1), Value::Int(1000)] {
            let qualifier = rollup::qualifier(0, 0, &value);
            batch
                .row(&key)
                .put(family, &qualifier, value.encoded().as_bytes());
        }
        store.write(batch).await.unwrap();
        let stored = [store
            .get(&target.table, &key, &ColumnSelection::All)
            .await
            .unwrap()];
        let build = |value| {
            let row = BuiltRow {
                target: 0,
                key: key.clone(),
                windows: vec![(0, window(value))],
            };
            edit(target, &[row], &stored).0
        };
        let (one, other) = (build(1), build(1000));
        store.write(one).await.unwrap();
        store.write(other).await.unwrap();
        let left = store
            .get(&target.table, &key, &ColumnSelection::All)
            .await
            .unwrap();
        let left: Vec<Vec<u8>> = left.unwrap().cells().map(|cell| cell.value.to_vec()).collect();
        assert_eq!(left, [1000_i16.to_be_bytes()]);
    }
}
