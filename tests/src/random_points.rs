//! Random points with everything that a row of OpenTSDB can hold: all widths of integers, floating
//! point numbers of either width, seconds and milliseconds, borders of hours, one to eight tags, points
//! that are sent twice, and points that are sent again with another value.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngExt as _};
use serde_json::{Value, json};

use crate::opentsdb::Tags;
use crate::sample::{Number, Sample};

/// The expected points of a series: values by instant, in milliseconds.
pub type Expected = BTreeMap<(String, Tags), BTreeMap<i64, Number>>;

/// Hours of a series: few, so that rows have many cells.
const HOURS_OF_A_SERIES: usize = 4;
/// Points of a series, on average.
const POINTS_OF_A_SERIES: usize = 400;
const HOUR_MS: i64 = 3_600_000;
/// OpenTSDB reads timestamps from here on as milliseconds.
const FIRST_MS: i64 = 1 << 32;

/// A point as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The point.
    pub sample: Sample,
    /// As milliseconds, though it may be a whole second.
    pub is_ms: bool,
}

impl Sent {
    /// Its timestamp as OpenTSDB's protocols take it.
    fn timestamp(&self) -> i64 {
        if self.is_ms {
            self.sample.timestamp_ms
        } else {
            self.sample.timestamp_ms / 1000
        }
    }

    /// For `/api/put`.
    pub fn to_json(&self) -> Value {
        let mut json = self.sample.to_json();
        json["timestamp"] = json!(self.timestamp());
        json
    }

    /// For telnet, with the end of the line.
    pub fn to_telnet_line(&self) -> String {
        let mut line = format!(
            "put {} {} {}",
            self.sample.metric,
            self.timestamp(),
            self.sample.value
        );
        for (key, value) in &self.sample.tags {
            line.push_str(&format!(" {key}={value}"));
        }
        line.push('\n');
        line
    }

    /// Telnet is read as ISO-8859-1 by one server and as UTF-8 by another: letters of ASCII are the same.
    pub fn fits_telnet(&self) -> bool {
        self.sample.to_telnet_line().is_ascii()
    }

    /// False for a whole second in milliseconds: gRPC stores it as seconds.
    pub fn fits_grpc(&self) -> bool {
        !(self.is_ms && self.sample.timestamp_ms % 1000 == 0)
    }

    fn series(&self) -> (String, Tags) {
        (
            self.sample.metric.clone(),
            self.sample.tags.iter().cloned().collect(),
        )
    }
}

/// Points in the order in which they may be sent.
#[derive(Debug)]
pub struct RandomPoints {
    /// Each instant of a series once, but for some that are there twice, equal to the byte.
    pub points: Vec<Sent>,
    /// Other values for some instants, in a series of [`RandomPoints::overwritten`] each: to be
    /// sent when all of `points` are stored.
    pub overwrites: Vec<Sent>,
    /// Metrics without overwrites.
    pub plain: Vec<String>,
    /// Metrics with overwrites.
    pub overwritten: Vec<String>,
}

/// The type of a series' values.
#[derive(Clone, Copy, Debug)]
enum Values {
    Ints,
    Doubles,
    Mixed,
}

impl RandomPoints {
    /// About `count` points of metrics that begin with `prefix`; `now_ms` is some instant of today; its hour is
    /// one of the hours with points.
    pub fn new(random: &mut StdRng, prefix: &str, count: usize, now_ms: i64) -> Self {
        let mut made = Self {
            points: Vec::new(),
            overwrites: Vec::new(),
            plain: Vec::new(),
            overwritten: Vec::new(),
        };
        let metric = |name: &str| format!("{prefix}.{name}");
        let metrics = [
            (metric("ints"), Values::Ints, false),
            (metric("doubles"), Values::Doubles, false),
            (metric("mixed"), Values::Mixed, false),
            (metric("overwritten"), Values::Mixed, true),
        ];
        let series = (count / POINTS_OF_A_SERIES).max(metrics.len());
        for number in 0..series {
            let (metric, values, is_overwritten) = &metrics[number % metrics.len()];
            let tags = tags(random, number);
            let points = count / series;
            made.add_series(random, metric, &tags, points, *values, *is_overwritten, now_ms);
        }
        for (metric, _, is_overwritten) in metrics {
            if is_overwritten {
                made.overwritten.push(metric);
            } else {
                made.plain.push(metric);
            }
        }
        made
    }

    #[expect(clippy::too_many_arguments, reason = "it is the body of a loop")]
    fn add_series(
        &mut self,
        random: &mut StdRng,
        metric: &str,
        tags: &[(String, String)],
        count: usize,
        values: Values,
        is_overwritten: bool,
        now_ms: i64,
    ) {
        let hours: Vec<i64> = (0..HOURS_OF_A_SERIES).map(|_| hour(random, now_ms)).collect();
        let mut instants = BTreeSet::new();
        for _ in 0..count {
            let timestamp_ms = instant(random, &hours);
            if !instants.insert(timestamp_ms) {
                continue;
            }
            let sample = Sample {
                metric: metric.to_owned(),
                tags: tags.to_vec(),
                timestamp_ms,
                value: value(random, values),
            };
            let is_ms = timestamp_ms % 1000 != 0 || (timestamp_ms >= FIRST_MS && random.random_ratio(1, 10));
            let sent = Sent { sample, is_ms };
            if is_overwritten && random.random_ratio(1, 20) {
                let mut again = sent.clone();
                again.sample.value = value(random, values);
                self.overwrites.push(again);
            } else if has_one_width(sent.sample.value) && random.random_ratio(1, 50) {
                let mut again = sent.clone();
                // The same instant, now and then in the other form.
                again.is_ms |= timestamp_ms >= FIRST_MS && random.random_ratio(1, 2);
                self.points.push(again);
            }
            self.points.push(sent);
        }
    }

    /// The stored points after `points`.
    pub fn expected(&self) -> Expected {
        expected(&self.points)
    }

    /// The stored points after `points` and the overwrites.
    pub fn expected_at_last(&self) -> Expected {
        expected(self.points.iter().chain(&self.overwrites))
    }
}

/// The stored points after these, in this order.
pub(crate) fn expected<'a>(points: impl IntoIterator<Item = &'a Sent>) -> Expected {
    let mut expected = Expected::new();
    for sent in points {
        expected
            .entry(sent.series())
            .or_default()
            .insert(sent.sample.timestamp_ms, sent.sample.value);
    }
    expected
}

/// True if every protocol stores the number with the same width. Where 4 bytes hold it, one protocol uses 4 and
/// another 8; stored in both, OpenTSDB reads two values of one instant.
fn has_one_width(number: Number) -> bool {
    match number {
        Number::Int(_) => true,
        #[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
        Number::Double(value) => f64::from(value as f32).to_bits() != value.to_bits(),
    }
}

/// One to eight tags; the first one identifies the series.
fn tags(random: &mut StdRng, number: usize) -> Vec<(String, String)> {
    let count = random.random_range(1..=8);
    let letters = ["web01", "LGA", "a-b_c.d/e", "0", "é", "ß"];
    (0..count)
        .map(|tag| {
            let value = if tag == 0 {
                format!("s{number}")
            } else {
                (*letters.choose(random).expect("there are some")).to_owned()
            };
            (format!("key{tag}"), value)
        })
        .collect()
}

/// Start of an hour: the first of all, past ones, the current one, one far in the future.
fn hour(random: &mut StdRng, now_ms: i64) -> i64 {
    let hour = match random.random_range(0..10) {
        0 => 0,
        1 => now_ms,
        2 => 4_102_444_800_000,
        _ => 1_356_998_400_000 + HOUR_MS * random.random_range(0..1000),
    };
    hour - hour % HOUR_MS
}

fn instant(random: &mut StdRng, hours: &[i64]) -> i64 {
    let hour = *hours.choose(random).expect("there are some");
    let offset = match random.random_range(0..20) {
        0 => 0,
        1 => HOUR_MS - 1,
        2 => HOUR_MS - 1000,
        3 => 1,
        4..12 => 1000 * random.random_range(0..3600),
        _ => random.random_range(0..HOUR_MS),
    };
    let instant = hour + offset;
    // Early in 1970 there are only seconds, and none is 0.
    if instant < FIRST_MS {
        (instant - instant % 1000).max(1000)
    } else {
        instant
    }
}

fn value(random: &mut StdRng, values: Values) -> Number {
    let is_int = match values {
        Values::Ints => true,
        Values::Doubles => false,
        Values::Mixed => random.random(),
    };
    if is_int { int(random) } else { double(random) }
}

/// Each width as often as the others, and their borders.
fn int(random: &mut StdRng) -> Number {
    let bits = *[7, 15, 31, 63].choose(random).expect("there are some");
    let highest = i64::MAX >> (63 - bits);
    Number::Int(match random.random_range(0..8) {
        0 => highest,
        1 => -highest - 1,
        // One more needs the next width.
        2 => highest.wrapping_add(1),
        3 => (-highest - 1).wrapping_sub(1),
        _ => random.random::<i64>() >> (63 - bits),
    })
}

fn double(random: &mut StdRng) -> Number {
    let some = [
        0.0,
        -0.0,
        0.1,
        1.0,
        -2.5,
        16_777_217.0,
        1e300,
        -1e-300,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        f64::from(f32::MAX),
        f64::from(f32::MIN_POSITIVE),
    ];
    Number::Double(match random.random_range(0..3) {
        0 => *some.choose(random).expect("there are some"),
        1 => f64::from(f32::from_bits(random.next_u32() & 0xbf7f_ffff)),
        // One bit of the exponent is clear, so that it is a number.
        _ => f64::from_bits(random.next_u64() & 0xbfef_ffff_ffff_ffff),
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn covers_every_form_of_points() {
        let made = RandomPoints::new(&mut StdRng::seed_from_u64(1), "m", 20_000, 1_795_000_000_000);
        assert!(made.points.len() > 15_000 && made.overwrites.len() > 50);
        assert!(made.plain.len() == 3 && made.overwritten.len() == 1);
        let any = |what: fn(&Sent) -> bool| made.points.iter().any(what);
        assert!(any(|sent| !sent.is_ms && sent.sample.timestamp_ms < FIRST_MS));
        assert!(any(|sent| sent.is_ms && sent.sample.timestamp_ms % 1000 == 0));
        assert!(any(|sent| sent.sample.timestamp_ms % HOUR_MS == 0));
        assert!(any(|sent| sent.sample.timestamp_ms % HOUR_MS == HOUR_MS - 1));
        assert!(any(|sent| sent.sample.value == Number::Int(i64::MIN)));
        assert!(any(|sent| sent.sample.value == Number::Int(-129)));
        assert!(any(|sent| sent.sample.value == Number::Double(-0.0)));
        assert!(any(|sent| sent.sample.tags.len() == 8));
        let stored: usize = made.expected().values().map(BTreeMap::len).sum();
        assert!(stored < made.points.len(), "no point occurs twice");
        let finite = |sent: &Sent| sent.sample.value.as_f64().is_finite();
        assert!(made.points.iter().chain(&made.overwrites).all(finite));
        assert!(made.expected() != made.expected_at_last());
    }

    #[test]
    fn timestamps_keep_their_unit() {
        let sample = Sample::int("m", &[("host", "a")], 1_346_846_400_000, 18);
        let mut sent = Sent { sample, is_ms: false };
        assert_eq!(sent.to_telnet_line(), "put m 1346846400 18 host=a\n");
        assert!(sent.fits_grpc());
        sent.is_ms = true;
        assert_eq!(sent.to_telnet_line(), "put m 1346846400000 18 host=a\n");
        assert_eq!(sent.to_json()["timestamp"], 1_346_846_400_000_i64);
        assert!(!sent.fits_grpc());
    }
}
