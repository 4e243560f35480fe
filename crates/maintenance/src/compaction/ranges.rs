//! The row keys of hours: one range for each metric and salt bucket, in the order of the table.
//!
//! The ranges of one metric follow from the layout. The ranges of all metrics are found by seeks; each reads the
//! first row of the next metric:
//!
//! ```text
//!   seek to the end of metric 1 ─► metric 7, any hour ─► range of the hours of metric 7 ─► seek to its end ─► ...
//! ```

use futures::TryStreamExt as _;
use oxtsdb_query::Hours;
use oxtsdb_row_store::{ColumnSelection, DamageLog, RowStore, Scan, StoreError, TableName, prefix_end};
use oxtsdb_schema::{MetricUid, RowKeyLayout};

use crate::row_rewrite::FAMILY;

/// A range of row keys: the first one, and the first one after the range.
pub(super) type KeyRange = (Vec<u8>, Vec<u8>);

/// The ranges of a pass that are not read yet.
#[derive(Debug)]
pub(super) struct Ranges {
    hours: Hours,
    layout: RowKeyLayout,
    /// No row before this key is read.
    first: Vec<u8>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    /// The ranges of a metric.
    Metric(std::vec::IntoIter<KeyRange>),
    /// The next metric has the first row from this key on; `None`: there are no more.
    All(Option<Vec<u8>>),
}

impl Ranges {
    /// The rows of a metric, or of all, after a row key; empty: from the first one.
    pub(super) fn new(
        layout: RowKeyLayout,
        metric: Option<MetricUid>,
        hours: Hours,
        start_after_row_key: &[u8],
    ) -> Self {
        let first = match start_after_row_key {
            [] => Vec::new(),
            key => [key, &[0]].concat(),
        };
        let rest = match metric {
            Some(metric) => Rest::Metric(hours.ranges(&layout, metric).into_iter()),
            None => Rest::All(Some(first.clone())),
        };
        Self {
            hours,
            layout,
            first,
            rest,
        }
    }

    /// The next range that is not empty.
    pub(super) async fn next(
        &mut self,
        store: &dyn RowStore,
        table: &TableName,
    ) -> Result<Option<KeyRange>, StoreError> {
        if self.hours.count() == 0 {
            return Ok(None);
        }
        loop {
            let (start, stop) = match &mut self.rest {
                Rest::Metric(ranges) => match ranges.next() {
                    None => return Ok(None),
                    Some(range) => range,
                },
                Rest::All(position) => {
                    let Some(from) = position.take() else {
                        return Ok(None);
                    };
                    let Some(key) = first_key(store, table, from).await? else {
                        return Ok(None);
                    };
                    let length = self.layout.salt.width() + self.layout.widths.metric.bytes();
                    let Some(prefix) = key.get(..length) else {
                        // The key of no row of points; others may begin with it.
                        *position = Some([&*key, &[0]].concat());
                        continue;
                    };
                    let end = prefix_end(prefix);
                    *position = Some(end).filter(|end| !end.is_empty());
                    hours_of(prefix, self.hours)
                }
            };
            let start = start.max(self.first.clone());
            if start < stop {
                return Ok(Some((start, stop)));
            }
        }
    }
}

/// The row keys of hours that begin with a salt and a metric.
fn hours_of(prefix: &[u8], hours: Hours) -> KeyRange {
    let key = |seconds: u32| [prefix, &seconds.to_be_bytes()].concat();
    let stop = match u32::try_from(hours.stop_seconds) {
        Ok(seconds) => key(seconds),
        Err(_) => [prefix, &[0xff; 5]].concat(),
    };
    (key(hours.start.seconds()), stop)
}

/// The first row key from `start` on.
async fn first_key(
    store: &dyn RowStore,
    table: &TableName,
    start: Vec<u8>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let mut scan = Scan::range(start, []);
    scan.columns = ColumnSelection::Family(FAMILY.to_owned());
    scan.limit = Some(1);
    scan.batch_rows = 1;
    scan.skip_damaged = Some(DamageLog::default());
    let rows = store.scan(table, scan).await?.try_next().await?;
    Ok(rows.and_then(|rows| rows.first().map(|row| row.key().to_vec())))
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{TableDef, WriteBatch};
    use oxtsdb_schema::{BaseTime, SaltLayout, UidWidths};

    use super::*;

    const HOUR: u32 = 1_356_998_400;

    fn hours(first: u32, count: u32) -> Hours {
        Hours {
            start: BaseTime::from_seconds(HOUR + first * 3600),
            stop_seconds: u64::from(HOUR + (first + count) * 3600),
        }
    }

    fn key(salt: u8, metric: u8, hour: u32) -> Vec<u8> {
        let base = (HOUR + hour * 3600).to_be_bytes();
        [&[salt, 0, 0, metric][..], &base, &[0, 0, 1, 0, 0, 1]].concat()
    }

    async fn store(keys: &[Vec<u8>]) -> (MemoryStore, TableName) {
        let (store, table) = (MemoryStore::new(), "tsdb".parse::<TableName>().unwrap());
        let def = TableDef::new(table.clone(), &["t"]);
        store.create_table(&def).await.unwrap();
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family("t");
        for key in keys {
            batch.row(key).put(family, &[0, 0], &[1]);
        }
        store.write(batch).await.unwrap();
        (store, table)
    }

    /// The rows in the ranges, each as salt, metric and hour.
    async fn rows(store: &MemoryStore, table: &TableName, mut ranges: Ranges) -> Vec<(u8, u8, u32)> {
        let mut rows = Vec::new();
        while let Some((start, stop)) = ranges.next(store, table).await.unwrap() {
            let scan = store.scan(table, Scan::range(start, stop)).await.unwrap();
            let batches: Vec<_> = scan.try_collect().await.unwrap();
            rows.extend(batches.iter().flatten().map(|row| {
                let seconds = u32::from_be_bytes(*row.key()[4..].first_chunk().unwrap());
                (row.key()[0], row.key()[3], (seconds - HOUR) / 3600)
            }));
        }
        rows
    }

    #[tokio::test]
    async fn finds_the_hours_of_all_metrics_and_buckets() {
        let layout = RowKeyLayout {
            salt: SaltLayout::new(1, 4).unwrap(),
            widths: UidWidths::default(),
        };
        let places = [(0, 1, 0), (0, 1, 2), (0, 7, 3), (1, 1, 1), (1, 255, 2), (3, 7, 9)];
        let mut keys: Vec<_> = places
            .iter()
            .map(|(salt, metric, hour)| key(*salt, *metric, *hour))
            .collect();
        // The key of no point.
        keys.push(vec![0, 0]);
        let (store, table) = store(&keys).await;
        let all = |hours, after: &[u8]| Ranges::new(layout, None, hours, after);
        let selected_rows = rows(&store, &table, all(hours(1, 3), &[])).await;
        assert_eq!(selected_rows, [(0, 1, 2), (0, 7, 3), (1, 1, 1), (1, 255, 2)]);
        let every = rows(&store, &table, all(Hours::ALL, &[])).await;
        assert_eq!(every, places);
        for (index, after) in places.iter().enumerate() {
            let after = key(after.0, after.1, after.2);
            let rest = rows(&store, &table, all(Hours::ALL, &after)).await;
            assert_eq!(rest, places[index + 1..]);
        }
        let none = rows(&store, &table, all(hours(1, 0), &[])).await;
        assert_eq!(none, []);
    }

    #[tokio::test]
    async fn finds_the_hours_of_one_metric() {
        let layout = RowKeyLayout {
            salt: SaltLayout::new(1, 4).unwrap(),
            widths: UidWidths::default(),
        };
        let places = [(0, 1, 0), (0, 7, 3), (2, 7, 2), (3, 7, 9)];
        let keys: Vec<_> = places
            .iter()
            .map(|(salt, metric, hour)| key(*salt, *metric, *hour))
            .collect();
        let (store, table) = store(&keys).await;
        let metric = MetricUid::from_bytes(&[0, 0, 7]).unwrap();
        let of = |after: &[u8]| Ranges::new(layout, Some(metric), hours(2, 5), after);
        assert_eq!(rows(&store, &table, of(&[])).await, [(0, 7, 3), (2, 7, 2)]);
        assert_eq!(rows(&store, &table, of(&key(0, 7, 3))).await, [(2, 7, 2)]);
    }
}
