//! Random series for queries: gaps, late starts and early ends, seconds and milliseconds, integers near 2^63,
//! mixed types, corrections, days on which clocks change, tags that only some series have.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, RngExt as _};

use crate::random_points::{Expected, Sent, expected};
use crate::sample::{Number, Sample};

/// Hosts, unsorted.
pub const HOSTS: [&str; 7] = ["web02", "db-a", "WEB03", "x", "web01", "db.b", "eb/0"];
/// Data centres.
pub const DCS: [&str; 3] = ["phx", "lga", "Lga"];
/// Tags of few series.
pub const RARE_TAGS: [(&str, &str); 3] = [("owner", "jd"), ("colo", "x1"), ("cpu", "0")];

/// A metric and the range of its points.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Start of the range of its points, seconds since the epoch.
    pub start: i64,
    /// Length of the range in seconds.
    pub length: i64,
    /// Milliseconds between the points of a series, on average.
    step_ms: i64,
    /// Whether points have millisecond timestamps.
    in_millis: bool,
    values: Values,
}

/// The values of a metric's series; each series has one kind, unless stated otherwise.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// Integers, counters, doubles, or a mix.
    Usual,
    /// Integers near 2^63.
    LargeInts,
    /// Doubles of all exponents, so that sums and products are sometimes infinite.
    LargeDoubles,
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

const fn metric(name: &'static str, start: i64, length: i64, step_ms: i64) -> Metric {
    Metric {
        name,
        start,
        length,
        step_ms,
        in_millis: false,
        values: Values::Usual,
    }
}

/// All metrics.
pub const METRICS: [Metric; 8] = [
    metric("hours", 1_356_998_400, 3 * HOUR, 50_000),
    // New York, Havana and others change to summer time in March 2013, Europe and Lord Howe a few weeks later.
    metric("spring", 1_362_096_000, 45 * DAY, 6 * HOUR * 1000),
    // Back to winter time; Sao Paulo skips a midnight and Havana repeats one.
    metric("autumn", 1_380_585_600, 45 * DAY, 6 * HOUR * 1000),
    // Apia skips 30 December 2011.
    metric("years", 1_321_747_200, 500 * DAY, 60 * HOUR * 1000),
    metric("sparse", 1_357_003_000, 6 * HOUR, 5000 * 1000),
    Metric {
        in_millis: true,
        ..metric("millis", 1_357_005_400, 400, 1200)
    },
    Metric {
        values: Values::LargeInts,
        ..metric("large", 1_356_999_000, 2 * HOUR, 200_000)
    },
    Metric {
        values: Values::LargeDoubles,
        ..metric("huge", 1_356_999_000, 2 * HOUR, 200_000)
    },
];

/// The points of all series.
#[derive(Debug)]
pub struct Data {
    /// Points with one value for each timestamp.
    pub points: Vec<Sent>,
    /// Other values for some of them, of any type, width and resolution, to send after all of `points` are stored.
    pub corrections: Vec<Sent>,
}

impl Data {
    /// Random points.
    pub fn new(random: &mut StdRng) -> Self {
        let mut data = Self {
            points: Vec::new(),
            corrections: Vec::new(),
        };
        for metric in METRICS {
            for tags in series(random) {
                data.add_series(random, metric, &tags);
            }
        }
        data.points.shuffle(random);
        data
    }

    fn add_series(&mut self, random: &mut StdRng, metric: Metric, tags: &[(String, String)]) {
        let mut values = SeriesValues::new(random, metric.values);
        let unit = if metric.in_millis { 1 } else { 1000 };
        for timestamp_ms in instants(random, metric) {
            let timestamp_ms = timestamp_ms - timestamp_ms % unit;
            let sample = Sample {
                metric: metric.name.to_owned(),
                tags: tags.to_vec(),
                timestamp_ms,
                value: values.next(random),
            };
            let is_ms = timestamp_ms % 1000 != 0 || metric.in_millis && random.random();
            let sent = Sent { sample, is_ms };
            if random.random_ratio(1, 40) {
                let mut correction = sent.clone();
                correction.sample.value = values.next(random);
                correction.is_ms |= random.random_ratio(1, 4);
                self.corrections.push(correction);
            }
            self.points.push(sent);
        }
    }

    /// The stored points after `points` were written.
    pub fn expected(&self) -> Expected {
        expected(&self.points)
    }

    /// The stored points after the corrections were written too.
    pub fn expected_at_last(&self) -> Expected {
        expected(self.points.iter().chain(&self.corrections))
    }
}

/// The names of all metrics.
pub fn metric_names() -> Vec<String> {
    METRICS.iter().map(|metric| metric.name.to_owned()).collect()
}

/// The tags of a metric's series, each different.
fn series(random: &mut StdRng) -> BTreeSet<Vec<(String, String)>> {
    let mut all = BTreeSet::new();
    for _ in 0..random.random_range(5..11) {
        let mut tags = vec![("host", *HOSTS.choose(random).expect("there are some"))];
        if random.random_ratio(4, 5) {
            tags.push(("dc", *DCS.choose(random).expect("there are some")));
        }
        let rare = *RARE_TAGS.choose(random).expect("there are some");
        match random.random_range(0..12) {
            0 | 1 => tags.push(rare),
            2 => tags = vec![rare],
            _ => {}
        }
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        all.insert(tags.into_iter().map(owned).collect());
    }
    all
}

/// Random ascending timestamps; they may start late, end early and have a gap.
fn instants(random: &mut StdRng, metric: Metric) -> Vec<i64> {
    let (start, length) = (metric.start * 1000, metric.length * 1000);
    let late = random.random_ratio(1, 2);
    let early = random.random_ratio(1, 2);
    let first = start
        + if late {
            random.random_range(0..length / 2)
        } else {
            0
        };
    let last = start + length
        - if early {
            random.random_range(0..length / 3)
        } else {
            0
        };
    let gap = random.random_range(start..start + length);
    let gap = gap..gap + if random.random_ratio(1, 3) { length / 5 } else { 0 };
    // Regular series share their timestamps, others rarely do.
    let is_regular = random.random_ratio(1, 3);
    let mut instants = Vec::new();
    let mut now = first - if is_regular { first % metric.step_ms } else { 0 };
    while now < last {
        if !gap.contains(&now) {
            instants.push(now);
        }
        now += if is_regular {
            metric.step_ms
        } else {
            random.random_range(1..metric.step_ms * 2)
        };
    }
    // Some timestamps are at the limits of hours and seconds.
    instants.extend(
        instants
            .clone()
            .into_iter()
            .step_by(17)
            .map(|now| now - now % 3_600_000),
    );
    let unit = if metric.in_millis { 1 } else { 1000 };
    let unique: BTreeSet<i64> = instants.into_iter().map(|now| now - now % unit).collect();
    unique.into_iter().collect()
}

/// The values of one series.
#[derive(Clone, Copy, Debug)]
enum SeriesValues {
    Ints,
    /// Increases and sometimes resets.
    Counter(i64),
    Doubles,
    /// Small floats of 4 bytes.
    Floats,
    Mixed,
    LargeInts,
    LargeDoubles,
}

impl SeriesValues {
    fn new(random: &mut StdRng, values: Values) -> Self {
        match values {
            Values::LargeInts => Self::LargeInts,
            Values::LargeDoubles => Self::LargeDoubles,
            Values::Usual => match random.random_range(0..7) {
                0 | 1 => Self::Ints,
                2 => Self::Counter(random.random_range(0..60_000)),
                3 | 4 => Self::Doubles,
                5 => Self::Floats,
                _ => Self::Mixed,
            },
        }
    }

    fn next(&mut self, random: &mut StdRng) -> Number {
        match self {
            Self::Ints => Number::Int(random.random_range(-300..1000)),
            Self::Counter(count) => {
                *count += random.random_range(0..3000);
                if *count > 65_535 {
                    *count -= if random.random() { 65_536 } else { *count };
                }
                Number::Int(*count)
            }
            Self::Doubles => Number::Double(f64::from(random.random_range(-10_000..1_000_000)) / 1000.0),
            Self::Floats => Number::Double(f64::from(random.random_range(-2000..2000)) / 16.0),
            Self::Mixed => {
                // Floats are often negative: counters step down from negative integers to them.
                let mut kind = match random.random_range(0..3) {
                    0 => Self::Ints,
                    1 => Self::Doubles,
                    _ => Self::Floats,
                };
                kind.next(random)
            }
            Self::LargeInts => {
                let distance = random.random_range(0..1000);
                Number::Int(match random.random_range(0..5) {
                    0 => i64::MAX - distance,
                    1 => i64::MIN + distance,
                    2 => distance,
                    _ => random.random(),
                })
            }
            Self::LargeDoubles => match random.random_range(0..4) {
                0 => Number::Int(random.random_range(-5..5)),
                1 => Number::Double(-0.0),
                // One bit of the exponent is clear, so that the value is finite.
                _ => Number::Double(f64::from_bits(random.next_u64() & 0xbfef_ffff_ffff_ffff)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn covers_all_kinds_of_values() {
        let data = Data::new(&mut StdRng::seed_from_u64(1));
        let any = |what: fn(&Sent) -> bool| data.points.iter().any(what);
        assert!(any(|sent| sent.is_ms && sent.sample.timestamp_ms % 1000 == 0));
        assert!(any(|sent| sent.sample.timestamp_ms % 3_600_000 == 0));
        assert!(any(|sent| sent.sample.tags.len() == 3));
        assert!(any(|sent| sent.sample.tags.len() == 1));
        let stored: usize = data.expected().values().map(|points| points.len()).sum();
        assert_eq!(stored, data.points.len(), "each instant is there once");
        assert!(data.corrections.len() > 50 && data.expected() != data.expected_at_last());
        let same = Data::new(&mut StdRng::seed_from_u64(1));
        assert!(data.points == same.points, "data follow from the seed");
    }
}
