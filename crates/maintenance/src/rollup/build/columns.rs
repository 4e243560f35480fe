//! Reads the points of series that are in columns.

use std::sync::Arc;

use oxtsdb_point_store::view::check_damage;
use oxtsdb_point_store::{
    Columns, PointStore, PointStoreError, SeriesNumber, SeriesReader, TimeRange, ValueKind,
};
use oxtsdb_query::{Number, QueryError};
use oxtsdb_row_store::{StoreError, TableName};

use super::SkipLog;
use super::plan::{BuildPlan, BuiltRow};

/// Points that a job reads, about.
const JOB_POINTS: u64 = 256 << 10;

/// Series that a job reads at most.
const JOB_SERIES: u64 = 256;

/// Points of a series that are in memory at a time, about.
const SERIES_POINTS: u64 = 1 << 20;

/// Damaged parts that the read of a series may find.
const DAMAGED_PARTS: usize = 1000;

/// How a chunk is read: the series of a job, and the parts of the chunk in which a series is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) series: usize,
    parts: u64,
}

impl Shape {
    /// By an estimate of the points of some series.
    pub(super) fn from_estimate(
        points: &dyn PointStore,
        series: &[SeriesNumber],
        seconds: (u32, u32),
    ) -> Self {
        let mut ascending = series.to_vec();
        ascending.sort_unstable();
        let estimate = points.estimate(&ascending, range(seconds));
        let each = estimate.points / (series.len() as u64).max(1);
        let series = JOB_POINTS
            .checked_div(each)
            .unwrap_or(JOB_SERIES)
            .clamp(1, JOB_SERIES);
        Self {
            series: usize::try_from(series).unwrap_or(1),
            parts: each.div_ceil(SERIES_POINTS).max(1),
        }
    }
}

fn range((start, stop): (u32, u32)) -> TimeRange {
    TimeRange {
        first_ms: i64::from(start) * 1000,
        last_ms: i64::from(stop) * 1000 - 1,
    }
}

/// The rows of some series, and how many points they have. Reads files: for the computation threads.
pub(super) fn build(
    points: &Arc<dyn PointStore>,
    table: &TableName,
    series: &[SeriesNumber],
    plan: &BuildPlan,
    (chunk, shape): ((u32, u32), Shape),
    skips: Option<&SkipLog>,
) -> Result<(Vec<BuiltRow>, u64), QueryError> {
    let Some(seconds) = plan.points_of(chunk) else {
        return Ok((Vec::new(), 0));
    };
    let mut readers = parts(seconds, shape.parts)
        .map(|part| points.reader(range(part)))
        .collect::<Result<Vec<_>, PointStoreError>>()
        .map_err(StoreError::from)?;
    let (mut rows, mut count) = (Vec::new(), 0);
    let (mut columns, mut values) = (Columns::default(), Vec::new());
    let (mut tsuid, mut changed) = (Vec::new(), Vec::new());
    if let Some(first) = readers.first_mut() {
        first.announce(series);
    }
    for series in series {
        points.key(*series, &mut tsuid);
        let tsuid = plan.rollup_tsuid(&tsuid, &mut changed);
        let mut accumulators = plan.accumulators(chunk);
        let mut built: Vec<BuiltRow> = Vec::new();
        for reader in &mut readers {
            read(&mut **reader, *series, &mut columns, skips.is_some())?;
            count += columns.len() as u64;
            values.clear();
            values.extend(
                columns
                    .kinds
                    .iter()
                    .zip(&columns.bits)
                    .map(|(kind, bits)| match kind.value() {
                        ValueKind::Int => Number::Int(bits.cast_signed()).as_f64(),
                        _ => f64::from_bits(*bits),
                    }),
            );
            let mut from = 0;
            let is_int = |kind: &oxtsdb_point_store::PointKind| kind.value() == ValueKind::Int;
            for run in columns.kinds.chunk_by(|one, next| is_int(one) == is_int(next)) {
                let span = from..from + run.len();
                from = span.end;
                let (Some(times_ms), Some(values)) = (columns.times_ms.get(span.clone()), values.get(span))
                else {
                    continue;
                };
                let are_ints = run.first().is_some_and(is_int);
                for (target, accumulator) in accumulators.iter_mut().enumerate() {
                    accumulator.feed(times_ms, values, are_ints, &mut |window| {
                        plan.place(target, tsuid, window, &mut built);
                    });
                }
            }
        }
        for (target, accumulator) in accumulators.iter_mut().enumerate() {
            accumulator.advance(i64::MAX, &mut |window| {
                plan.place(target, tsuid, window, &mut built)
            });
        }
        rows.append(&mut built);
    }
    // Parts may be set aside by a read.
    let Some(skips) = skips else {
        check_damage(&**points, table, series, range(seconds), None)?;
        return Ok((rows, count));
    };
    let lost = points.lost(series, range(seconds));
    for part in &lost {
        skips.add(&format!("{}: {}", part.path.display(), part.detail));
    }
    let lost: Vec<TimeRange> = lost.iter().map(|part| part.range).collect();
    plan.leave_out(&mut rows, &lost);
    Ok((rows, count))
}

/// Reads a series. The read that finds a damaged part sets it aside; a build that skips damage reads the series again
/// without it.
fn read(
    reader: &mut dyn SeriesReader,
    series: SeriesNumber,
    columns: &mut Columns,
    skips: bool,
) -> Result<(), StoreError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match reader.read(series, columns) {
            Err(PointStoreError::Damaged { .. }) if skips && attempts <= DAMAGED_PARTS => {}
            read => return Ok(read?),
        }
    }
}

/// A range in equal parts.
fn parts((start, stop): (u32, u32), count: u64) -> impl Iterator<Item = (u32, u32)> {
    let length = u64::from(stop - start);
    let count = count.clamp(1, length.max(1));
    let at = move |part: u64| start + u32::try_from(length * part / count).unwrap_or(u32::MAX);
    (0..count).map(move |part| (at(part), at(part + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range() {
        assert_eq!(parts((10, 20), 1).collect::<Vec<_>>(), [(10, 20)]);
        assert_eq!(
            parts((10, 20), 3).collect::<Vec<_>>(),
            [(10, 13), (13, 16), (16, 20)]
        );
        assert_eq!(parts((10, 12), 9).collect::<Vec<_>>(), [(10, 11), (11, 12)]);
    }
}
