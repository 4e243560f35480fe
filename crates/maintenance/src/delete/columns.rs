//! Deletes points in columns, as the embedded store has them.

use std::sync::Arc;

use oxtsdb_point_store::{BlockSummary, Columns, PointStore, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_query::{PointStorage, QueryError};
use oxtsdb_row_store::StoreError;

use super::Run;

/// Series that are counted or deleted at a time.
const SERIES_AT_A_TIME: usize = 4096;

/// Deletes the points of a run in its range.
pub(super) async fn delete(run: &mut Run, points: &PointStorage) -> Result<(), QueryError> {
    let (context, range) = (run.admitted.context().clone(), run.deletion.range);
    let compute = run.engine.resources().compute.clone();
    let source = &run.deletion.source;
    let series = source.series_in_columns(&run.storage, points, &compute, context.deadline());
    let series = context.run(series).await?;
    let _held = run
        .admitted
        .budget()
        .hold(size_of_val(series.as_slice()) as u64)?;
    let mut key = Vec::new();
    for chunk in series.chunks(SERIES_AT_A_TIME) {
        let (store, chunk) = (Arc::clone(&points.columns), chunk.to_vec());
        let count = async { Ok::<_, QueryError>(compute.run(move || count(&*store, &chunk, range)).await?) };
        let counted = context.run(count).await?.map_err(StoreError::from)?;
        for (series, count) in &counted {
            points.columns.key(*series, &mut key);
            run.counted.add_series(&key)?;
            run.counted.sums.points += count;
        }
        if !run.deletion.dry_run && !counted.is_empty() {
            let with_points: Vec<SeriesNumber> = counted.into_iter().map(|(series, _)| series).collect();
            let deleted = points.columns.delete(&with_points, range).await;
            deleted.map_err(StoreError::from)?;
        }
    }
    Ok(())
}

/// The series that have points in a range, and how many. Blocks that lie in the range are not decoded.
fn count(
    store: &dyn PointStore,
    series: &[SeriesNumber],
    range: TimeRange,
) -> Result<Vec<(SeriesNumber, u64)>, PointStoreError> {
    let mut reader = store.reader(range)?;
    let (mut columns, mut blocks) = (Columns::default(), Vec::<BlockSummary>::new());
    let mut counted = Vec::new();
    for series in series {
        reader.read_summarized(*series, &|_| true, &mut columns, &mut blocks)?;
        let in_blocks: usize = blocks.iter().map(|block| block.count).sum();
        let count = columns.len() + in_blocks;
        if count > 0 {
            counted.push((*series, count as u64));
        }
    }
    Ok(counted)
}
