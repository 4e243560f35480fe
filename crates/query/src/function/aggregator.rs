//! Functions from many numbers to one, and OpenTSDB's aggregators, which are functions with an interpolation.
//!
//! A [`Function`] turns the values of one instant (or of one downsampling window) into one value. An [`Aggregator`] is
//! a function together with its rule for a series that has no point at an instant, though it has some before and after
//! ([`Interpolation`]). So `sum`, `zimsum` and `pfsum` are one function.
//!
//! Integers stay integers, on 64 bits that wrap, and divisions truncate toward zero. On doubles NaN
//! counts as absent, except in `mult`, `first`, `last` and at the end of `diff`; all values absent
//! give NaN. `dev` and the percentiles compute in doubles and truncate the result of integers.
//!
//! Source: OpenTSDB 2.4, `Aggregators`.

use oxtsdb_point_store::{BlockSummary, Statistics};

use crate::quirks::Quirks;

/// A function from many numbers to one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// The sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean.
    Avg,
    /// How many there are.
    Count,
    /// The standard deviation of the values as a population.
    Dev,
    /// The middle value; of an even number the upper of the two.
    Median,
    /// The product.
    Mult,
    /// The last less the first.
    Diff,
    /// The sum of the squares.
    SquareSum,
    /// The first.
    First,
    /// The last.
    Last,
    /// The value below which this many percent lie.
    Percentile {
        /// Above 0, below 100.
        percent: f64,
        /// How it is estimated from integers.
        of_ints: Estimate,
        /// How it is estimated from doubles.
        of_doubles: Estimate,
    },
}

/// How a percentile is estimated from n values in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// At q (n + 1), interpolated.
    Legacy,
    /// At q n rounded half to even.
    R3,
    /// At 1 + q (n - 1), interpolated.
    R7,
}

/// The contribution of a series at an instant between two of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The value on the straight line between the two.
    Linear,
    /// Zero.
    Zero,
    /// The largest number there is.
    Max,
    /// The smallest number there is.
    Min,
    /// The value before.
    Previous,
}

impl Interpolation {
    /// Whether the later of the two points matters.
    pub fn looks_ahead(self) -> bool {
        self == Self::Linear
    }
}

/// How the series of a group become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregator {
    name: &'static str,
    function: Option<Function>,
    interpolation: Interpolation,
}

/// On doubles OpenTSDB always takes [`Estimate::Legacy`].
const fn percentile(percent: f64, of_ints: Estimate) -> Function {
    Function::Percentile {
        percent,
        of_ints,
        of_doubles: Estimate::Legacy,
    }
}

const fn linear(name: &'static str, function: Function) -> Aggregator {
    Aggregator {
        name,
        function: Some(function),
        interpolation: Interpolation::Linear,
    }
}

const fn with(name: &'static str, function: Function, interpolation: Interpolation) -> Aggregator {
    Aggregator {
        name,
        function: Some(function),
        interpolation,
    }
}

/// All aggregators, in the order of their names. `/api/aggregators`, both query languages and the gRPC front end
/// read this table.
const AGGREGATORS: &[Aggregator] = {
    use Estimate::{Legacy, R3, R7};
    &[
        linear("avg", Function::Avg),
        linear("count", Function::Count),
        linear("dev", Function::Dev),
        linear("diff", Function::Diff),
        linear("ep50r3", percentile(50.0, R3)),
        linear("ep50r7", percentile(50.0, R7)),
        linear("ep75r3", percentile(75.0, R3)),
        linear("ep75r7", percentile(75.0, R7)),
        linear("ep90r3", percentile(90.0, R3)),
        linear("ep90r7", percentile(90.0, R7)),
        linear("ep95r3", percentile(95.0, R3)),
        linear("ep95r7", percentile(95.0, R7)),
        linear("ep999r3", percentile(99.9, R3)),
        linear("ep999r7", percentile(99.9, R7)),
        linear("ep99r3", percentile(99.0, R3)),
        linear("ep99r7", percentile(99.0, R7)),
        with("first", Function::First, Interpolation::Zero),
        with("last", Function::Last, Interpolation::Zero),
        linear("max", Function::Max),
        linear("median", Function::Median),
        with("mimmax", Function::Max, Interpolation::Min),
        with("mimmin", Function::Min, Interpolation::Max),
        linear("min", Function::Min),
        linear("mult", Function::Mult),
        Aggregator::NONE,
        linear("p50", percentile(50.0, Legacy)),
        linear("p75", percentile(75.0, Legacy)),
        linear("p90", percentile(90.0, Legacy)),
        linear("p95", percentile(95.0, Legacy)),
        linear("p99", percentile(99.0, Legacy)),
        linear("p999", percentile(99.9, Legacy)),
        with("pfsum", Function::Sum, Interpolation::Previous),
        with("squareSum", Function::SquareSum, Interpolation::Zero),
        linear("sum", Function::Sum),
        with("zimsum", Function::Sum, Interpolation::Zero),
    ]
};

impl Aggregator {
    /// Every series by itself.
    pub const NONE: Self = Self {
        name: "none",
        function: None,
        interpolation: Interpolation::Linear,
    };

    /// All aggregators, in the order of their names.
    pub const ALL: &'static [Self] = AGGREGATORS;

    /// Finds an aggregator by its name; case counts.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|aggregator| aggregator.name == name)
            .copied()
    }

    /// Its name in OpenTSDB.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its function; `None`: every series is by itself.
    pub const fn function(&self) -> Option<Function> {
        self.function
    }

    /// The contribution of a series where it has no point.
    pub const fn interpolation(&self) -> Interpolation {
        self.interpolation
    }

    /// Whether every series is by itself.
    pub const fn is_none(&self) -> bool {
        self.function.is_none()
    }

    /// The aggregator with these quirks.
    #[must_use]
    pub fn under(self, quirks: Quirks) -> Self {
        let function = self.function.map(|function| function.under(quirks));
        Self { function, ..self }
    }
}

impl Function {
    /// The function with these quirks.
    #[must_use]
    pub const fn under(self, quirks: Quirks) -> Self {
        match self {
            Self::Percentile { percent, of_ints, .. } if !quirks.estimates_of_integers_only => {
                Self::Percentile {
                    percent,
                    of_ints,
                    of_doubles: of_ints,
                }
            }
            other => other,
        }
    }

    /// Whether it keeps all values until the last one.
    pub(crate) const fn keeps_values(self) -> bool {
        matches!(self, Self::Dev | Self::Median | Self::Percentile { .. })
    }

    /// Returns the result over integers; 0 if there are none. `values` may come back in another order.
    #[expect(clippy::cast_possible_wrap, reason = "fewer values than 2^63 fit into memory")]
    #[expect(clippy::cast_precision_loss, reason = "as OpenTSDB computes them")]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "truncation toward zero is the rule"
    )]
    pub fn aggregate_ints(self, values: &mut [i64]) -> i64 {
        let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
            return 0;
        };
        let sum = |values: &[i64]| values.iter().fold(0_i64, |sum, value| sum.wrapping_add(*value));
        match self {
            Self::Sum => sum(values),
            Self::Min => values.iter().copied().fold(first, i64::min),
            Self::Max => values.iter().copied().fold(first, i64::max),
            Self::Avg => sum(values) / values.len() as i64,
            Self::Count => values.len() as i64,
            Self::Mult => values
                .iter()
                .fold(1, |product, value| product.wrapping_mul(*value)),
            Self::Diff => last.wrapping_sub(first),
            Self::SquareSum => values
                .iter()
                .fold(0, |sum, value| sum.wrapping_add(value.wrapping_mul(*value))),
            Self::First => first,
            Self::Last => last,
            Self::Median => {
                let middle = values.len() / 2;
                *values.select_nth_unstable(middle).1
            }
            Self::Dev => deviation(values.iter().map(|value| *value as f64)) as i64,
            Self::Percentile { percent, of_ints, .. } => {
                values.sort_unstable();
                quantile(values.len(), percent / 100.0, of_ints, |index| {
                    values[index] as f64
                }) as i64
            }
        }
    }
}

/// Doubles on their way to one: fed in order, in any number of portions.
///
/// Functions that need all values at once keep them, the others do not.
#[derive(Clone, Debug)]
pub struct Accumulator {
    function: Function,
    /// Values that count: all, or all but NaN.
    count: u64,
    /// The state so far; its meaning is the function's.
    state: f64,
    kept: Vec<f64>,
}

impl Accumulator {
    /// An accumulator without values.
    pub fn new(function: Function) -> Self {
        Self {
            function,
            count: 0,
            state: initial(function),
            kept: Vec::new(),
        }
    }

    /// Takes values.
    #[inline]
    pub fn feed(&mut self, values: &[f64]) {
        let mut state = self.state;
        let mut count = self.count;
        // One loop for each function, so that the decision is not taken per value.
        macro_rules! fold {
            ($skip_nan:expr, |$value:ident| $next:expr) => {
                for &$value in values {
                    if !$skip_nan || !$value.is_nan() {
                        state = $next;
                        count += 1;
                    }
                }
            };
        }
        match self.function {
            Function::Sum | Function::Avg => fold!(true, |value| state + value),
            Function::Count => fold!(true, |_value| state),
            Function::Min => fold!(true, |value| if value < state { value } else { state }),
            Function::Max => fold!(true, |value| if value > state { value } else { state }),
            Function::SquareSum => fold!(true, |value| state + value * value),
            Function::Mult => fold!(false, |value| state * value),
            Function::First => fold!(false, |value| if count == 0 { value } else { state }),
            Function::Last => fold!(false, |value| value),
            // NaN is passed over until there is a first operand.
            Function::Diff => {
                for &value in values {
                    if count > 0 || !value.is_nan() {
                        if count == 0 {
                            state = value;
                        }
                        self.kept.clear();
                        self.kept.push(value);
                        count += 1;
                    }
                }
            }
            Function::Dev | Function::Median | Function::Percentile { .. } => count = self.keep(values),
        }
        self.state = state;
        self.count = count;
    }

    /// Takes the values of a block, of a function that [`Summarizer`](super::summary::Summarizer) accepts.
    #[expect(
        clippy::cast_precision_loss,
        reason = "as the values themselves are converted"
    )]
    pub(crate) fn feed_block(&mut self, block: &BlockSummary) {
        let (min, max, sum) = match block.statistics {
            Statistics::Int { min, max, sum } => (min as f64, max as f64, sum as f64),
            Statistics::Float { min, max, sum } => (min, max, sum),
        };
        match self.function {
            Function::Sum | Function::Avg => self.state += sum,
            Function::Min if min < self.state => self.state = min,
            Function::Max if max > self.state => self.state = max,
            _ => {}
        }
        self.count += block.count as u64;
    }

    /// Memory of values that are kept, in bytes.
    pub(crate) const fn kept_bytes(&self) -> u64 {
        (self.kept.capacity() * size_of::<f64>()) as u64
    }

    /// Frees the memory that values were kept in, if none is kept now.
    pub(crate) fn free_kept(&mut self) {
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
    }

    /// The state so far.
    pub(crate) const fn state(&self) -> f64 {
        self.state
    }

    /// Returns the result, and resets the accumulator.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "fewer values than 2^53 are fed")]
    pub fn take(&mut self) -> f64 {
        let (state, count) = (self.state, self.count);
        let result = match self.function {
            Function::Count => count as f64,
            _ if count == 0 => f64::NAN,
            // OpenTSDB begins with the infinity, so that one alone is no value.
            Function::Min | Function::Max if state == initial(self.function) => f64::NAN,
            Function::Sum
            | Function::Min
            | Function::Max
            | Function::SquareSum
            | Function::Mult
            | Function::First
            | Function::Last => state,
            Function::Avg => state / count as f64,
            Function::Diff if count == 1 => 0.0,
            Function::Diff => self.kept.first().map_or(f64::NAN, |last| last - state),
            Function::Dev | Function::Median | Function::Percentile { .. } => self.finish_kept(),
        };
        self.state = initial(self.function);
        self.count = 0;
        result
    }

    /// Keeps values, and returns how many there are then.
    #[inline(never)]
    fn keep(&mut self, values: &[f64]) -> u64 {
        self.kept.extend(values.iter().filter(|value| !value.is_nan()));
        self.kept.len() as u64
    }

    /// The result of values that were kept, at least one.
    #[inline(never)]
    fn finish_kept(&mut self) -> f64 {
        let mut kept = std::mem::take(&mut self.kept);
        let result = match self.function {
            Function::Median => {
                let middle = kept.len() / 2;
                *kept.select_nth_unstable_by(middle, f64::total_cmp).1
            }
            Function::Percentile {
                percent, of_doubles, ..
            } => {
                kept.sort_unstable_by(f64::total_cmp);
                quantile(kept.len(), percent / 100.0, of_doubles, |index| kept[index])
            }
            _ => deviation(kept.iter().copied()),
        };
        kept.clear();
        self.kept = kept;
        result
    }
}

const fn initial(function: Function) -> f64 {
    match function {
        Function::Min => f64::INFINITY,
        Function::Max => f64::NEG_INFINITY,
        Function::Mult => 1.0,
        _ => 0.0,
    }
}

/// Standard deviation of a population, by Welford's running form, which keeps its precision when the
/// values are large and close together.
fn deviation(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        let distance = value - mean;
        mean += distance / count;
        squares += distance * (value - mean);
    }
    if count < 2.0 {
        0.0
    } else {
        f64::sqrt(squares / count)
    }
}

/// The quantile of `len` ascending values, at least one.
#[expect(clippy::cast_precision_loss, reason = "fewer values than 2^53 are fed")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position from 1 to len"
)]
fn quantile(len: usize, q: f64, estimate: Estimate, value: impl Fn(usize) -> f64) -> f64 {
    let n = len as f64;
    if len == 1 {
        return value(0);
    }
    let position = match estimate {
        Estimate::Legacy => q * (n + 1.0),
        Estimate::R3 if q <= 0.5 / n => 0.0,
        Estimate::R3 => (n * q).round_ties_even(),
        Estimate::R7 => 1.0 + (n - 1.0) * q,
    };
    if position < 1.0 {
        return value(0);
    }
    if position >= n {
        return value(len - 1);
    }
    let below = position.floor();
    let index = below as usize;
    let lower = value(index - 1);
    lower + (position - below) * (value(index) - lower)
}

impl Interpolation {
    /// The integer between two points, at `x`.
    #[inline]
    pub fn interpolate_ints(self, (x0, y0): (i64, i64), (x1, y1): (i64, i64), x: i64) -> i64 {
        match self {
            Self::Linear => {
                // Wrapping, as in OpenTSDB; instants differ, since `x` is between them.
                let product = x.wrapping_sub(x0).wrapping_mul(y1.wrapping_sub(y0));
                y0.wrapping_add(product.wrapping_div(x1.wrapping_sub(x0).max(1)))
            }
            Self::Zero => 0,
            Self::Max => i64::MAX,
            Self::Min => i64::MIN,
            Self::Previous => y0,
        }
    }

    /// The double between two points, at `x`.
    #[inline]
    #[expect(
        clippy::cast_precision_loss,
        reason = "instants in milliseconds are far below 2^53"
    )]
    pub fn interpolate_doubles(self, (x0, y0): (i64, f64), (x1, y1): (i64, f64), x: i64) -> f64 {
        match self {
            Self::Linear => y0 + (x - x0) as f64 * (y1 - y0) / (x1 - x0) as f64,
            Self::Zero => 0.0,
            Self::Max => f64::MAX,
            Self::Min => -f64::MAX,
            Self::Previous => y0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str) -> Function {
        Aggregator::parse(name)
            .and_then(|aggregator| aggregator.function())
            .expect(name)
    }

    fn ints(name: &str, values: &[i64]) -> i64 {
        function(name).aggregate_ints(&mut values.to_vec())
    }

    fn doubles(name: &str, values: &[f64]) -> f64 {
        let mut whole = Accumulator::new(function(name));
        whole.feed(values);
        let result = whole.take();
        // Portions have the same result, and a result resets the accumulator.
        for value in values {
            whole.feed(&[*value]);
        }
        assert_eq!(whole.take().to_bits(), result.to_bits(), "{name} in portions");
        result
    }

    #[test]
    fn aggregators_are_in_order_of_their_names() {
        assert!(Aggregator::ALL.is_sorted_by_key(Aggregator::name));
        assert!(Aggregator::NONE.is_none() && Aggregator::NONE.name() == "none");
        assert_eq!(Aggregator::parse("Sum"), None, "case counts");
        assert_eq!(
            Aggregator::parse("mimmin").map(|a| a.interpolation()),
            Some(Interpolation::Max)
        );
    }

    #[test]
    fn integers_stay_integers_and_wrap() {
        assert_eq!(ints("avg", &[-3, -2]), -2, "toward zero");
        assert_eq!(ints("sum", &[i64::MAX, 1]), i64::MIN);
        assert_eq!(ints("diff", &[i64::MIN, i64::MAX]), -1);
        assert_eq!(ints("dev", &[1, 10]), 4);
        assert_eq!(ints("median", &[9, 1, 5, 4]), 5);
        assert_eq!(ints("squareSum", &[3, -4]), 25);
        assert_eq!(ints("count", &[7, 7, 7]), 3);
        assert_eq!(ints("p75", &[10, 20, 30, 40, 50, 60, 70, 80, 90, 105]), 82);
        assert_eq!(ints("ep75r3", &[10, 20, 30, 40, 50, 60, 70, 80, 90, 105]), 80);
        assert_eq!(ints("ep75r7", &[10, 20, 30, 40, 50, 60, 70, 80, 90, 105]), 77);
        assert_eq!(ints("sum", &[]), 0);
    }

    #[test]
    fn nan_counts_as_absent_in_most_functions() {
        let nan = f64::NAN;
        for (name, expected) in [
            ("sum", 5.0),
            ("min", 2.0),
            ("max", 3.0),
            ("avg", 2.5),
            ("count", 2.0),
            ("dev", 0.5),
            ("median", 3.0),
            ("squareSum", 13.0),
            ("diff", 1.0),
            ("last", 3.0),
        ] {
            assert_eq!(
                doubles(name, &[nan, 2.0, nan, 3.0]).to_bits(),
                f64::to_bits(expected),
                "{name}"
            );
        }
        for name in ["mult", "first"] {
            assert!(doubles(name, &[nan, 2.0, 3.0]).is_nan(), "{name}");
        }
        assert!(
            doubles("diff", &[2.0, nan]).is_nan(),
            "the last operand is whatever comes last"
        );
        assert_eq!(doubles("diff", &[nan, 2.0]).to_bits(), 0_f64.to_bits());
        for aggregator in Aggregator::ALL.iter().filter(|aggregator| !aggregator.is_none()) {
            let name = aggregator.name();
            let result = doubles(name, &[nan, nan]);
            assert!(
                if name == "count" {
                    result == 0.0
                } else {
                    result.is_nan()
                },
                "{name} {result}"
            );
        }
    }

    #[test]
    fn the_infinity_that_is_passed_by_all_is_no_value() {
        let infinity = f64::INFINITY;
        assert!(doubles("max", &[-infinity, f64::NAN]).is_nan() && doubles("mimmin", &[infinity]).is_nan());
        assert_eq!(
            doubles("max", &[-infinity, infinity]).to_bits(),
            infinity.to_bits()
        );
        assert_eq!(doubles("min", &[infinity, 5.0]).to_bits(), f64::to_bits(5.0));
    }

    #[test]
    fn percentiles_of_doubles_ignore_the_estimate() {
        let values = [100.0, 200.0];
        for name in ["p75", "ep75r3", "ep75r7"] {
            assert_eq!(doubles(name, &values).to_bits(), 200_f64.to_bits(), "{name}");
        }
        assert_eq!(doubles("p50", &values).to_bits(), 150_f64.to_bits());
    }

    #[test]
    fn lines_between_integers_truncate_and_wrap() {
        let lerp = |a, b, x| Interpolation::Linear.interpolate_ints(a, b, x);
        assert_eq!(lerp((0, 0), (30_000, -10), 10_000), -3);
        assert_eq!(lerp((0, 0), (100_000, i64::MAX), 50_000), 0);
        assert_eq!(Interpolation::Previous.interpolate_ints((0, 4), (10, 9), 5), 4);
    }
}
