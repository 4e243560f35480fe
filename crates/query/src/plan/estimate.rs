//! What a plan will read, as far as that can be known before.
//!
//! The number of series comes from the question or from the index; both know which series there are, not
//! which of them have points in the range, so that it is what there are at most. Rows of a scan are counted
//! by the store in some places of the range, spread over its hours:
//!
//! ```text
//!   hours     ├───────────┼───────────┼───────────┼───────────┤
//!   counted   ██          ██          ██          ██             from the beginning of each part, some rows
//! ```
//!
//! Where a part has more rows than are counted it is halved, and in the end its other hours are taken to be
//! like those.

use std::collections::VecDeque;
use std::fmt;

use oxtsdb_row_store::{RangeMeasure, RowStore, StoreError, TableName};
use oxtsdb_schema::{BaseTime, RowKeyLayout};

use crate::plan::access_path::{AccessPath, IndexUse};
use crate::plan::hours::Hours;
use crate::plan::query_plan::Plan;
use crate::storage::Storage;

/// Parts of a range in which rows are counted, over all its salt buckets.
const PARTS: usize = 8;

/// Rows that are counted of a part.
const ROWS_OF_A_PART: usize = 2048;

/// Parts with more rows than are counted are halved, so often over all salt buckets.
const SPLITS: usize = 32;

/// Rows that are counted of one hour, if it has more than those.
const ROWS_OF_AN_HOUR: usize = 65_536;

const HOUR_SECONDS: u64 = oxtsdb_schema::HOUR_SECONDS as u64;

/// How sure a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is so, as far as nobody writes meanwhile.
    Exact,
    /// There are not more.
    AtMost,
    /// A part was counted, and the rest taken to be like it.
    About,
}

/// A figure, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The figure.
    pub value: u64,
    /// How sure it is.
    pub certainty: Certainty,
    /// There are not fewer. Only that can refuse a query before it is run.
    pub at_least: u64,
}

/// What a plan will read; `None` where nobody can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Series that are wanted.
    pub series: Option<Figure>,
    /// Rows that are read, or whose keys are looked at by a scan that has to.
    pub rows: Option<Figure>,
    /// Bytes that these take in the store.
    pub bytes: Option<Figure>,
}

impl Figure {
    const fn new(value: u64, certainty: Certainty) -> Self {
        Self {
            value,
            certainty,
            at_least: match certainty {
                Certainty::Exact => value,
                Certainty::AtMost | Certainty::About => 0,
            },
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.certainty {
            Certainty::Exact => "",
            Certainty::AtMost => "at most ",
            Certainty::About => "about ",
        })?;
        write!(f, "{}", self.value)
    }
}

/// Rows and bytes that were counted, and what that makes of all.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    rows: f64,
    bytes: f64,
    /// Those that were seen.
    rows_seen: u64,
    is_part: bool,
}

impl Counted {
    /// Adds rows that stand for `factor` times as many.
    fn add(&mut self, measure: &RangeMeasure, factor: f64) {
        self.rows += as_f64(measure.rows) * factor;
        self.bytes += as_f64(measure.bytes) * factor;
        self.rows_seen += measure.rows;
        self.is_part |= factor > 1.0;
    }
}

/// What the plan will read. It looks at keys of some thousand rows at most, where the store can do
/// that cheaply, and at none for single rows.
///
/// # Errors
///
/// When the store fails.
pub async fn estimate(plan: &Plan, storage: &Storage) -> Result<Estimate, StoreError> {
    let series = match (&plan.access_path, plan.index_use) {
        (AccessPath::Rows(rows), _) => Some(rows.series().len() as u64),
        (AccessPath::Ranges(_), IndexUse::Resolved { matching, .. }) => Some(matching),
        (AccessPath::Ranges(_), _) => plan.selection.resolved_series().map(|series| series as u64),
    };
    let at_most = |value| match value {
        0 => Figure::new(0, Certainty::Exact),
        value => Figure::new(value, Certainty::AtMost),
    };
    let series = series.map(at_most);
    let ranges = match &plan.access_path {
        AccessPath::Rows(rows) => {
            return Ok(Estimate {
                series,
                rows: Some(at_most(rows.count())),
                bytes: (rows.count() == 0).then_some(Figure::new(0, Certainty::Exact)),
            });
        }
        AccessPath::Ranges(ranges) => ranges,
    };
    let counted = count(
        &*storage.store,
        &storage.table,
        ranges,
        plan.hours,
        &storage.layout,
    )
    .await?;
    let figures = counted.map(|counted| {
        let jumps = plan.selection.resolved_series();
        // Of the rows in the range those of the series that are jumped to.
        let share = match (jumps, plan.index_use) {
            (Some(series), IndexUse::Resolved { listed, .. }) if listed > 0 => ratio(series, listed),
            _ => 1.0,
        };
        let certainty = if counted.is_part || share < 1.0 {
            Certainty::About
        } else {
            Certainty::Exact
        };
        // Blocks are not read whole, and change.
        let bytes = Figure::new(rounded(counted.bytes * share), Certainty::About);
        let rows = Figure {
            at_least: if plan.selection.is_everything() {
                counted.rows_seen
            } else {
                // What the store leaves out is not read.
                0
            },
            ..Figure::new(rounded(counted.rows * share), certainty)
        };
        [rows, bytes]
    });
    Ok(Estimate {
        series,
        rows: figures.map(|[rows, _]| rows),
        bytes: figures.map(|[_, bytes]| bytes),
    })
}

/// Counts rows in parts of ranges, one range for each salt bucket; `None` if the store cannot.
async fn count(
    store: &dyn RowStore,
    table: &TableName,
    ranges: &[(Vec<u8>, Vec<u8>)],
    hours: Hours,
    layout: &RowKeyLayout,
) -> Result<Option<Counted>, StoreError> {
    let base_at = layout.salt.width() + layout.widths.metric.bytes();
    let looked_at = ranges.len().clamp(1, PARTS);
    let mut all = Counted::default();
    for (start, stop) in ranges.iter().take(looked_at) {
        let mut parts = VecDeque::from(parts(hours, PARTS / looked_at));
        let mut splits = SPLITS / looked_at;
        while let Some(part) = parts.pop_front() {
            let from = with_hour(start, base_at, u64::from(part.start.seconds()));
            let to = match part.stop_seconds {
                last if last == hours.stop_seconds => stop.clone(),
                seconds => with_hour(start, base_at, seconds),
            };
            let limit = match part.count() {
                0 | 1 => ROWS_OF_AN_HOUR,
                _ => ROWS_OF_A_PART,
            };
            let Some(measure) = store.measure(table, &from, &to, limit).await? else {
                return Ok(None);
            };
            let mut factor = 1.0;
            if let Some(last) = &measure.last_key {
                let last = last.get(base_at..).and_then(|rest| rest.first_chunk().copied());
                let last = u64::from(last.map_or(0, u32::from_be_bytes));
                // The last hour was not counted to its end.
                let counted_hours = last.saturating_sub(part.start.seconds().into()) / HOUR_SECONDS;
                // Where nothing is known of most hours, halves tell more than a guess.
                if part.count() > 1 && (splits > 0 || counted_hours == 0) {
                    splits = splits.saturating_sub(1);
                    let halves = self::parts(part, 2);
                    if splits > 0 {
                        parts.extend(halves);
                        continue;
                    }
                    // The first hour stands for all.
                    let end = with_hour(start, base_at, u64::from(part.start.seconds()) + HOUR_SECONDS);
                    if let Some(hour) = store.measure(table, &from, &end, ROWS_OF_AN_HOUR).await? {
                        all.add(&hour, ratio(part.count(), 1));
                    }
                    continue;
                }
                factor = ratio(part.count(), counted_hours.max(1)).max(1.0);
                all.is_part = true;
            }
            all.add(&measure, factor);
        }
    }
    let buckets = ratio(ranges.len(), looked_at as u64);
    all.is_part |= ranges.len() > looked_at;
    Ok(Some(Counted {
        rows: all.rows * buckets,
        bytes: all.bytes * buckets,
        ..all
    }))
}

/// Hours cut into so many parts, or fewer.
fn parts(hours: Hours, count: usize) -> Vec<Hours> {
    let length = hours.count().div_ceil(count.max(1)).max(1);
    let starts: Vec<BaseTime> = hours.iter().step_by(length).collect();
    let stops = starts.iter().skip(1).map(|start| u64::from(start.seconds()));
    let stops = stops.chain([hours.stop_seconds]);
    starts
        .iter()
        .zip(stops)
        .map(|(start, stop_seconds)| Hours {
            start: *start,
            stop_seconds,
        })
        .collect()
}

/// A key's salt and metric, and another hour.
fn with_hour(key: &[u8], base_at: usize, seconds: u64) -> Vec<u8> {
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    [key.get(..base_at).unwrap_or_default(), &seconds.to_be_bytes()].concat()
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

fn ratio(part: usize, whole: u64) -> f64 {
    as_f64(part as u64) / as_f64(whole)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are not negative, and a float beyond the range becomes its end"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
