//! Results of fill policies that exceed a limit, before the scan.
//!
//! Every series with a point has all windows of a fill policy, so points and memory of the result follow from the
//! number of series. The plan has the series that ever were; how many have points in the range is counted only where it
//! matters, and only until the limit is exceeded.

use std::collections::HashSet;

use futures::TryStreamExt as _;
use oxtsdb_point_store::TimeRange;
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::DamageLog;
use oxtsdb_schema::UidWidths;

use crate::context::budget::{Budget, POINT_BYTES};
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::exec::group::Grouping;
use crate::reader::access_path::AccessPath;

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
        access_path: &dyn AccessPath,
        compute: &ComputePool,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<(), QueryError> {
        let Some(most) = access_path.listed_series().filter(|_| self.windows > 0) else {
            return Ok(());
        };
        let check = |series: u64, groups: u64| {
            let held = match self.holds {
                Holds::Slice => 0,
                Holds::Groups => self.returned.saturating_mul(groups),
                Holds::Series => self.windows.saturating_mul(series),
            };
            let points = self.windows.saturating_mul(series);
            let points = points.saturating_add(budget.usage().get(Resource::Points));
            budget.limits().check(Resource::Points, points)?;
            budget
                .limits()
                .check(Resource::Memory, held.saturating_mul(POINT_BYTES))
        };
        if check(most, most).is_ok() {
            return Ok(());
        }
        let (mut with_points, mut groups) = (0, HashSet::new());
        let (mut held, mut values) = (budget.hold(0)?, Vec::new());
        let mut batches = access_path.last_times(self.range, compute, skip_damaged);
        while let Some(batch) = batches.try_next().await? {
            for (tsuid, _) in batch {
                with_points += 1;
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
