//! Reading a series from the parts of a day.

use std::sync::Arc;

use super::Days;
use super::day::{DayList, DayPart};
use super::points::{delete, settle};
use crate::parts::part::{Columns, Decoder};
use crate::parts::series::SeriesKey;
use crate::{BlockSummary, Point, PointStoreError, TimeRange};

impl Days {
    /// Appends the points of a series on all days that are in a range and not deleted, ascending by instant, the
    /// newest of each.
    ///
    /// # Errors
    ///
    /// As [`Days::read_day`].
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
    /// Errors of the disk; [`PointStoreError::Damaged`] for the read that finds a damaged part, which is then set
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
        self.with_day(list, |list| {
            points.truncate(first);
            list.read(key, range, decoder, points)
        })
    }

    /// As [`Days::read_day`], but summarizes blocks that `summarizes` accepts, if one part only may have points of the
    /// range and none was deleted.
    ///
    /// # Errors
    ///
    /// As [`Days::read_day`].
    pub fn summarize_day(
        &self,
        list: &Arc<DayList>,
        key: SeriesKey,
        range: TimeRange,
        summarizes: &dyn Fn(&BlockSummary) -> bool,
        decoder: &mut Decoder,
        (points, summaries): (&mut Columns, &mut Vec<BlockSummary>),
    ) -> Result<(), PointStoreError> {
        let before = (points.len(), summaries.len());
        self.with_day(list, |list| {
            points.truncate(before.0);
            summaries.truncate(before.1);
            let overlaps = |part: &&Arc<DayPart>| part.range().is_some_and(|own| own.overlaps(&range));
            let mut parts = list.parts.iter().filter(overlaps);
            match (parts.next(), parts.next()) {
                (Some(part), None) if list.tombstones.is_empty() => {
                    let out = (&mut *points, &mut *summaries);
                    part.part().read_summarized(key, range, summarizes, decoder, out)
                }
                _ => list.read(key, range, decoder, points),
            }
        })
    }

    /// The newest point of a series on a day, in a range; `points` is a buffer.
    ///
    /// # Errors
    ///
    /// As [`Days::read_day`].
    pub fn last_of_day(
        &self,
        list: &Arc<DayList>,
        key: SeriesKey,
        range: TimeRange,
        decoder: &mut Decoder,
        points: &mut Columns,
    ) -> Result<Option<Point>, PointStoreError> {
        self.with_day(list, |list| list.last(key, range, decoder, points))
    }

    /// Reads from the files of a day. If that fails because they were dropped or set aside meanwhile, reads from the
    /// remaining ones.
    fn with_day<T: Default>(
        &self,
        list: &Arc<DayList>,
        mut read: impl FnMut(&DayList) -> Result<T, PointStoreError>,
    ) -> Result<T, PointStoreError> {
        let mut list = Arc::clone(list);
        loop {
            let error = match read(&list) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match self.days_in(list.day.range()).pop() {
                // Dropped.
                None => return Ok(T::default()),
                Some(now) if Arc::ptr_eq(&now, &list) => return Err(self.set_aside(&list, error)?),
                Some(now) => list = now,
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
        let mut parts = 0;
        for part in &self.parts {
            if !part.range().is_some_and(|own| own.overlaps(&range)) {
                continue;
            }
            let first_of_part = points.len();
            part.part().read(key, range, decoder, points)?;
            if points.len() == first_of_part {
                continue;
            }
            parts += 1;
            if !self.tombstones.is_empty() {
                let deleted: Vec<TimeRange> = self.deleted(part, key.series).collect();
                delete(points, first_of_part, &deleted);
            }
        }
        if parts > 1 {
            settle(points, first);
        }
        Ok(())
    }

    /// The newest point of a series in a range.
    fn last(
        &self,
        key: SeriesKey,
        mut range: TimeRange,
        decoder: &mut Decoder,
        points: &mut Columns,
    ) -> Result<Option<Point>, PointStoreError> {
        let mut newest = None;
        for part in self.parts.iter().rev() {
            if !part.range().is_some_and(|own| own.overlaps(&range)) {
                continue;
            }
            points.truncate(0);
            let deleted: Vec<TimeRange> = self.deleted(part, key.series).collect();
            if deleted.is_empty() {
                part.part().read_last(key, range, decoder, points)?;
            } else {
                part.part().read(key, range, decoder, points)?;
                delete(points, 0, &deleted);
            }
            if let Some(point) = points.last() {
                // Of points of this instant, the newest part's counts.
                range.first_ms = point.time_ms.saturating_add(1);
                newest = Some(point);
            }
        }
        Ok(newest)
    }
}
