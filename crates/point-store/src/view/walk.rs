//! The rows of points in order of their keys.
//!
//! ```text
//!   rows    salt, metric │ hour │ tags        parts of the point store:  metric │ series │ time
//!           └── lane ───┘
//!   window  some series of one hour, or all series of some hours: read by series, emitted by hour
//! ```
//!
//! The walk goes through the lanes, and through each lane from window to window. A window has a bounded number of bytes:
//! it grows while little is found, first to all series of the lane, then to several hours, so that a lane of few
//! series, or hours without points, take few reads; it shrinks when it becomes full. A seek hint that leads out of the
//! window starts again there with a small one.

use std::sync::Arc;

use oxtsdb_row_store::{
    DamageLog, Row, RowBuilder, RowFilter, Scan, StoreError, TableDef, TableName, prefix_end,
};
use oxtsdb_schema::{BaseTime, RowKeyLayout};

use super::columns::{PointColumns, push_cells};
use super::damage::check_damage;
use super::form::CellForm;
use super::place::HOUR_SECONDS;
use super::window::{Read, Window, WindowSize, read};
use crate::{DamagedPart, PointStore, SeriesNumber};

/// The factor by which a window grows.
const GROWTH: usize = 4;

/// Bytes of rows at which a batch ends.
const BATCH_BYTES: usize = 1 << 20;

/// The rows of points within a range, as a scan requests them.
#[derive(Debug)]
pub(super) struct PointRows {
    points: Arc<dyn PointStore>,
    layout: RowKeyLayout,
    table: TableName,
    families: Arc<[String]>,
    /// The family of points, if the table has it.
    family: Option<usize>,
    form: CellForm,
    columns: PointColumns,
    filter: Option<RowFilter>,
    reverse: bool,
    /// The remaining range.
    start: Vec<u8>,
    stop: Vec<u8>,
    damage: Vec<DamagedPart>,
    skip_damaged: Option<DamageLog>,
    /// Metric UIDs, ascending, as all lanes have them.
    metrics: Vec<Vec<u8>>,
    /// Lanes that were begun.
    lanes: usize,
    lane: Option<Lane>,
    window: Option<Window>,
    size: WindowSize,
    /// The most series and hours of the next window.
    series: usize,
    hours: i64,
    key: Vec<u8>,
}

/// The rows of a metric with one salt.
#[derive(Debug)]
struct Lane {
    /// Salt and metric.
    prefix: Vec<u8>,
    /// In the order of the walk.
    series: Vec<SeriesNumber>,
    /// The hour at which the next window starts.
    hour: i64,
    index: usize,
    /// The last hour of the walk.
    last_hour: i64,
    /// The place of the first series of the window.
    window_index: usize,
}

impl PointRows {
    pub(super) fn new(
        points: Arc<dyn PointStore>,
        layout: RowKeyLayout,
        def: &TableDef,
        (columns, form): (PointColumns, CellForm),
        scan: &Scan,
        size: WindowSize,
    ) -> Self {
        let family = String::from_utf8_lossy(oxtsdb_schema::data_table::FAMILY);
        Self {
            layout,
            table: def.name.clone(),
            families: def.families.iter().map(|family| family.name.clone()).collect(),
            family: def.family_index(&family),
            form,
            columns,
            filter: scan.filter.clone(),
            reverse: scan.reverse,
            start: scan.start.clone(),
            stop: scan.stop.clone(),
            damage: points.damage(),
            skip_damaged: scan.skip_damaged.clone(),
            metrics: points.metrics(),
            lanes: 0,
            lane: None,
            window: None,
            size,
            series: size.first_series,
            hours: 1,
            key: Vec::new(),
            points,
        }
    }

    /// The next rows, at least one and at most `most`; none at the end.
    pub(super) async fn next_batch(&mut self, most: usize) -> Result<Vec<Row>, StoreError> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        loop {
            while rows.len() < most && bytes < BATCH_BYTES {
                let Some(row) = self.next_row()? else { break };
                bytes += row.byte_len();
                rows.push(row);
            }
            if !rows.is_empty() || !self.load().await? {
                return Ok(rows);
            }
        }
    }

    /// The next row of the window.
    fn next_row(&mut self) -> Result<Option<Row>, StoreError> {
        loop {
            let (Some(lane), Some(window)) = (&self.lane, &mut self.window) else {
                return Ok(None);
            };
            let Some(row) = window.next_row() else {
                self.window = None;
                return Ok(None);
            };
            let series = lane.series[lane.window_index + row.place];
            write_key(
                &*self.points,
                &self.layout,
                lane,
                (row.hour, series),
                &mut self.key,
            );
            let is_before = self.key < self.start;
            let is_behind = !self.stop.is_empty() && self.key >= self.stop;
            if is_before || is_behind {
                if is_before == self.reverse {
                    self.end();
                }
                continue;
            }
            let filter = self.filter.as_ref().filter(|filter| !filter.keeps(&self.key));
            if let Some(filter) = filter {
                if let Some(target) = filter.seek_after(&self.key).filter(|_| !self.reverse) {
                    self.seek(target);
                }
                continue;
            }
            let family = self.family.ok_or_else(|| StoreError::NoSuchFamily {
                table: self.table.clone(),
                family: String::from_utf8_lossy(oxtsdb_schema::data_table::FAMILY).into_owned(),
            })?;
            let mut cells = RowBuilder::new(&self.key, Arc::clone(&self.families));
            if matches!(self.columns, PointColumns::All) {
                cells.reserve(row.len(), row.len() * 6);
            }
            push_cells(&mut cells, family, row.points(), &self.columns, &self.form);
            if let Some(row) = cells.finish() {
                return Ok(Some(row));
            }
        }
    }

    /// Ends the walk.
    fn end(&mut self) {
        self.lanes = usize::MAX;
        (self.lane, self.window) = (None, None);
    }

    /// Continues at the first key that is not less than `target`.
    fn seek(&mut self, target: Vec<u8>) {
        self.start = target;
        let Some(lane) = &self.lane else { return };
        let end = prefix_end(&lane.prefix);
        if !end.is_empty() && self.start >= end {
            (self.lane, self.window) = (None, None);
        } else {
            let (hour, index) = self.position(&lane.prefix, &lane.series);
            if (hour, index) <= (lane.hour, lane.index) {
                // Within the window, or right behind it: its rows before the target are skipped one by one.
                return;
            }
            self.window = None;
            if let Some(lane) = &mut self.lane {
                (lane.hour, lane.index) = (hour, index);
            }
        }
        (self.series, self.hours) = (self.size.first_series, 1);
    }

    /// Reads the next window that has rows; `false` at the end of the walk.
    async fn load(&mut self) -> Result<bool, StoreError> {
        loop {
            let lane = self.lane.as_ref();
            let remaining = lane.map_or(0, |lane| self.step() * (lane.last_hour - lane.hour) + 1);
            let Some(lane) = lane.filter(|_| remaining > 0) else {
                if !self.next_lane() {
                    return Ok(false);
                }
                continue;
            };
            let count = lane.series.len();
            let to = lane.index.saturating_add(self.series).min(count);
            let is_whole = lane.index == 0 && to == count;
            let hours = if is_whole { self.hours.min(remaining) } else { 1 };
            let far = lane.hour + self.step() * (hours - 1);
            let ranges = self.form.ranges(far.min(lane.hour)..=far.max(lane.hour));
            let overlaps = |part: &DamagedPart| ranges.iter().any(|range| part.range.overlaps(range));
            if hours > 1 && self.damage.iter().any(overlaps) {
                // Only rows of hours with damage are affected.
                self.hours = hours / 2;
                continue;
            }
            let series = &lane.series[lane.index..to];
            let log = self.skip_damaged.as_ref();
            for range in &ranges {
                check_damage(&*self.points, &self.table, series, *range, log)?;
            }
            let read = read(&*self.points, series, &ranges, self.size.bytes, hours > 1).await;
            let damage = self.points.damage();
            if damage != self.damage {
                // Parts were set aside, by this read or another one: read again without them.
                self.damage = damage;
                continue;
            }
            let Some(read) = read? else {
                self.hours = (hours / 8).max(1);
                continue;
            };
            // A filter that rejects all rows leaves no other point at which the task could yield.
            tokio::task::yield_now().await;
            let is_empty = read.columns.is_empty();
            self.advance(read, hours, is_whole);
            if !is_empty {
                return Ok(true);
            }
        }
    }

    /// Takes a window that was read, moves behind it, and adapts the size of the next one.
    fn advance(&mut self, read: Read, hours: i64, is_whole: bool) {
        let step = self.step();
        let Some(lane) = &mut self.lane else { return };
        lane.window_index = lane.index;
        let end = lane.index + read.end;
        if end < lane.series.len() {
            lane.index = end;
        } else {
            lane.hour += step * hours;
            lane.index = 0;
        }
        if read.bytes >= self.size.bytes {
            self.series = read.end.max(self.size.first_series);
            self.hours = (hours / 2).max(1);
        } else if read.bytes < self.size.bytes / GROWTH {
            if is_whole {
                self.hours = self.hours.saturating_mul(GROWTH as i64).min(max_hour() + 1);
            } else {
                self.series = self.series.saturating_mul(GROWTH).min(lane.series.len());
            }
        }
        self.window = Some(Window::new(read, self.reverse, &self.form));
    }

    /// Begins the next lane with series and rows in the range; `false` if there is none.
    fn next_lane(&mut self) -> bool {
        self.lane = None;
        let buckets = self.layout.salt.buckets();
        let buckets = usize::try_from(buckets.end - buckets.start).unwrap_or(usize::MAX);
        let count = buckets.saturating_mul(self.metrics.len());
        while self.lanes < count {
            let number = if self.reverse {
                count - 1 - self.lanes
            } else {
                self.lanes
            };
            self.lanes += 1;
            let metric = &self.metrics[number % self.metrics.len()];
            let bucket = u32::try_from(number / self.metrics.len()).unwrap_or(u32::MAX);
            let salt = self.layout.salt.bytes_of(bucket);
            let prefix = [salt.as_bytes(), metric].concat();
            let end = prefix_end(&prefix);
            let is_before = !end.is_empty() && end <= self.start;
            let is_behind = !self.stop.is_empty() && prefix >= self.stop;
            if is_before || is_behind {
                continue;
            }
            let mut series = self.points.metric_series(metric);
            if self.layout.salt.width() > 0 {
                let mut key = Vec::new();
                series.retain(|series| {
                    let layout = self.layout.salt;
                    let is_known = self.points.key(*series, &mut key);
                    is_known && layout.bytes_of(layout.bucket(&key)).as_bytes() == salt.as_bytes()
                });
            }
            if series.is_empty() {
                continue;
            }
            if self.reverse {
                series.reverse();
            }
            let (hour, index) = self.position(&prefix, &series);
            let last_key = if self.reverse { &self.start } else { &self.stop };
            let last_hour = match split(&prefix, last_key) {
                // Exclusive, and all rows of an hour have tags.
                Some((seconds, [])) if !self.reverse => {
                    (i64::from(seconds) - 1).div_euclid(HOUR_SECONDS.into())
                }
                Some((seconds, _)) => i64::from(seconds / HOUR_SECONDS),
                None if self.reverse => 0,
                None => max_hour(),
            };
            self.lane = Some(Lane {
                prefix,
                series,
                hour,
                index,
                last_hour,
                window_index: 0,
            });
            (self.series, self.hours) = (self.size.first_series, 1);
            return true;
        }
        false
    }

    /// The hour and the series with which the remaining range begins in a lane that it overlaps.
    fn position(&self, prefix: &[u8], series: &[SeriesNumber]) -> (i64, usize) {
        let first_key = if self.reverse { &self.stop } else { &self.start };
        let Some((seconds, tags)) = split(prefix, first_key) else {
            return (if self.reverse { max_hour() } else { 0 }, 0);
        };
        let hour = i64::from(seconds / HOUR_SECONDS);
        if !seconds.is_multiple_of(HOUR_SECONDS) {
            // The range begins between two hours.
            return (hour + i64::from(!self.reverse), 0);
        }
        let mut key = Vec::new();
        let metric = self.layout.widths.metric.bytes();
        let index = series.partition_point(|series| {
            key.clear();
            self.points.key(*series, &mut key);
            (key.get(metric..).unwrap_or_default() < tags) != self.reverse
        });
        if index == series.len() {
            return (hour + self.step(), 0);
        }
        (hour, index)
    }

    const fn step(&self) -> i64 {
        if self.reverse { -1 } else { 1 }
    }
}

/// The last hour that a row key can hold.
fn max_hour() -> i64 {
    i64::from(BaseTime::MAX.seconds() / HOUR_SECONDS)
}

/// Base time and tags of a key, or of the beginning of one, in a lane; `None` for keys outside.
fn split<'a>(prefix: &[u8], key: &'a [u8]) -> Option<(u32, &'a [u8])> {
    let rest = key.strip_prefix(prefix)?;
    let mut seconds = [0; 4];
    for (byte, key_byte) in seconds.iter_mut().zip(rest) {
        *byte = *key_byte;
    }
    Some((u32::from_be_bytes(seconds), rest.get(4..).unwrap_or_default()))
}

/// Replaces `key` by the row key of a series in an hour.
fn write_key(
    points: &dyn PointStore,
    layout: &RowKeyLayout,
    lane: &Lane,
    (hour, series): (i64, SeriesNumber),
    key: &mut Vec<u8>,
) {
    points.key(series, key);
    let seconds = u32::try_from(hour * i64::from(HOUR_SECONDS)).unwrap_or(u32::MAX);
    let metric = layout.widths.metric.bytes().min(key.len());
    let base = seconds.to_be_bytes();
    key.splice(..metric, lane.prefix.iter().copied().chain(base));
}
