//! Maps points to rows of the table and back.

use oxtsdb_row_store::{CellAddress, StoreError, TableName};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::{BaseTime, RowKeyLayout, RowKeyRef, Tsuid};

use super::TableView;
use crate::{PointBatch, PointStore, TimeRange};

/// Seconds of an hour.
pub(super) const HOUR_SECONDS: u32 = 3_600;

/// An hour of a series: a row that may have plain points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeriesHour {
    pub(super) tsuid: Tsuid,
    pub(super) base: BaseTime,
}

impl SeriesHour {
    /// The hour of a row key; `None` for keys that no writer of points produces.
    pub(super) fn from_key(key: &[u8], layout: &RowKeyLayout) -> Option<Self> {
        let key = RowKeyRef::decode(key, layout).ok()?;
        let tsuid = key.tsuid().ok().filter(|_| key.has_valid_salt(layout))?;
        Some(Self {
            tsuid,
            base: key.base_time(),
        })
    }
}

/// The instants of an hour.
pub(super) fn hour_range(base: BaseTime) -> TimeRange {
    TimeRange {
        first_ms: base.millis(),
        last_ms: base.millis() + i64::from(HOUR_SECONDS) * 1000 - 1,
    }
}

/// Whether a family is the family of points.
pub(super) fn is_point_family(family: &str) -> bool {
    family.as_bytes() == FAMILY
}

impl TableView {
    /// Gives a durable number to the series of a row that will have a cell of the row store.
    ///
    /// # Errors
    ///
    /// Errors of the point store.
    pub(super) async fn number_series(&self, table: &TableName, key: &[u8]) -> Result<(), StoreError> {
        let Some(row) = SeriesHour::from_key(key, &self.layout).filter(|_| self.has_points(table)) else {
            return Ok(());
        };
        let tsuid = row.tsuid.as_bytes();
        // Also if another request has got the number, and has not stored its points yet.
        if !is_durable(&*self.points, tsuid) {
            self.points.numbers(&[tsuid])?;
            self.points.append(PointBatch::default()).await?;
        }
        Ok(())
    }

    /// Rejects a write to a row that may have points.
    pub(super) fn reject_series(&self, table: &TableName, row: &[u8], write: &str) -> Result<(), StoreError> {
        if !self.has_points(table) || SeriesHour::from_key(row, &self.layout).is_none() {
            return Ok(());
        }
        Err(rejected(table, row, write))
    }

    /// Rejects a conditional put of a column that may have a point.
    pub(super) fn reject_point(&self, table: &TableName, cell: &CellAddress) -> Result<(), StoreError> {
        if !is_point_family(&cell.family) || !self.form.names_points(&cell.qualifier) {
            return Ok(());
        }
        self.reject_series(table, &cell.row, "conditional puts of points")
    }
}

/// Whether a series has a number that is durable.
pub(super) fn is_durable(points: &dyn PointStore, tsuid: &[u8]) -> bool {
    points.find(tsuid).is_some_and(|series| points.is_durable(series))
}

/// The error of a write that a view of points does not have.
pub(super) fn rejected(table: &TableName, row: &[u8], write: &str) -> StoreError {
    StoreError::Invalid {
        detail: format!(
            "table `{table}` is a view of points and rejects {write}, of row `{}`",
            hex(row)
        ),
    }
}

/// Bytes as OpenTSDB's tools print them.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}
