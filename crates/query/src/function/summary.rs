//! Blocks of points that a downsampling function takes as a whole: only their statistics are read.
//!
//! A block qualifies if it lies in one window and its statistics give the same bits as its points:
//!
//! | Function | Statistics |
//! |---|---|
//! | `count` | all |
//! | `min`, `max` | all, unless the extreme is a floating-point zero: they do not have its sign |
//! | `sum`, `avg` | of integers, as long as all sums are exact in doubles, which are computed in order of time |

use oxtsdb_point_store::{BlockSummary, Columns, Statistics, ValueKind};

use crate::function::aggregator::Function;
use crate::function::downsample::{WindowLayout, Windows};

/// Sums up to this size are exact, whatever is added up in between: half of 2^53.
const EXACT: u64 = 1 << 52;

/// Decides which blocks are summarized.
#[derive(Clone, Debug)]
pub(crate) struct Summarizer {
    windows: Windows,
    function: Function,
}

impl Summarizer {
    /// For windows and a function; `None` if they need all points.
    pub(crate) fn for_windows(windows: &Windows, function: Function) -> Option<Self> {
        let is_known = match &windows.layout {
            // The windows of a series depend on its first point.
            WindowLayout::Calendar(calendar) => !calendar.follow_each_series(),
            WindowLayout::Fixed { .. } | WindowLayout::Whole { .. } => true,
        };
        let takes_summaries = matches!(
            function,
            Function::Count | Function::Min | Function::Max | Function::Sum | Function::Avg
        );
        (is_known && takes_summaries).then(|| Self {
            windows: windows.clone(),
            function,
        })
    }

    /// Whether a block is summarized.
    pub(crate) fn accepts(&self, block: &BlockSummary) -> bool {
        let has_value = match (self.function, &block.statistics) {
            (Function::Count, _) | (Function::Min | Function::Max, Statistics::Int { .. }) => true,
            (Function::Min, Statistics::Float { min, .. }) => *min != 0.0,
            (Function::Max, Statistics::Float { max, .. }) => *max != 0.0,
            (Function::Sum | Function::Avg, statistics) => bound(block.count, statistics).is_some(),
            _ => false,
        };
        has_value && self.is_in_one_window(block)
    }

    fn is_in_one_window(&self, block: &BlockSummary) -> bool {
        let (first_ms, last_ms) = (block.range.first_ms, block.range.last_ms);
        let layout = &self.windows.layout;
        match layout {
            WindowLayout::Whole { start_ms, stop_ms } => *start_ms <= first_ms && last_ms < *stop_ms,
            WindowLayout::Fixed { .. } | WindowLayout::Calendar(_) => {
                self.windows.from_ms <= first_ms && last_ms < layout.next(layout.floor(first_ms))
            }
        }
    }

    /// Whether the blocks of a series can be summarized beside its other points. `state` is the function's state after
    /// the points before them.
    pub(crate) fn is_exact(&self, columns: &Columns, summaries: &[BlockSummary], state: f64) -> bool {
        if !matches!(self.function, Function::Sum | Function::Avg) {
            return true;
        }
        let is_int = |kind: &oxtsdb_point_store::PointKind| kind.value() == ValueKind::Int;
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        let is_exact = state.fract() == 0.0 && state.abs() < EXACT as f64;
        if !is_exact || !columns.kinds.iter().all(is_int) {
            return false;
        }
        let values = columns.bits.iter().map(|bits| bits.cast_signed().unsigned_abs());
        let bounds = summaries
            .iter()
            .filter_map(|block| bound(block.count, &block.statistics));
        values.chain(bounds).fold(0, u64::saturating_add) < EXACT
    }
}

/// The greatest sum that values with these statistics have on the way, if it is exact.
fn bound(count: usize, statistics: &Statistics) -> Option<u64> {
    let Statistics::Int { min, max, .. } = statistics else {
        return None;
    };
    let most = min.unsigned_abs().max(max.unsigned_abs());
    most.checked_mul(count as u64).filter(|bound| *bound < EXACT)
}

#[cfg(test)]
mod tests {
    use oxtsdb_point_store::TimeRange;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn block(first_ms: i64, last_ms: i64, statistics: Statistics) -> BlockSummary {
        BlockSummary {
            after: 0,
            range: TimeRange { first_ms, last_ms },
            count: 200,
            statistics,
        }
    }

    fn ints(min: i64, max: i64) -> Statistics {
        Statistics::Int { min, max, sum: min }
    }

    fn floats(min: f64, max: f64) -> Statistics {
        Statistics::Float { min, max, sum: min }
    }

    #[test]
    fn blocks_lie_in_one_window() {
        let mut windows = Windows::new(WindowLayout::Fixed { length_ms: HOUR });
        windows.from_ms = HOUR;
        let summarizer = Summarizer::for_windows(&windows, Function::Count).unwrap();
        let accepts = |first_ms, last_ms| summarizer.accepts(&block(first_ms, last_ms, ints(1, 2)));
        assert!(accepts(HOUR, 2 * HOUR - 1));
        assert!(!accepts(HOUR, 2 * HOUR), "the next window");
        assert!(!accepts(HOUR - 1, HOUR - 1), "before the first one");
        let whole = Windows::new(WindowLayout::Whole {
            start_ms: 5,
            stop_ms: 9,
        });
        let summarizer = Summarizer::for_windows(&whole, Function::Count).unwrap();
        let accepts = |first_ms, last_ms| summarizer.accepts(&block(first_ms, last_ms, ints(1, 2)));
        assert!(accepts(5, 8));
        assert!(!accepts(5, 9));
        assert!(!accepts(4, 8));
    }

    #[test]
    fn statistics_have_the_bits_of_the_points() {
        let windows = Windows::new(WindowLayout::Fixed { length_ms: HOUR });
        let accepts = |function, statistics| {
            let summarizer = Summarizer::for_windows(&windows, function).unwrap();
            summarizer.accepts(&block(0, 9, statistics))
        };
        assert!(accepts(Function::Count, floats(0.0, 0.5)));
        assert!(accepts(Function::Min, floats(0.5, 0.0)));
        assert!(!accepts(Function::Min, floats(-0.0, 1.0)));
        assert!(!accepts(Function::Max, floats(-1.0, 0.0)));
        assert!(accepts(Function::Max, ints(-1, 0)));
        assert!(accepts(Function::Sum, ints(-5, 5)));
        assert!(
            !accepts(Function::Sum, floats(1.0, 2.0)),
            "sums depend on their order"
        );
        assert!(
            !accepts(Function::Avg, ints(0, 1 << 45)),
            "200 of them may exceed 2^52"
        );
        assert!(Summarizer::for_windows(&windows, Function::Dev).is_none());
    }

    #[test]
    fn sums_are_exact_beside_other_points() {
        let windows = Windows::new(WindowLayout::Fixed { length_ms: HOUR });
        let sum = Summarizer::for_windows(&windows, Function::Sum).unwrap();
        let max = Summarizer::for_windows(&windows, Function::Max).unwrap();
        let columns = |kind: u8, bits: u64| {
            let mut columns = Columns::default();
            columns.push(oxtsdb_point_store::Point {
                time_ms: 1,
                kind: oxtsdb_point_store::PointKind::from_byte(kind).unwrap(),
                bits,
            });
            columns
        };
        let blocks = [block(2, 3, ints(0, 1 << 44)), block(4, 5, ints(-7, 7))];
        assert!(sum.is_exact(&columns(0, 5), &blocks, -3.0));
        assert!(!sum.is_exact(&columns(0, 5), &blocks, 0.5));
        assert!(!sum.is_exact(&columns(0, 1 << 52), &blocks, 0.0));
        assert!(!sum.is_exact(&columns(2, 1.0_f64.to_bits()), &blocks, 0.0));
        assert!(max.is_exact(&columns(2, 0.5_f64.to_bits()), &blocks, 0.5));
        let many = [blocks[0]; 2];
        assert!(!sum.is_exact(&columns(0, 5), &many, 0.0));
    }
}
