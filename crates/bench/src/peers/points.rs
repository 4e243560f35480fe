//! The points of a fleet, made while they are sent: more of them than fit into memory.
//!
//! Hosts with ten metrics and the tags host, dc (5) and rack (50), a point every 10 s. Metrics with even numbers are integers,
//! odd ones have two decimals; both walk in steps of ±100 units of their last digit. A value depends on its series and
//! step alone, so every order sends the same points.

use std::ops::Range;

use clap::ValueEnum;

/// Metrics of a host, a series each.
pub(crate) const METRICS: u32 = 10;

/// Values of the tag `dc`.
pub(crate) const DATA_CENTRES: u32 = 5;

/// Consecutive points of each series that are shuffled among all points of that time.
const SHUFFLED_STEPS: u32 = 10;

/// The order in which a connection sends its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// All series at one instant, then at the next: as a fleet sends.
    Time,
    /// One series from its first point to its last, then the next: as history is loaded.
    Series,
    /// In order of time, but all points of ten instants in random order.
    Shuffled,
}

/// A point by the numbers of its host, metric and step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Point {
    pub(crate) host: u32,
    pub(crate) metric: u32,
    pub(crate) step: u32,
    /// The value in units of its last digit.
    pub(crate) units: i64,
}

/// The points of some hosts, each once.
#[derive(Debug)]
pub(crate) struct Points {
    first_series: u32,
    /// The last value of each series.
    values: Vec<i64>,
    steps: u32,
    order: Order,
    /// The next point: counts to `values.len()` and `steps` in the order's nesting; of `Shuffled`, steps are those at
    /// which a block begins, and `series` counts the points of the block.
    series: usize,
    step: u32,
    /// Values of the shuffled block by series and step, and the order in which they are sent.
    block: Vec<i64>,
    permutation: Vec<u32>,
}

/// The metric's name.
pub(crate) fn metric(metric: u32) -> String {
    format!("bench.metric{metric:02}")
}

/// The host's name; the first thousand begin with `host00`.
pub(crate) fn host(host: u32) -> String {
    format!("host{host:05}")
}

/// Tags of a host, the host itself among them.
pub(crate) fn tags(number: u32) -> [(&'static str, String); 3] {
    [
        ("host", host(number)),
        ("dc", format!("dc{}", number % DATA_CENTRES)),
        ("rack", format!("rack{:02}", number % 50)),
    ]
}

impl Point {
    /// Whether its metric has integers; others have two decimals.
    pub(crate) fn is_integer(self) -> bool {
        self.metric.is_multiple_of(2)
    }

    /// Its value.
    pub(crate) fn value(self) -> f64 {
        let units = self.units as f64;
        if self.is_integer() { units } else { units / 100.0 }
    }

    /// Appends its value as text.
    pub(crate) fn push_value(self, text: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        if self.is_integer() {
            text.extend_from_slice(digits.format(self.units).as_bytes());
            return;
        }
        if self.units < 0 {
            text.push(b'-');
        }
        let units = self.units.unsigned_abs();
        text.extend_from_slice(digits.format(units / 100).as_bytes());
        text.push(b'.');
        if units % 100 < 10 {
            text.push(b'0');
        }
        text.extend_from_slice(digits.format(units % 100).as_bytes());
    }
}

impl Points {
    /// The points of `hosts`, `steps` of each series.
    pub(crate) fn new(hosts: Range<u32>, steps: u32, order: Order) -> Self {
        let series = hosts.start * METRICS..hosts.end * METRICS;
        let mut points = Self {
            first_series: series.start,
            values: series.map(|series| below(series, u32::MAX, 100_000)).collect(),
            steps,
            order,
            series: 0,
            step: 0,
            block: Vec::new(),
            permutation: Vec::new(),
        };
        if order == Order::Shuffled {
            points.shuffle();
        }
        points
    }

    fn point(&self, series: usize, step: u32, units: i64) -> Point {
        let number = self.first_series + u32::try_from(series).unwrap_or(u32::MAX);
        Point {
            host: number / METRICS,
            metric: number % METRICS,
            step,
            units,
        }
    }

    /// The value of a series at `step`. The call before was for the step before.
    fn walk(&mut self, series: usize, step: u32) -> Option<i64> {
        let number = self.first_series + u32::try_from(series).ok()?;
        let value = self.values.get_mut(series)?;
        *value += below(number, step, 201) - 100;
        Some(*value)
    }

    fn block_steps(&self) -> u32 {
        SHUFFLED_STEPS.min(self.steps - self.step)
    }

    /// Makes the block of points that begins at `self.step`.
    fn shuffle(&mut self) {
        let steps = self.block_steps();
        self.block.clear();
        for series in 0..self.values.len() {
            for step in self.step..self.step + steps {
                let value = self.walk(series, step).unwrap_or_default();
                self.block.push(value);
            }
        }
        // Another permutation for each block would cost as much processor time as sending the points.
        if self.permutation.len() != self.block.len() {
            let length = u32::try_from(self.block.len()).unwrap_or(u32::MAX);
            self.permutation = (0..length).collect();
            for last in (1..length).rev() {
                let other = usize::try_from(below(last, steps, last + 1)).unwrap_or_default();
                self.permutation.swap(last as usize, other);
            }
        }
    }

    fn next_shuffled(&mut self) -> Option<Point> {
        if self.series == self.block.len() {
            self.step += self.block_steps();
            self.series = 0;
            if self.step < self.steps {
                self.shuffle();
            } else {
                self.block.clear();
            }
        }
        let place = *self.permutation.get(self.series)?;
        let units = *self.block.get(place as usize)?;
        let steps = self.block_steps();
        self.series += 1;
        Some(self.point((place / steps) as usize, self.step + place % steps, units))
    }
}

impl Iterator for Points {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        let (series, step) = (self.series, self.step);
        match self.order {
            Order::Shuffled => return self.next_shuffled(),
            Order::Time => {
                if step == self.steps {
                    return None;
                }
                self.series += 1;
                if self.series == self.values.len() {
                    (self.series, self.step) = (0, step + 1);
                }
            }
            Order::Series => {
                self.step += 1;
                if self.step == self.steps {
                    (self.series, self.step) = (series + 1, 0);
                }
            }
        }
        let units = self.walk(series, step)?;
        Some(self.point(series, step, units))
    }
}

/// A number below the limit, random but the same for the same arguments (splitmix64).
fn below(series: u32, step: u32, limit: u32) -> i64 {
    let mut mixed = (u64::from(series) << 32 | u64::from(step)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    i64::from(u32::try_from(((mixed >> 32) * u64::from(limit)) >> 32).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_order_has_the_same_points() {
        let of = |order| Points::new(3..7, 25, order).collect::<Vec<_>>();
        let by_time = of(Order::Time);
        assert_eq!(by_time.len(), 4 * 10 * 25);
        let all: HashSet<Point> = by_time.iter().copied().collect();
        assert_eq!(all.len(), by_time.len());
        assert!(by_time.is_sorted_by_key(|point| point.step));
        let by_series = of(Order::Series);
        assert!(by_series.is_sorted_by_key(|point| (point.host, point.metric, point.step)));
        let shuffled = of(Order::Shuffled);
        assert!(shuffled.is_sorted_by_key(|point| point.step / SHUFFLED_STEPS));
        assert!(!shuffled.is_sorted_by_key(|point| point.step));
        for other in [by_series, shuffled] {
            assert_eq!(other.len(), all.len());
            assert_eq!(other.into_iter().collect::<HashSet<_>>(), all);
        }
    }

    #[test]
    fn values_have_the_decimals_of_their_metric() {
        let text = |metric, units| {
            let mut text = Vec::new();
            Point {
                host: 0,
                metric,
                step: 0,
                units,
            }
            .push_value(&mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(0, -105), "-105");
        assert_eq!(text(1, -105), "-1.05");
        assert_eq!(text(1, 1990), "19.90");
        assert_eq!(text(3, -7), "-0.07");
    }
}
