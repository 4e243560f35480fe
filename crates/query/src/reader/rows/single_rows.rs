//! Single rows of resolved series.
//!
//! Row keys are generated on demand: a thousand series have 9 million of them in a year.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::DamageLog;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{RowKeyLayout, Tsuid};

use super::RowReader;
use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::selection::row_selection::Selection;
use crate::reader::scan::{BATCH_ROWS, RowBatch, ScanItem, point_columns};

/// Batches that are read concurrently.
const READS_AT_A_TIME: usize = 2;

/// The rows of some series in some hours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SingleRows {
    layout: RowKeyLayout,
    hours: Hours,
    series: Arc<[Tsuid]>,
}

impl SingleRows {
    /// The rows of `series` in `hours`.
    pub(crate) fn new(layout: &RowKeyLayout, series: impl Into<Arc<[Tsuid]>>, hours: Hours) -> Self {
        Self {
            layout: *layout,
            hours,
            series: series.into(),
        }
    }

    /// The series of the rows.
    pub(crate) fn series(&self) -> &[Tsuid] {
        &self.series
    }

    /// Reads the rows. Dropping the stream cancels the reads.
    pub(super) fn items(
        &self,
        reader: &RowReader,
        selection: &Selection,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<ScanItem, QueryError>> {
        let (reader, selection, budget) = (reader.clone(), selection.clone(), budget.clone());
        let skip_damaged = skip_damaged.cloned();
        let read = move |mut keys: Vec<Vec<u8>>| {
            let (reader, budget, skip_damaged) = (reader.clone(), budget.clone(), skip_damaged.clone());
            // Rows are in order of hours, so all hours before the last row's hour are complete.
            let hour = keys.last().and_then(|key| selection.base_time(key));
            // The match cache may have grown since the plan was made.
            keys.retain(|key| selection.may_match(key));
            async move {
                let (store, table, columns) = (&reader.store, &reader.table, point_columns());
                let rows = store.get_rows(table, &keys, &columns, skip_damaged.as_ref());
                let rows = rows.await?;
                let rows = RowBatch::new(rows.into_iter().flatten().collect(), &budget)?;
                let rows = ScanItem::Rows(rows);
                let until = hour.map(|hour| ScanItem::Watermark(hour.millis()));
                let items = [Some(rows), until].into_iter().flatten();
                Ok::<_, QueryError>(stream::iter(items.map(Ok)))
            }
        };
        stream::iter(self.batches(BATCH_ROWS))
            .map(read)
            .buffered(READS_AT_A_TIME)
            .try_flatten()
            .boxed()
    }

    /// Most rows that exist: a series has none in an hour without points.
    pub(crate) fn count(&self) -> u64 {
        (self.series.len() as u64).saturating_mul(self.hours.count() as u64)
    }

    /// The keys, at most `size` at a time: hour after hour, within an hour in the order of the series.
    pub(crate) fn batches(&self, size: usize) -> impl Iterator<Item = Vec<Vec<u8>>> + Send + use<> {
        let (layout, series) = (self.layout, Arc::clone(&self.series));
        let mut keys = self.hours.iter().flat_map(move |hour| {
            let series = Arc::clone(&series);
            (0..series.len()).filter_map(move |index| {
                let mut key = Vec::new();
                write_row_key(&layout, series.get(index)?.as_bytes(), hour, &mut key);
                Some(key)
            })
        });
        std::iter::from_fn(move || {
            let batch: Vec<_> = keys.by_ref().take(size.max(1)).collect();
            (!batch.is_empty()).then_some(batch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_by_hour_and_are_generated_on_demand() {
        let layout = RowKeyLayout::default();
        let tsuid = |value| Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, value], &layout.widths).unwrap();
        // All hours that a row key can hold: a million.
        let hours = Hours::overlapping(0, i64::from(u32::MAX) * 1000);
        let rows = SingleRows::new(&layout, [tsuid(3), tsuid(7)], hours);
        assert_eq!(rows.count(), 2 * 1_193_047);
        let first: Vec<_> = rows.batches(3).take(2).collect();
        let key = |hour: u32, value| {
            let hour = (hour * 3600).to_be_bytes();
            [&[0, 0, 1], hour.as_slice(), &[0, 0, 1, 0, 0, value]].concat()
        };
        assert_eq!(
            first,
            [
                vec![key(0, 3), key(0, 7), key(1, 3)],
                vec![key(1, 7), key(2, 3), key(2, 7)]
            ]
        );
        let none = SingleRows::new(&layout, [], hours);
        assert_eq!((none.count(), none.batches(3).count()), (0, 0));
    }
}
