//! One aggregate of an interval as points at the starts of its intervals.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use oxtsdb_schema::{BaseTime, HOUR_SECONDS, RollupInterval, TagkUid, TagvUid};

use super::RollupSlot;
use crate::{
    ColumnStream, Columns, DamagedPart, Point, PointBatch, PointStore, PointStoreError, ReadEstimate,
    ReadRequest, SeriesNumber, SeriesReader, TagTest, TimeRange,
};

const HOUR_MS: i64 = HOUR_SECONDS as i64 * 1000;

/// One aggregate of the rollups of an interval, to read: a [`PointStore`] with the starts of intervals as instants, and
/// the series of the whole store. A range selects whole rows, those that begin in it, as a scan of rows does.
#[derive(Clone, Debug)]
pub struct RollupColumns {
    store: Arc<dyn PointStore>,
    calendar: Calendar,
    id: u8,
}

/// The instants of slots, which depend on the setting of the interval.
#[derive(Clone, Debug)]
struct Calendar {
    interval: Arc<RollupInterval>,
    /// The row that was converted last.
    row: Option<CalendarRow>,
}

/// The instants of a row.
#[derive(Clone, Copy, Debug)]
struct CalendarRow {
    /// Instants of offset 0, and of the first one behind the row.
    base_ms: i64,
    end_ms: i64,
    /// The slot of offset 0.
    first_slot: i64,
}

impl RollupColumns {
    /// The aggregate with an id in a store that holds the rollups of an interval.
    pub fn new(store: Arc<dyn PointStore>, interval: RollupInterval, id: u8) -> Self {
        let interval = Arc::new(interval);
        let calendar = Calendar { interval, row: None };
        Self { store, calendar, id }
    }

    /// The slots of the rows that begin in a range; `None` if there are none.
    fn slots(&self, range: TimeRange) -> Option<TimeRange> {
        let last_hour = i64::from(BaseTime::MAX.seconds() / HOUR_SECONDS);
        let first =
            range.first_ms.max(0).div_euclid(HOUR_MS) + i64::from(range.first_ms.max(0) % HOUR_MS != 0);
        let last = range.last_ms.div_euclid(HOUR_MS).min(last_hour);
        let hour = |hour: i64| u32::try_from(hour).ok();
        (first <= last).then_some(super::slots_of_hours(self.id, hour(first)?, hour(last)?))
    }
}

impl Calendar {
    /// Replaces slots by their instants.
    fn convert(&mut self, times_ms: &mut [i64]) -> Result<(), PointStoreError> {
        let length_ms = i64::from(self.interval.seconds()) * 1000;
        for time_ms in times_ms {
            let slot = *time_ms;
            let row = match self.row {
                Some(row) if slot & !i64::from(super::MAX_OFFSET) == row.first_slot => row,
                _ => *self.row.insert(self.row_of(RollupSlot::from_time_ms(slot))?),
            };
            *time_ms = row.base_ms + (slot - row.first_slot) * length_ms;
            if *time_ms >= row.end_ms {
                let slot = RollupSlot::from_time_ms(slot);
                return Err(misplaced(
                    &self.interval,
                    slot,
                    "its offset is beyond the row span",
                ));
            }
        }
        Ok(())
    }

    fn row_of(&self, slot: RollupSlot) -> Result<CalendarRow, PointStoreError> {
        let base = slot.base();
        if self.interval.base_time(base.seconds()) != base {
            return Err(misplaced(&self.interval, slot, "no row begins then"));
        }
        let length_ms = i64::from(self.interval.seconds()) * 1000;
        let is_within = |time_ms: i64| {
            u32::try_from(time_ms / 1000).is_ok_and(|seconds| self.interval.base_time(seconds) == base)
        };
        // Months and years have different lengths: the last interval of the longest row may be one of the next.
        let mut end_ms = base.millis() + i64::from(self.interval.intervals()) * length_ms;
        while end_ms > base.millis() && !is_within(end_ms - length_ms) {
            end_ms -= length_ms;
        }
        Ok(CalendarRow {
            base_ms: base.millis(),
            end_ms,
            first_slot: RollupSlot { offset: 0, ..slot }.time_ms(),
        })
    }
}

fn misplaced(interval: &RollupInterval, slot: RollupSlot, why: &str) -> PointStoreError {
    PointStoreError::Invalid(format!(
        "a rollup of interval `{}` has base time {} and offset {}: {why} (--rollups-config, rowSpan)",
        interval.name(),
        slot.base().seconds(),
        slot.offset
    ))
}

#[async_trait]
impl PointStore for RollupColumns {
    fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError> {
        self.store.numbers(keys)
    }

    fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        self.store.find(key)
    }

    fn is_durable(&self, series: SeriesNumber) -> bool {
        self.store.is_durable(series)
    }

    fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        self.store.key(series, key)
    }

    fn metrics(&self) -> Vec<Vec<u8>> {
        self.store.metrics()
    }

    fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber> {
        self.store.metric_series(metric)
    }

    fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber> {
        self.store.select(metric, tests)
    }

    fn select_few(&self, metric: &[u8], tests: &[TagTest], most: usize) -> Option<Vec<SeriesNumber>> {
        self.store.select_few(metric, tests, most)
    }

    fn series_count(&self, metric: &[u8]) -> u64 {
        self.store.series_count(metric)
    }

    fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid> {
        self.store.tag_values(metric, tagk)
    }

    /// Rejected: rollups are written as cells.
    fn append(&self, _: PointBatch) -> BoxFuture<'static, Result<(), PointStoreError>> {
        let error = PointStoreError::Invalid("an aggregate is only read".to_owned());
        std::future::ready(Err(error)).boxed()
    }

    fn read(&self, request: ReadRequest) -> ColumnStream {
        let Some(range) = self.slots(request.range) else {
            return futures::stream::empty().boxed();
        };
        let mut calendar = self.calendar.clone();
        let items = self.store.read(ReadRequest { range, ..request });
        let converted = items.and_then(move |mut item| {
            let converted = item
                .iter_mut()
                .try_for_each(|columns| calendar.convert(&mut columns.times_ms));
            std::future::ready(converted.map(|()| item))
        });
        converted.boxed()
    }

    fn reader(&self, range: TimeRange) -> Result<Box<dyn SeriesReader>, PointStoreError> {
        let slots = self.slots(range);
        Ok(Box::new(AggregateReader {
            reader: slots.map(|slots| self.store.reader(slots)).transpose()?,
            calendar: self.calendar.clone(),
        }))
    }

    fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate {
        let slots = self.slots(range);
        slots.map_or_else(ReadEstimate::default, |slots| self.store.estimate(series, slots))
    }

    fn points_in_memory(&self, series: &[SeriesNumber], range: TimeRange) -> Option<u64> {
        match self.slots(range) {
            Some(slots) => self.store.points_in_memory(series, slots),
            None => Some(0),
        }
    }

    async fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError> {
        let Some(slots) = self.slots(range) else {
            return Ok(vec![None; series.len()]);
        };
        let mut last = self.store.last(series, slots).await?;
        let mut calendar = self.calendar.clone();
        for point in last.iter_mut().flatten() {
            calendar.convert(std::slice::from_mut(&mut point.time_ms))?;
        }
        Ok(last)
    }

    /// Rejected: rollups are deleted as cells.
    async fn delete(&self, _: &[SeriesNumber], _: TimeRange) -> Result<(), PointStoreError> {
        Err(PointStoreError::Invalid("an aggregate is only read".to_owned()))
    }

    async fn check_health(&self) -> Result<(), PointStoreError> {
        self.store.check_health().await
    }

    fn damage(&self) -> Vec<DamagedPart> {
        self.store.damage()
    }

    /// The damage that may have cost values of the aggregate, for the whole range.
    fn lost(&self, series: &[SeriesNumber], range: TimeRange) -> Vec<DamagedPart> {
        let Some(slots) = self.slots(range) else {
            return Vec::new();
        };
        let mut lost = self.store.lost(series, slots);
        lost.iter_mut().for_each(|part| part.range = range);
        lost
    }

    /// Nothing: the owner of the store closes it.
    async fn close(&self) -> Result<(), PointStoreError> {
        Ok(())
    }
}

/// Reads an aggregate; without a reader there is nothing in the range.
#[derive(Debug)]
struct AggregateReader {
    reader: Option<Box<dyn SeriesReader>>,
    calendar: Calendar,
}

impl SeriesReader for AggregateReader {
    fn announce(&mut self, series: &[SeriesNumber]) {
        if let Some(reader) = &mut self.reader {
            reader.announce(series);
        }
    }

    fn is_empty(&self) -> bool {
        self.reader.as_ref().is_none_or(|reader| reader.is_empty())
    }

    fn read(&mut self, series: SeriesNumber, points: &mut Columns) -> Result<(), PointStoreError> {
        match &mut self.reader {
            Some(reader) => {
                reader.read(series, points)?;
                self.calendar.convert(&mut points.times_ms)
            }
            None => {
                points.clear();
                Ok(())
            }
        }
    }

    fn last(&mut self, series: SeriesNumber) -> Result<Option<Point>, PointStoreError> {
        let Some(reader) = &mut self.reader else {
            return Ok(None);
        };
        let mut last = reader.last(series)?;
        if let Some(point) = &mut last {
            self.calendar.convert(std::slice::from_mut(&mut point.time_ms))?;
        }
        Ok(last)
    }
}
