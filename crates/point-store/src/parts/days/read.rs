//! Reading a series from the parts of a day.

use std::sync::Arc;

use super::Days;
use super::day::DayList;
use super::points::{delete, settle};
use crate::parts::part::{Columns, Decoder};
use crate::parts::series::SeriesKey;
use crate::{PointStoreError, TimeRange};

impl Days {
    /// Appends the points of a series on all days that are in a range and not deleted, ascending by instant, the
    /// newest of each.
    ///
    /// # Errors
    ///
    /// Those of [`Days::read_day`].
    pub fn read(
        &self,
        key: SeriesKey,
        range: TimeRange,
        decoder: &mut Decoder,
        points: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let mut lists = self.days_in(range).into_iter();
        lists.try_for_each(|list| self.read_day(&list, key, range, decoder, points))
    }

    /// As [`Days::read`], of a day. Files of the list that were dropped or set aside meanwhile are not read.
    ///
    /// # Errors
    ///
    /// Those of the disk; [`PointStoreError::Damaged`] for the read that finds a damaged part, which is then set
    /// aside: later reads go on without it.
    pub fn read_day(
        &self,
        list: &Arc<DayList>,
        key: SeriesKey,
        range: TimeRange,
        decoder: &mut Decoder,
        points: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let first = points.len();
        let Err(mut error) = list.read(key, range, decoder, points) else {
            return Ok(());
        };
        let mut list = Arc::clone(list);
        loop {
            points.truncate(first);
            let now = self.days_in(list.day.range()).pop();
            match now {
                // Dropped.
                None => return Ok(()),
                Some(now) if Arc::ptr_eq(&now, &list) => return Err(self.set_aside(&list, error)?),
                Some(now) => list = now,
            }
            match list.read(key, range, decoder, points) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
    }
}

impl DayList {
    /// Appends points as [`Days::read_day`] does.
    pub(super) fn read(
        &self,
        key: SeriesKey,
        range: TimeRange,
        decoder: &mut Decoder,
        points: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let first = points.len();
        for part in &self.parts {
            if !part.range().is_some_and(|found| found.overlaps(&range)) {
                continue;
            }
            let first_of_part = points.len();
            part.part().read(key, range, decoder, points)?;
            if points.len() > first_of_part && !self.tombstones.is_empty() {
                let deleted: Vec<TimeRange> = self.deleted(part, key.series).collect();
                delete(points, first_of_part, &deleted);
            }
        }
        settle(points, first);
        Ok(())
    }
}
