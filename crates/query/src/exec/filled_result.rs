//! Results of fill policies that exceed a limit, before the scan.
//!
//! Every series with a point has all windows of a fill policy, so points and memory of the result follow from the
//! number of series. The plan has the series that ever were; how many have points in the range is counted only where it
//! matters, and only until the limit is exceeded.

use std::collections::HashSet;

use oxtsdb_point_store::TimeRange;
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{Tsuid, UidWidths};

use crate::context::budget::{Budget, POINT_BYTES};
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::exec::extents::SERIES_AT_A_TIME;
use crate::exec::group::Grouping;
use crate::exec::scan::columns::ColumnSource;

/// The windows of a sub-query, and the share of them that is in memory at a time.
#[derive(Debug)]
pub(super) struct FilledResult {
    /// Windows of each series.
    pub(super) windows: u64,
    /// Windows of each series that are in the result.
    pub(super) returned: u64,
    /// Series with points in this range have windows.
    pub(super) range: TimeRange,
    pub(super) grouping: Grouping,
    pub(super) widths: UidWidths,
    pub(super) holds: Holds,
}

/// The windows that are in memory together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// The windows of a time slice.
    Slice,
    /// The windows of all groups.
    Groups,
    /// The windows of all series.
    Series,
}

impl FilledResult {
    /// Rejects a result that is certain to exceed a limit.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`], and the errors of the store.
    pub(super) async fn check(
        &self,
        columns: &ColumnSource,
        compute: &ComputePool,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        let check = |series: u64, groups: u64| {
            let held = match self.holds {
                Holds::Slice => 0,
                Holds::Groups => self.returned.saturating_mul(groups),
                Holds::Series => self.windows.saturating_mul(series),
            };
            let points = self.windows.saturating_mul(series);
            let points = points.saturating_add(budget.usage().of(Resource::Points));
            budget.limits().check(Resource::Points, points)?;
            budget
                .limits()
                .check(Resource::Memory, held.saturating_mul(POINT_BYTES))
        };
        let most = columns.series.len() as u64;
        if self.windows == 0 || check(most, most).is_ok() {
            return Ok(());
        }
        let (mut with_points, mut groups) = (0, HashSet::new());
        let (mut key, mut values) = (Vec::new(), Vec::new());
        let mut held = budget.hold(0)?;
        for series in columns.series.chunks(SERIES_AT_A_TIME) {
            let last = columns.last(compute, series, self.range).await?;
            for (series, _) in series.iter().zip(last).filter(|(_, point)| point.is_some()) {
                with_points += 1;
                columns.store.key(*series, &mut key);
                let tsuid = Tsuid::from_bytes(&key, &self.widths);
                let tsuid = tsuid.map_err(|error| QueryError::row_series(&key, &error))?;
                self.grouping.write_key(&tsuid, &self.widths, &mut values);
                if !groups.contains(&values) {
                    held.grow((size_of::<Vec<u8>>() + values.len()) as u64)?;
                    groups.insert(values.clone());
                }
            }
            check(with_points, groups.len() as u64)?;
        }
        Ok(())
    }
}
