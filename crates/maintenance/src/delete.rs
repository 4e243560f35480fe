//! Deletes points: exactly the points of some series in a range of time, and nothing else.
//!
//! ```text
//!   rows       scan ─► plan the changes of each row ─► remove cells; put, read back and remove what keeps points
//!   columns    see `PointReader::delete`
//! ```
//!
//! On HBase points are in rows. The embedded store has them in columns; its rows have cells of unusual encodings.
//! A point of the range that is written during the delete may stay or not. Names, metadata, annotations and histograms stay. Repeating a delete
//! that failed or was cancelled completes it.

mod row;
mod rows;

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::TimeRange;
use oxtsdb_query::{
    Admitted, Engine, Held, Hours, PointDelete, QueryDescription, QueryError, RequestContext, RowBatch,
    RowScan, RowSource, Storage, scan_rows,
};
use rustc_hash::{FxBuildHasher, FxHashSet};

use self::rows::Rows;

/// Points to delete.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// Their series.
    pub source: RowSource,
    /// Their instants, both ends included.
    pub range: TimeRange,
    /// Counts them only.
    pub dry_run: bool,
}

/// Sums of a delete: rows, cells and points; in a dry run, the ones that it would delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Series with points in the range.
    pub series: u64,
    /// Rows: hours of series, in HBase; 0 for points in columns.
    pub rows: u64,
    /// Points. A point that is in several cells counts for each.
    pub points: u64,
    /// Cells that do not decode, which stay.
    pub damaged_cells: u64,
    /// Rows that kept points of the range, because other writers changed them again and again.
    pub contended_rows: u64,
}

/// Memory of the hash of a series.
const SERIES_BYTES: u64 = 16;

/// Deletes points and returns the sums so far after each step; the last item has the sums of all. Dropping the stream
/// ends the delete between two steps.
///
/// # Errors
///
/// For unknown names and invalid TSUIDs, before anything is deleted; errors of admission and of the store.
pub async fn delete(
    engine: &Engine,
    request: RequestContext,
    deletion: Deletion,
) -> Result<BoxStream<'static, Result<Deleted, QueryError>>, QueryError> {
    let admitted = engine.admit_untimed(request, description(&deletion)).await?;
    let storage = engine.storage().clone();
    let of_cells = Storage {
        store: Arc::clone(storage.reader.cells()),
        ..storage.clone()
    };
    let hours = Hours::overlapping(deletion.range.first_ms, deletion.range.last_ms);
    let scan = RowScan {
        source: deletion.source.clone(),
        hours,
        start_after_row_key: Vec::new(),
        limit: None,
    };
    let context = admitted.context().clone();
    let rows = context.run(scan_rows(&of_cells, scan, &context)).await?;
    let run = Run {
        engine: engine.clone(),
        counted: Counted {
            sums: Deleted::default(),
            hashes: FxHashSet::default(),
            held: admitted.budget().hold(0)?,
        },
        deletion,
        storage,
        of_cells,
        admitted,
    };
    let state = State::Rows(rows, Box::new(run));
    let steps = stream::try_unfold(state, |state| async move {
        match state {
            State::Rows(mut rows, mut run) => {
                let context = run.admitted.context().clone();
                let next = async { rows.try_next().await };
                match context.run(next).await? {
                    Some(batch) => {
                        run.delete_rows(batch).await?;
                        let sums = run.counted.sums;
                        Ok(Some((sums, State::Rows(rows, run))))
                    }
                    None => {
                        run.delete_columns().await?;
                        Ok(Some((run.counted.sums, State::Over)))
                    }
                }
            }
            State::Over => Ok(None),
        }
    });
    Ok(steps.boxed())
}

enum State {
    Rows(
        BoxStream<'static, Result<Vec<oxtsdb_row_store::Row>, QueryError>>,
        Box<Run>,
    ),
    Over,
}

/// A delete that runs.
struct Run {
    engine: Engine,
    deletion: Deletion,
    storage: Storage,
    /// The same, with the store of cells.
    of_cells: Storage,
    admitted: Admitted,
    counted: Counted,
}

/// Sums, and the series that are in them.
struct Counted {
    sums: Deleted,
    /// Hashes of series: rows of a series are far apart.
    hashes: FxHashSet<u64>,
    held: Held,
}

impl Counted {
    fn add_series(&mut self, series: &[u8]) -> Result<(), QueryError> {
        use std::hash::BuildHasher as _;
        if self.hashes.insert(FxBuildHasher.hash_one(series)) {
            self.held.grow(SERIES_BYTES)?;
            self.sums.series += 1;
        }
        Ok(())
    }
}

impl Run {
    async fn delete_rows(&mut self, batch: Vec<oxtsdb_row_store::Row>) -> Result<(), QueryError> {
        let batch = RowBatch::new(batch, self.admitted.budget())?;
        let (layout, range) = (self.storage.layout, self.deletion.range);
        // Plans have the cells that are replaced, which are in the rows too.
        let _plans = self.admitted.budget().hold(batch.byte_len())?;
        let plan = move || Rows::plan(&layout, range, batch.rows());
        let plans = self.engine.resources().compute.run(plan).await?;
        let tags_at = layout.salt.width() + layout.widths.metric.bytes();
        for (key, plan) in &plans {
            let sums = &mut self.counted.sums;
            sums.damaged_cells += plan.damaged;
            if plan.points == 0 {
                continue;
            }
            sums.rows += 1;
            sums.points += plan.points;
            let metric = key.get(layout.salt.width()..tags_at).unwrap_or_default();
            let tags = key.get(tags_at + 4..).unwrap_or_default();
            self.counted.add_series(&[metric, tags].concat())?;
        }
        if self.deletion.dry_run {
            return Ok(());
        }
        let rows = Rows {
            store: &*self.of_cells.store,
            table: &self.of_cells.table,
            layout: &layout,
            range,
        };
        // Not interrupted: the caller learns what was deleted.
        self.counted.sums.contended_rows += rows.apply(plans).await?;
        Ok(())
    }

    /// Deletes the points that are in no cell.
    async fn delete_columns(&mut self) -> Result<(), QueryError> {
        let (storage, context) = (&self.storage, self.admitted.context());
        let source = self.deletion.source.resolve(storage, context.deadline());
        let delete = PointDelete {
            source: context.run(source).await?,
            range: self.deletion.range,
            dry_run: self.deletion.dry_run,
        };
        let context = storage.read_context(&self.engine.resources().compute, context);
        let counted = &mut self.counted;
        let mut count = |series: &[u8], points: u64| {
            counted.sums.points += points;
            counted.add_series(series)
        };
        storage.reader.delete(delete, &mut count, &context).await
    }
}

/// The entry of a delete in the list of running queries.
fn description(deletion: &Deletion) -> QueryDescription {
    let source = match &deletion.source {
        RowSource::Metric { metric, .. } => format!("delete:{metric}"),
        RowSource::Tsuids(tsuids) => format!("delete:({} TSUIDs)", tsuids.len()),
        RowSource::All | RowSource::GlobalAnnotations => "delete:*".to_owned(),
    };
    QueryDescription {
        sub_queries: vec![source],
        range_ms: (deletion.range.first_ms, deletion.range.last_ms),
    }
}

#[cfg(test)]
mod tests;
