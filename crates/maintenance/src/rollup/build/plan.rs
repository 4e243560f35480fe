//! The plan of a build of rollups: intervals, their tables and aggregates, and the range in chunks.

use oxtsdb_point_store::TimeRange;
use oxtsdb_query::Rollups;
use oxtsdb_row_store::TableName;
use oxtsdb_schema::rollup::{MAX_OFFSET, RowSpan};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{RollupInterval, RowKeyLayout, TagkUid, TagvUid, Tsuid};

use super::window::{AGGREGATES, Accumulator, Window};

const HOUR_SECONDS: u32 = 3600;
const DAY_SECONDS: u32 = 86_400;

/// Why rollups cannot be built as requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No rollups.
    #[error("rollups are not configured (--rollups-config)")]
    NotConfigured,
    /// No aggregate that is built has an id.
    #[error("--rollups-config has no aggregation id for sum, count, min or max")]
    NoAggregates,
    /// Nothing to build.
    #[error("--rollups-config has no interval whose rollups can be built")]
    NoIntervals,
    /// An interval that is not configured.
    #[error("interval `{interval}` is not one of --rollups-config")]
    UnknownInterval {
        /// Its text.
        interval: String,
    },
    /// The interval of points.
    #[error("interval `{interval}` is the default interval, which has points in place of rollups")]
    DefaultInterval {
        /// Its text.
        interval: String,
    },
    /// Windows of downsampling that do not begin where intervals of rows do.
    #[error("interval `{interval}` does not divide the row spans of its table, so its windows have no cells")]
    Unaligned {
        /// Its text.
        interval: String,
    },
    /// Rows with intervals that cannot be stored.
    #[error("a row of interval `{interval}` has {intervals} intervals, at most {} can be stored", MAX_OFFSET + 1)]
    TooManyIntervals {
        /// Its text.
        interval: String,
        /// Intervals of a row.
        intervals: u16,
    },
}

/// An interval to build.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) interval: RollupInterval,
    pub(super) table: TableName,
    /// The aggregates that have ids.
    pub(super) ids: Vec<(&'static str, u8)>,
    /// Its whole intervals in the range of the build, in seconds; the end is exclusive.
    range: (u32, u32),
}

/// A build.
#[derive(Clone, Debug)]
pub(super) struct BuildPlan {
    pub(super) targets: Vec<Target>,
    /// The range, in seconds; the end is exclusive.
    pub(super) range: (u32, u32),
    pub(super) layout: RowKeyLayout,
    /// The tag that rollups of single series get.
    pub(super) raw_tag: Option<(TagkUid, TagvUid)>,
}

/// Windows of one row of a rollup table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BuiltRow {
    /// The index of its target.
    pub(super) target: usize,
    pub(super) key: Vec<u8>,
    /// By offset in the row, ascending.
    pub(super) windows: Vec<(u16, Window)>,
}

impl BuiltRow {
    /// Its memory, roughly.
    pub(super) fn byte_len(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.windows.len() * size_of::<(u16, Window)>()
    }
}

impl Target {
    fn new(interval: &RollupInterval, rollups: &Rollups, range: (u32, u32)) -> Result<Self, PlanError> {
        let name = || interval.name().to_owned();
        let seconds = interval.seconds();
        if interval.is_default() {
            return Err(PlanError::DefaultInterval { interval: name() });
        }
        let step = match interval.row_span() {
            RowSpan::Hours(hours) => hours * HOUR_SECONDS,
            RowSpan::Day | RowSpan::Month | RowSpan::Year => DAY_SECONDS,
        };
        if !step.is_multiple_of(seconds) {
            return Err(PlanError::Unaligned { interval: name() });
        }
        if interval.intervals() > MAX_OFFSET + 1 {
            return Err(PlanError::TooManyIntervals {
                interval: name(),
                intervals: interval.intervals(),
            });
        }
        let config = rollups.config();
        let ids = AGGREGATES
            .iter()
            .filter_map(|name| Some((*name, config.id(name).ok()?)));
        let ids: Vec<_> = ids.collect();
        if ids.is_empty() {
            return Err(PlanError::NoAggregates);
        }
        let table = rollups.table(interval.table()).cloned();
        Ok(Self {
            interval: interval.clone(),
            // Tables of the configuration have been parsed.
            table: table.ok_or(PlanError::NotConfigured)?,
            ids,
            range: (ceil(range.0, seconds), range.1 - range.1 % seconds),
        })
    }

    /// The windows that begin in a chunk, in seconds; the end is exclusive. Both are starts of windows.
    fn windows_of(&self, chunk: (u32, u32)) -> (u32, u32) {
        let seconds = self.interval.seconds();
        let start = ceil(chunk.0, seconds).max(self.range.0);
        (start, ceil(chunk.1, seconds).min(self.range.1).max(start))
    }
}

fn ceil(seconds: u32, multiple: u32) -> u32 {
    seconds
        .checked_next_multiple_of(multiple)
        .unwrap_or(u32::MAX - u32::MAX % multiple)
}

impl BuildPlan {
    /// The plan of a range in seconds, its end exclusive, and of some intervals; none: all that can be built.
    pub(super) fn new(
        rollups: Option<&Rollups>,
        range: (u32, u32),
        intervals: &[String],
        layout: RowKeyLayout,
    ) -> Result<Self, PlanError> {
        let rollups = rollups.ok_or(PlanError::NotConfigured)?;
        let config = rollups.config();
        let mut targets = Vec::new();
        if intervals.is_empty() {
            for interval in config.intervals() {
                match Target::new(interval, rollups, range) {
                    Ok(target) => targets.push(target),
                    Err(error @ (PlanError::NoAggregates | PlanError::NotConfigured)) => return Err(error),
                    Err(_) => {}
                }
            }
        }
        for name in intervals {
            let interval = config.interval(name).ok_or_else(|| PlanError::UnknownInterval {
                interval: name.clone(),
            })?;
            if !targets
                .iter()
                .any(|target: &Target| target.interval.name() == name)
            {
                targets.push(Target::new(interval, rollups, range)?);
            }
        }
        if targets.is_empty() {
            return Err(PlanError::NoIntervals);
        }
        Ok(Self {
            targets,
            range,
            layout,
            raw_tag: None,
        })
    }

    /// An accumulator for each target, of the windows that begin in a chunk.
    pub(super) fn accumulators(&self, chunk: (u32, u32)) -> Vec<Accumulator> {
        let accumulator = |target: &Target| {
            let (start, stop) = target.windows_of(chunk);
            let millis = |seconds: u32| i64::from(seconds) * 1000;
            Accumulator::new(millis(target.interval.seconds()), (millis(start), millis(stop)))
        };
        self.targets.iter().map(accumulator).collect()
    }

    /// The seconds of points that the windows beginning in a chunk need, the end exclusive; `None`: it has no windows.
    pub(super) fn points_of(&self, chunk: (u32, u32)) -> Option<(u32, u32)> {
        let ranges = self.targets.iter().map(|target| target.windows_of(chunk));
        let ranges = ranges.filter(|(start, stop)| start < stop);
        ranges.reduce(|(start, stop), (from, to)| (start.min(from), stop.max(to)))
    }

    /// The chunk of a length, a multiple of it from the epoch, that begins at a second or contains it; `None` after the
    /// range.
    pub(super) fn chunk(&self, from: u32, length: u32) -> Option<(u32, u32)> {
        let start = from.max(self.range.0);
        let stop = start.saturating_add(1).checked_next_multiple_of(length);
        (start < self.range.1).then(|| (start, stop.unwrap_or(u32::MAX).min(self.range.1)))
    }

    /// How many chunks of a length begin before a second.
    pub(super) fn chunks_before(&self, second: u32, length: u32) -> u64 {
        let second = second.clamp(self.range.0, self.range.1);
        if second == self.range.0 {
            return 0;
        }
        u64::from(second.div_ceil(length) - self.range.0 / length)
    }

    /// The series of the rollups of a series of points.
    pub(super) fn rollup_tsuid<'a>(&self, tsuid: &'a [u8], changed: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(raw_tag) = self.raw_tag else {
            return tsuid;
        };
        let Ok(series) = Tsuid::from_bytes(tsuid, &self.layout.widths) else {
            return tsuid;
        };
        let mut tags: Vec<_> = series.tags(&self.layout.widths).collect();
        tags.push(raw_tag);
        changed.clear();
        match Tsuid::new(series.metric(&self.layout.widths), &mut tags) {
            Ok(series) => changed.extend_from_slice(series.as_bytes()),
            // It has the tag.
            Err(_) => changed.extend_from_slice(tsuid),
        }
        changed
    }

    /// Removes the windows that have instants of some ranges.
    pub(super) fn leave_out(&self, rows: &mut Vec<BuiltRow>, lost: &[TimeRange]) {
        if lost.is_empty() {
            return;
        }
        for row in &mut *rows {
            let seconds = self
                .targets
                .get(row.target)
                .map(|target| target.interval.seconds());
            let length_ms = i64::from(seconds.unwrap_or(0)) * 1000;
            row.windows.retain(|(_, window)| {
                let range = TimeRange {
                    first_ms: window.start_ms,
                    last_ms: window.start_ms + length_ms - 1,
                };
                !lost.iter().any(|lost| lost.overlaps(&range))
            });
        }
        rows.retain(|row| !row.windows.is_empty());
    }

    /// Adds a window of the series of rollups `tsuid` to its row.
    pub(super) fn place(&self, target: usize, tsuid: &[u8], window: Window, rows: &mut Vec<BuiltRow>) {
        let Some(interval) = self.targets.get(target).map(|target| &target.interval) else {
            return;
        };
        // The plan has checked that offsets fit, and windows begin in its range.
        let seconds = u32::try_from(window.start_ms / 1000).unwrap_or(u32::MAX);
        let Ok((base, offset)) = interval.place(seconds) else {
            return;
        };
        let mut key = Vec::new();
        write_row_key(&self.layout, tsuid, base, &mut key);
        match rows.iter_mut().rev().find(|row| row.target == target) {
            Some(row) if row.key == key => row.windows.push((offset, window)),
            _ => rows.push(BuiltRow {
                target,
                key,
                windows: vec![(offset, window)],
            }),
        }
    }
}

#[cfg(test)]
mod tests;
