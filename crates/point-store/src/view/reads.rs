//! Scans and reads by key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::stream::try_unfold;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, DamageLog, Row, RowBuilder, RowStream, Scan, StoreError, TableName};
use oxtsdb_schema::BaseTime;
use oxtsdb_schema::data_table::FAMILY;

use super::TableView;
use super::columns::{PointColumns, push_cells};
use super::damage::check_damage;
use super::merge::{Merged, merge_rows};
use super::place::SeriesHour;
use super::walk::PointRows;
use crate::{Point, ReadRequest, SeriesNumber, TimeRange};

impl TableView {
    /// Scans the table of points.
    pub(super) async fn scan_merged(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        let Some(columns) = PointColumns::from_selection(&scan.columns, &self.form) else {
            return self.rows.scan(table, scan).await;
        };
        let stored = self.rows.scan(table, scan.clone()).await?;
        let def = self.definition(table).await?;
        let points = PointRows::new(
            Arc::clone(&self.points),
            self.layout,
            &def,
            (columns, self.form.clone()),
            &scan,
            self.window,
        );
        let families = def.families.into_iter().map(|family| family.name).collect();
        let limit = scan.limit.and_then(|limit| usize::try_from(limit).ok());
        let most = limit.map_or(scan.batch_rows, |limit| limit.min(scan.batch_rows));
        let points = try_unfold(points, move |mut points| async move {
            let rows = points.next_batch(most).await?;
            Ok((!rows.is_empty()).then_some((rows, points)))
        });
        Ok(Merged::new(points.boxed(), stored, families, &scan).into_stream())
    }

    /// Adds the points to rows of the row store; `keys` are the keys of these rows.
    pub(super) async fn add_points(
        &self,
        table: &TableName,
        keys: &[Vec<u8>],
        columns: &ColumnSelection,
        stored: Vec<Option<Row>>,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let Some(columns) =
            PointColumns::from_selection(columns, &self.form).filter(|_| self.has_points(table))
        else {
            return Ok(stored);
        };
        let places: Vec<_> = keys.iter().map(|key| self.place(key)).collect();
        let mut hours: BTreeMap<BaseTime, Vec<SeriesNumber>> = BTreeMap::new();
        for (base, series) in places.iter().flatten() {
            hours.entry(*base).or_default().push(*series);
        }
        if hours.is_empty() {
            return Ok(stored);
        }
        let mut by_row: HashMap<(BaseTime, SeriesNumber), Vec<Point>> = HashMap::new();
        for (base, mut series) in hours {
            series.sort_unstable();
            series.dedup();
            for range in self.form.row_ranges(base) {
                let read = loop {
                    let damage = self.points.damage();
                    check_damage(&*self.points, table, &series, range, skip_damaged)?;
                    let read = self.read(series.clone(), range).await;
                    // Otherwise parts were set aside, by this read or another one: read again without them.
                    if self.points.damage() == damage {
                        break read?;
                    }
                };
                for (series, points) in read {
                    by_row.entry((base, series)).or_default().extend(points);
                }
            }
        }
        let def = self.definition(table).await?;
        let family = def
            .family_index(&String::from_utf8_lossy(FAMILY))
            .unwrap_or_default();
        let families: Arc<[String]> = def.families.into_iter().map(|family| family.name).collect();
        let merge = |((key, place), stored): ((&Vec<u8>, Option<_>), Option<Row>)| {
            let Some(points) = place.and_then(|place| by_row.get(&place)) else {
                return stored;
            };
            let mut row = RowBuilder::new(key, Arc::clone(&families));
            push_cells(&mut row, family, points.iter().copied(), &columns, &self.form);
            match (row.finish(), stored) {
                (Some(points), Some(stored)) => merge_rows(&points, &stored, &families, 1),
                (points, stored) => points.or(stored),
            }
        };
        Ok(keys.iter().zip(places).zip(stored).map(merge).collect())
    }

    /// Hour and series of a row key; `None` if it has no points.
    fn place(&self, key: &[u8]) -> Option<(BaseTime, SeriesNumber)> {
        let hour = SeriesHour::from_key(key, &self.layout)?;
        Some((hour.base, self.points.find(hour.tsuid.as_bytes())?))
    }

    /// Reads the points of series, which may extend over several items.
    pub(super) async fn read(
        &self,
        series: Vec<SeriesNumber>,
        range: TimeRange,
    ) -> Result<Vec<(SeriesNumber, Vec<Point>)>, StoreError> {
        let items = self.points.read(ReadRequest { series, range });
        let items: Vec<_> = items.try_collect().await.map_err(StoreError::from)?;
        let columns = items.into_iter().flatten();
        Ok(columns
            .map(|columns| (columns.series, columns.points().collect()))
            .collect())
    }
}
