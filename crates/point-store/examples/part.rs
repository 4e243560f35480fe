//! Measures part files: bytes of a point, and processor time to write and to decode it.
//!
//! ```sh
//! cargo run --release -p oxtsdb-point-store --example part -- FOLDER [NAME]
//! ```
//!
//! Each data set is one part of a day in the folder, a file that is removed again. A name selects the data sets that
//! contain it.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use oxtsdb_point_store::parts::part::{
    Columns, Decoder, MetricNumber, PageCache, Part, PartWriter, SeriesKey,
};
use oxtsdb_point_store::{Point, PointKind, Resolution, SeriesNumber, TimeRange, ValueKind};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::real::RealDisk;

const START: i64 = 1_763_769_600_000;
/// The system counts the time of a thread in steps: what is measured takes many.
const ROUNDS: usize = 50;
const READS: u64 = 50_000;

/// Nanoseconds that this thread ran, so that other programs do not count.
fn thread_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .unwrap_or(0)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: i64) -> i64 {
        (self.next() >> 1).cast_signed() % limit
    }
}

/// How the values of a series go on.
#[derive(Clone, Copy)]
enum Values {
    /// The load generator's: a random walk in steps up to 100, as integers or as decimals with two places.
    Walk,
    /// Integers of the walk.
    IntWalk,
    /// Its decimals as doubles.
    DoubleWalk,
    Counter,
    /// Uniform between 0 and 100 with two places.
    Gauge,
    Random,
    Constant,
}

struct DataSet {
    name: &'static str,
    agents: u32,
    metrics: u32,
    points: i64,
    step_ms: i64,
    jitter_ms: i64,
    values: Values,
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let name = std::env::args().nth(2).unwrap_or_default();
    let set = |name, values| DataSet {
        name,
        agents: 1_000,
        metrics: 10,
        points: 8_640,
        step_ms: 10_000,
        jitter_ms: 0,
        values,
    };
    let sets = [
        set("W1", Values::Walk),
        set("W1, integers only", Values::IntWalk),
        set("W1, doubles only", Values::DoubleWalk),
        DataSet {
            jitter_ms: 20,
            ..set("W1, jitter of 20 ms", Values::Walk)
        },
        DataSet {
            points: 1_440,
            step_ms: 60_000,
            ..set("1 a minute", Values::Walk)
        },
        DataSet {
            points: 1_440,
            step_ms: 60_000,
            jitter_ms: 20,
            ..set("1 a minute, jitter of 20 ms", Values::Walk)
        },
        DataSet {
            agents: 100,
            ..set("counters", Values::Counter)
        },
        DataSet {
            agents: 100,
            ..set("gauges, two decimals", Values::Gauge)
        },
        DataSet {
            agents: 100,
            ..set("random doubles", Values::Random)
        },
        DataSet {
            agents: 100,
            ..set("constants", Values::Constant)
        },
        DataSet {
            agents: 100_000,
            points: 20,
            ..set("W1, 1 M series x 20", Values::Walk)
        },
        DataSet {
            agents: 100_000,
            points: 20,
            jitter_ms: 20,
            ..set("W1, 1 M series x 20, jitter", Values::Walk)
        },
        DataSet {
            agents: 100_000,
            points: 1,
            ..set("W1, 1 M series x 1", Values::Walk)
        },
    ];
    println!(
        "{:<30} {:>10} {:>12} {:>8} {:>8} {:>8} {:>10}",
        "", "points", "bytes/point", "write", "decode", "heads", "one series"
    );
    for set in sets.iter().filter(|set| set.name.contains(&name)) {
        measure(&folder, set);
    }
}

fn kind(millis: bool, value: ValueKind) -> PointKind {
    PointKind::new(
        if millis {
            Resolution::Millis
        } else {
            Resolution::Seconds
        },
        value,
    )
}

/// The points of a series; all series of an agent have the same instants.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn fill(set: &DataSet, metric: u32, agent: u32, columns: &mut Columns) {
    let mut clock = Random(u64::from(agent) + 1_000_003);
    let mut random = Random(u64::from(metric * set.agents + agent) * 2_654_435_761 + 77);
    let mut value = random.below(5_000);
    columns.clear();
    for index in 0..set.points {
        let jitter = if set.jitter_ms == 0 {
            0
        } else {
            clock.below(2 * set.jitter_ms + 1) - set.jitter_ms
        };
        let decimal = |value: i64| (value as f64 / 100.0).to_bits();
        value += match set.values {
            Values::Counter => random.below(50),
            _ => random.below(201) - 100,
        };
        let (value_kind, bits) = match set.values {
            Values::Walk if metric % 2 == 1 => {
                let value = value as f64 / 100.0;
                #[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
                let fits = f64::from(value as f32) == value;
                (
                    if fits { ValueKind::Float } else { ValueKind::Double },
                    value.to_bits(),
                )
            }
            Values::Walk | Values::IntWalk | Values::Counter => (ValueKind::Int, value.cast_unsigned()),
            Values::DoubleWalk => (ValueKind::Double, decimal(value)),
            Values::Gauge => (ValueKind::Double, decimal(random.below(10_000))),
            Values::Random => (
                ValueKind::Double,
                (random.next() as f64 / u64::MAX as f64).to_bits(),
            ),
            Values::Constant => (ValueKind::Int, 7),
        };
        columns.push(Point {
            time_ms: START + index * set.step_ms + jitter + set.jitter_ms,
            kind: kind(set.jitter_ms > 0, value_kind),
            bits,
        });
    }
}

#[expect(clippy::cast_precision_loss, clippy::unwrap_used, reason = "a measurement")]
fn measure(folder: &str, set: &DataSet) {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let path = Path::new(folder).join("measured.part");
    let mut writer = PartWriter::create(&*disk, &path).unwrap();
    let mut columns = Columns::default();
    let start = thread_nanos();
    for metric in 0..set.metrics {
        for agent in 0..set.agents {
            fill(set, metric, agent, &mut columns);
            black_box(&columns);
        }
    }
    let filling = thread_nanos() - start;
    let start = thread_nanos();
    for metric in 0..set.metrics {
        for agent in 0..set.agents {
            fill(set, metric, agent, &mut columns);
            let key = SeriesKey {
                metric: MetricNumber(metric),
                series: SeriesNumber(agent * set.metrics + metric),
            };
            writer.push(key, &columns).unwrap();
        }
    }
    let writing = (thread_nanos() - start).saturating_sub(filling);
    let meta = writer.finish().unwrap();
    let points = meta.points as f64;

    let cache = Arc::new(PageCache::new(1 << 30, 10));
    let part = Part::open(&disk, &path, &cache).unwrap();
    // About a million points of one metric, from cached pages.
    let metric = MetricNumber(1 % set.metrics);
    let series = (1_000_000 / set.points).min(i64::from(set.agents));
    let last = SeriesNumber(u32::try_from(series).unwrap() * set.metrics);
    let keys = || {
        SeriesKey {
            metric,
            series: SeriesNumber(0),
        }..=SeriesKey { metric, series: last }
    };
    let mut decoder = Decoder::default();
    let start = thread_nanos();
    let mut decoded = 0;
    for _ in 0..ROUNDS {
        for block in part.blocks(keys(), TimeRange::ALL) {
            columns.clear();
            let block = block.unwrap();
            part.decode(&block, TimeRange::ALL, &mut decoder, &mut columns)
                .unwrap();
            decoded += black_box(&columns).len();
        }
    }
    let decoding = thread_nanos() - start;
    let start = thread_nanos();
    for _ in 0..ROUNDS {
        part.blocks(keys(), TimeRange::ALL).for_each(|block| {
            black_box(block.unwrap().head());
        });
    }
    let heads = thread_nanos() - start;
    // Single series in random order, the last ten minutes.
    let range = TimeRange {
        first_ms: meta.range.last_ms - 600_000,
        last_ms: meta.range.last_ms,
    };
    let mut random = Random(5);
    let start = thread_nanos();
    for _ in 0..READS {
        columns.clear();
        let series = SeriesNumber(u32::try_from(random.below(series)).unwrap() * set.metrics + metric.0);
        part.read(SeriesKey { metric, series }, range, &mut decoder, &mut columns)
            .unwrap();
        assert!(!columns.is_empty());
    }
    let one = (thread_nanos() - start) / READS;
    println!(
        "{:<30} {:>10} {:>12.3} {:>5.1} ns {:>5.2} ns {:>5.2} ns {:>7} ns",
        set.name,
        meta.points,
        meta.bytes as f64 / points,
        writing as f64 / points,
        decoding as f64 / decoded as f64,
        heads as f64 / decoded as f64,
        one,
    );
    drop(part);
    disk.remove(&path).unwrap();
}
