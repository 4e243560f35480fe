//! Deletes points in columns.

use std::sync::Arc;

use oxtsdb_point_store::{BlockSummary, Columns, PointStore, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_row_store::StoreError;

use super::ColumnReader;
use crate::error::QueryError;
use crate::reader::context::ReadContext;
use crate::reader::{CountPoints, PointDelete, ResolvedSource};

/// Series that are counted or deleted at a time.
const SERIES_AT_A_TIME: usize = 4096;

impl ColumnReader {
    /// See [`PointReader::delete`].
    ///
    /// [`PointReader::delete`]: crate::reader::PointReader::delete
    pub(super) async fn delete_points(
        &self,
        delete: PointDelete,
        count: &mut CountPoints<'_>,
        context: &ReadContext,
    ) -> Result<(), QueryError> {
        let (query, range, columns) = (&context.query, delete.range, &self.points.columns);
        let series = query.run(self.series_of(&delete.source, context)).await?;
        let _held = query.budget().hold(size_of_val(series.as_slice()) as u64)?;
        let mut key = Vec::new();
        for chunk in series.chunks(SERIES_AT_A_TIME) {
            let (store, chunk) = (Arc::clone(columns), chunk.to_vec());
            let counting = context.compute.run(move || points_of(&*store, &chunk, range));
            let counting = async { Ok::<_, QueryError>(counting.await?) };
            let counted = query.run(counting).await?.map_err(StoreError::from)?;
            for (series, points) in &counted {
                columns.key(*series, &mut key);
                count(&key, *points)?;
            }
            if !delete.dry_run && !counted.is_empty() {
                let with_points: Vec<SeriesNumber> = counted.into_iter().map(|(series, _)| series).collect();
                // Not interrupted: the caller learns what was deleted.
                let deleted = columns.delete(&with_points, range).await;
                deleted.map_err(StoreError::from)?;
            }
        }
        Ok(())
    }

    /// The series of a request, ascending.
    async fn series_of(
        &self,
        source: &ResolvedSource,
        context: &ReadContext,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let columns = &self.points.columns;
        let mut numbers: Vec<SeriesNumber> = match source {
            ResolvedSource::Metric(metric, selection) => {
                return self.catalogue(context).by_metric(*metric, selection).await;
            }
            ResolvedSource::Tsuids(tsuids) => {
                let tsuids = tsuids.iter();
                tsuids
                    .filter_map(|tsuid| columns.find(tsuid.as_bytes()))
                    .collect()
            }
            ResolvedSource::All => {
                let metrics = columns.metrics().into_iter();
                metrics
                    .flat_map(|metric| columns.metric_series(&metric))
                    .collect()
            }
            ResolvedSource::GlobalAnnotations => Vec::new(),
        };
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }
}

/// The series that have points in a range, and how many. Blocks that lie in the range are not decoded.
fn points_of(
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
