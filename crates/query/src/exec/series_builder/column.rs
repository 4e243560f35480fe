//! The points of a series while they are read.

use oxtsdb_point_store::{BlockSummary, Columns, PointKind, ValueKind};
use oxtsdb_schema::{Points as RowPoints, Value};

use crate::exec::rollup_row::RollupValues;
use crate::exec::series_builder::Scratch;
use crate::function::downsample::{Downsampler, WindowRuns};
use crate::points::{Number, Points, Values};

/// The points of a series, raw or in windows.
#[derive(Debug)]
pub(super) enum Column {
    Raw(Points),
    Downsampled(Box<Downsampler>),
    Averaged(Box<Averages>),
}

/// Averages of rollups: sums and counts of the same instants.
#[derive(Debug)]
pub(super) struct Averages {
    pub(super) sums: Downsampler,
    pub(super) counts: Downsampler,
}

fn is_int(kind: PointKind) -> bool {
    kind.value() == ValueKind::Int
}

impl Column {
    /// Appends the first points of columns, with the blocks between them.
    pub(super) fn extend(
        &mut self,
        columns: &Columns,
        count: usize,
        blocks: &[BlockSummary],
        scratch: &mut Scratch,
    ) {
        let (times_ms, kinds, bits) = (
            &columns.times_ms[..count],
            &columns.kinds[..count],
            &columns.bits[..count],
        );
        match self {
            Self::Raw(points) => {
                let mut from = 0;
                for kinds in kinds.chunk_by(|one, next| is_int(*one) == is_int(*next)) {
                    let run = from..from + kinds.len();
                    from = run.end;
                    extend_raw(
                        points,
                        &times_ms[run.clone()],
                        &bits[run],
                        is_int(kinds[0]),
                        scratch,
                    );
                }
            }
            Self::Downsampled(downsampler) => {
                scratch.values.clear();
                let values = kinds.iter().zip(bits).map(|(kind, bits)| {
                    if is_int(*kind) {
                        Number::Int(bits.cast_signed()).as_f64()
                    } else {
                        f64::from_bits(*bits)
                    }
                });
                scratch.values.extend(values);
                let (values, runs) = (&scratch.values, &mut scratch.runs);
                let mut from = 0;
                for block in blocks {
                    if from < block.after {
                        downsampler.feed(&times_ms[from..block.after], &values[from..block.after], runs);
                        from = block.after;
                    }
                    downsampler.feed_block(block);
                }
                if from < count || blocks.is_empty() {
                    downsampler.feed(&times_ms[from..], &values[from..], runs);
                }
            }
            // Its values come with counts.
            Self::Averaged(_) => {}
        }
    }
}

/// Appends points, all integers or all floating point.
fn extend_raw(points: &mut Points, times_ms: &[i64], bits: &[u64], are_ints: bool, scratch: &mut Scratch) {
    if are_ints {
        scratch.ints.clear();
        scratch.ints.extend(bits.iter().map(|bits| bits.cast_signed()));
        points.extend_from_columns(times_ms, ColumnValues::Ints(&scratch.ints));
    } else {
        scratch.values.clear();
        scratch
            .values
            .extend(bits.iter().map(|bits| f64::from_bits(*bits)));
        points.extend_from_columns(times_ms, ColumnValues::Doubles(&scratch.values));
    }
}

impl Column {
    /// Memory of the points that it holds, in bytes.
    pub(super) const fn held_bytes(&self) -> u64 {
        match self {
            Self::Raw(points) => points.held_bytes(),
            Self::Averaged(averages) => averages.sums.held_bytes() + averages.counts.held_bytes(),
            Self::Downsampled(downsampler) => downsampler.held_bytes(),
        }
    }
}

impl Averages {
    /// Adds sums and their counts.
    pub(super) fn feed(&mut self, rollups: &RollupValues, runs: &mut WindowRuns) {
        self.sums.feed(&rollups.times_ms, &rollups.values, runs);
        self.counts.feed(&rollups.times_ms, &rollups.counts, runs);
    }

    /// Sums by counts; 0 where nothing was counted, as in OpenTSDB.
    pub(super) fn take(&mut self, until_ms: i64) -> Points {
        let mut sums = self.sums.take(until_ms);
        let counts = self.counts.take(until_ms);
        let (_, sum_values) = sums.columns_mut();
        if let (Values::Doubles(sums), Values::Doubles(counts)) = (sum_values, counts.values()) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = if *count == 0.0 { 0.0 } else { *sum / count };
            }
        }
        sums
    }
}

/// Values of one type.
#[derive(Clone, Copy)]
enum ColumnValues<'a> {
    Ints(&'a [i64]),
    Doubles(&'a [f64]),
}

impl Points {
    /// Adds points: instants, and as many values.
    fn extend_from_columns(&mut self, times_ms: &[i64], values: ColumnValues<'_>) {
        if self.is_empty() && matches!(values, ColumnValues::Doubles(_)) {
            *self = Self::new(Vec::new(), Values::Doubles(Vec::new()));
        }
        let (own_times, own_values) = self.columns_mut();
        match (own_values, values) {
            (Values::Ints(own_values), ColumnValues::Ints(values)) => {
                own_times.extend_from_slice(times_ms);
                own_values.extend_from_slice(values);
            }
            (Values::Doubles(own_values), ColumnValues::Doubles(values)) => {
                own_times.extend_from_slice(times_ms);
                own_values.extend_from_slice(values);
            }
            (_, ColumnValues::Ints(values)) => {
                for (time_ms, value) in times_ms.iter().zip(values) {
                    self.push(*time_ms, Number::Int(*value));
                }
            }
            (_, ColumnValues::Doubles(values)) => {
                for (time_ms, value) in times_ms.iter().zip(values) {
                    self.push(*time_ms, Number::Double(*value));
                }
            }
        }
    }

    /// Adds the points of a row that begins at `base_ms`.
    pub(super) fn extend_from_row(&mut self, base_ms: i64, row: &RowPoints) {
        let times_ms = row.offsets_ms().iter().map(|offset| base_ms + i64::from(*offset));
        let all_ints = row.values().iter().all(Value::is_int);
        let no_ints = || !row.values().iter().any(Value::is_int);
        if self.is_empty() && !all_ints && no_ints() {
            *self = Self::new(Vec::new(), Values::Doubles(Vec::new()));
        }
        let (own_times, own_values) = self.columns_mut();
        match own_values {
            Values::Ints(values) if all_ints => {
                own_times.extend(times_ms);
                // The arms above exclude floats.
                values.extend(row.values().iter().filter_map(|value| match value {
                    Value::Int(int) => Some(*int),
                    Value::Float(_) | Value::Double(_) => None,
                }));
            }
            Values::Doubles(values) if no_ints() => {
                own_times.extend(times_ms);
                values.extend(row.values().iter().map(Value::as_f64));
            }
            Values::Ints(_) | Values::Doubles(_) | Values::Mixed(_) => {
                for (time_ms, value) in times_ms.zip(row.values()) {
                    self.push(time_ms, Number::from(*value));
                }
            }
        }
    }
}
