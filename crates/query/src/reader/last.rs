//! Last points: the trait of their readers, the range of a search, and the last point of a stored row.

use async_trait::async_trait;
use futures::stream::BoxStream;
use oxtsdb_row_store::Row;
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::{DuplicatePolicy, HOUR_SECONDS, MetricUid, Points, RowKeyLayout, RowKeyRef, Tsuid};

use super::context::ReadContext;
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::selection::row_selection::Selection;
use crate::points::Number;

/// The time range of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookBack {
    /// Points before this timestamp are ignored, milliseconds since the epoch.
    pub from_ms: i64,
    /// The search starts in the hour of this timestamp and includes all points of that hour.
    pub now_ms: i64,
}

impl LookBack {
    /// The hour of an instant.
    pub fn hour_of(time_ms: i64) -> Self {
        let hour_ms = i64::from(HOUR_SECONDS) * 1000;
        let start_ms = time_ms - time_ms.rem_euclid(hour_ms);
        Self {
            from_ms: start_ms,
            now_ms: start_ms,
        }
    }

    pub(super) fn hours(&self) -> Hours {
        Hours::overlapping(self.from_ms, self.now_ms)
    }
}

/// The last point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPoint {
    /// The series.
    pub tsuid: Tsuid,
    /// Its timestamp, milliseconds since the epoch.
    pub time_ms: i64,
    /// Its value.
    pub value: Number,
}

/// Batches of last points.
pub(crate) type LastPoints = BoxStream<'static, Result<Vec<LastPoint>, QueryError>>;

/// Searches for last points.
#[async_trait]
pub trait LastPointReader: Send + Sync {
    /// The last points of series, each in a range of its own, in the order of the searches; `None` for a series without
    /// one in its range.
    ///
    /// # Errors
    ///
    /// When a store fails, has lost points that may be newer, or a row cannot be decoded; [`QueryError::OverBudget`].
    async fn last_points(
        &self,
        searches: Vec<(Tsuid, LookBack)>,
        context: &ReadContext,
    ) -> Result<Vec<Option<LastPoint>>, QueryError>;

    /// The last points of the series of a metric that pass a selection, in batches, in no particular order; series
    /// without a point in the range are left out.
    ///
    /// # Errors
    ///
    /// As [`LastPointReader::last_points`], and when names cannot be resolved.
    async fn last_points_of_metric(
        &self,
        metric: MetricUid,
        selection: &Selection,
        look_back: LookBack,
        context: &ReadContext,
    ) -> Result<LastPoints, QueryError>;
}

pub(super) fn decode_key<'a>(layout: &RowKeyLayout, row: &'a Row) -> Result<RowKeyRef<'a>, QueryError> {
    RowKeyRef::decode(row.key(), layout).map_err(|error| QueryError::row_key(row.key(), &error))
}

/// The last point of a row, if it is in the range.
pub(super) fn last_of_row(
    layout: &RowKeyLayout,
    row: &Row,
    look_back: LookBack,
) -> Result<Option<(i64, Number)>, QueryError> {
    let key = decode_key(layout, row)?;
    let mut points = Points::new();
    let cells = row.cells().map(|cell| CellRef {
        qualifier: cell.qualifier,
        value: cell.value,
        timestamp_ms: cell.timestamp_ms,
    });
    decode_row(cells, DuplicatePolicy::KeepNewest, &mut points)
        .map_err(|error| QueryError::row(row.key(), error))?;
    let last = points.iter().last();
    let base_ms = key.base_time().millis();
    let last = last.map(|(offset_ms, value)| (base_ms + i64::from(offset_ms), Number::from(value)));
    Ok(last.filter(|(time_ms, _)| *time_ms >= look_back.from_ms))
}
