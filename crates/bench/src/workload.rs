//! Workload W1: the points of a fleet of hosts.
//!
//! 1,000 hosts × 10 metrics, tags host, dc (5) and rack (50), a point every 10 s for an hour, in
//! order of time over all series: 3.6 million points. Metrics with even numbers are integers, odd
//! ones have two decimals; both walk at random in steps uniform in ±100 units of their last digit.

use std::ops::Range;

/// The first timestamp of workloads, seconds since the epoch: an exact hour.
pub(crate) const START_SECONDS: u32 = 1_767_225_600;

/// Size of the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Hosts.
    pub(crate) hosts: u32,
    /// Metrics of each host.
    pub(crate) metrics: u32,
    /// Points of each series.
    pub(crate) steps: u32,
    /// Seconds between two of them; [`STEP_SECONDS`] but for long ranges.
    pub(crate) step_seconds: u32,
    /// First timestamp, seconds since the epoch; an exact hour.
    pub(crate) start_seconds: u32,
}

/// Usual seconds between two points of a series.
pub(crate) const STEP_SECONDS: u32 = 10;

/// One series by its names.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Metric name.
    pub(crate) metric: String,
    /// Tags as key and value, in the order in which they are sent.
    pub(crate) tags: [(&'static str, String); 3],
    /// Whether its values are integers.
    pub(crate) integers: bool,
}

/// A workload with all its values.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Its size.
    pub(crate) shape: Shape,
    /// Its series: all metrics of the first host, then of the next.
    pub(crate) series: Vec<Series>,
    /// Values in units of the last digit, by step and then by series.
    units: Vec<i32>,
}

/// A value of a series.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Of an integer metric.
    Int(i64),
    /// Of a metric with two decimals.
    Double(f64),
}

impl Shape {
    /// Number of series.
    pub(crate) fn series(&self) -> usize {
        self.hosts as usize * self.metrics as usize
    }

    /// Number of points.
    pub(crate) fn points(&self) -> usize {
        self.series() * self.steps as usize
    }

    /// The timestamp of a step, seconds since the epoch.
    pub(crate) fn seconds(&self, step: usize) -> u32 {
        let steps = u32::try_from(step).expect("a workload has few steps");
        self.start_seconds + steps * self.step_seconds
    }
}

impl Workload {
    /// Generates the workload; a shape always has the same values.
    pub(crate) fn new(shape: Shape) -> Self {
        let series: Vec<Series> = (0..shape.hosts)
            .flat_map(|host| {
                (0..shape.metrics).map(move |metric| Series {
                    metric: format!("bench.metric{metric:02}"),
                    tags: [
                        ("host", format!("host{host:05}")),
                        ("dc", format!("dc{}", host % 5)),
                        ("rack", format!("rack{:02}", host % 50)),
                    ],
                    integers: metric % 2 == 0,
                })
            })
            .collect();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut now: Vec<i32> = (0..series.len()).map(|_| random.below(100_000)).collect();
        let mut units = Vec::with_capacity(shape.points());
        for _ in 0..shape.steps {
            for unit in &mut now {
                *unit += random.below(201) - 100;
                units.push(*unit);
            }
        }
        Self { shape, series, units }
    }

    /// The value of a series at a step.
    pub(crate) fn value(&self, step: usize, series: usize) -> Value {
        let units = self.units[step * self.series.len() + series];
        if self.series[series].integers {
            Value::Int(i64::from(units))
        } else {
            Value::Double(f64::from(units) / 100.0)
        }
    }

    /// The points of some of the series, in batches.
    pub(crate) fn batches(&self, series: Range<usize>, order: Order) -> Vec<Batch> {
        let all_steps = 0..self.shape.steps as usize;
        let cut = |range: &Range<usize>, length: usize| {
            let end = range.end;
            range
                .clone()
                .step_by(length)
                .map(move |first| first..(first + length).min(end))
        };
        match order {
            Order::Time { points } => all_steps
                .flat_map(|step| {
                    cut(&series, points).map(move |series| Batch {
                        steps: step..step + 1,
                        series,
                    })
                })
                .collect(),
            Order::Series { points } => series
                .flat_map(|one| {
                    cut(&all_steps, points).map(move |steps| Batch {
                        steps,
                        series: one..one + 1,
                    })
                })
                .collect(),
        }
    }

    /// All points, in batches.
    pub(crate) fn all_batches(&self, order: Order) -> Vec<Batch> {
        self.batches(0..self.series.len(), order)
    }
}

/// Order and size of batches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// All series at one instant, then at the next: as a fleet sends.
    Time {
        /// Points in a batch, of as many series.
        points: usize,
    },
    /// One series from its first point to its last, then the next: as history is loaded.
    Series {
        /// Points in a batch, all of one series.
        points: usize,
    },
}

/// Points that are sent together.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    steps: Range<usize>,
    series: Range<usize>,
}

impl Batch {
    /// Its points, each as a step and the number of a series.
    pub(crate) fn points(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let series = self.series.clone();
        self.steps
            .clone()
            .flat_map(move |step| series.clone().map(move |series| (step, series)))
    }
}

/// xorshift64*: no two runs should differ, and no quality is needed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> i32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(limit);
        i32::try_from(number).expect("limits are small")
    }
}
