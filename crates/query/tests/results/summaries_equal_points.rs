//! Queries that take blocks by their statistics return what queries that decode all points return, to the last bit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt as _;
use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{
    BlockSummary, Columns, Point, PointBatch, PointKind, PointStore, TimeRange, ValueKind,
};
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    AnnotationSelection, Engine, Frame, Limits, QueryResources, QuerySpec, Quirks, RequestContext,
};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout};
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;
use proptest::prelude::*;

use crate::support::{self, HOUR_MS, START_MS};

/// The values of a series.
#[derive(Clone, Copy, Debug)]
enum Values {
    Ints,
    /// Whose sums are not exact in doubles.
    LargeInts,
    /// Tenths, which doubles do not have.
    Doubles,
    /// With zeros of both signs.
    Signs,
    /// With some that are not numbers.
    Nan,
    /// Small doubles, then integers: their sum depends on the order.
    Both,
    /// Integers and doubles in turn.
    Mixed,
}

fn value(values: Values, number: i64, noise: u32) -> (ValueKind, u64) {
    let int = i64::from(noise % 2000) - 1000;
    let double = f64::from(noise % 2000) / 10.0 - 70.0;
    let of_int = |int: i64| (ValueKind::Int, int.cast_unsigned());
    let of_double = |double: f64| (ValueKind::Double, double.to_bits());
    match values {
        Values::Ints => of_int(int),
        Values::LargeInts => of_int(int << 45),
        Values::Doubles => of_double(double),
        Values::Signs => of_double([0.0, -0.0, 0.5][noise as usize % 3]),
        Values::Nan if noise.is_multiple_of(500) => of_double(f64::NAN),
        Values::Nan => of_double(double),
        Values::Both if number >= 1000 => of_int(int << (noise % 30)),
        Values::Both => of_double(double / 3e5),
        Values::Mixed if number % 2 == 0 => of_int(int),
        Values::Mixed => of_double(double),
    }
}

fn values() -> impl Strategy<Value = Values> {
    prop_oneof![
        3 => Just(Values::Ints),
        1 => Just(Values::LargeInts),
        2 => Just(Values::Doubles),
        1 => Just(Values::Signs),
        1 => Just(Values::Nan),
        4 => Just(Values::Both),
        1 => Just(Values::Mixed),
    ]
}

#[derive(Clone, Debug)]
struct Series {
    values: Values,
    first_minute: i64,
    step_s: i64,
    count: i64,
    seed: u32,
    /// Minutes of points that are written again later.
    again: Vec<i64>,
}

fn series() -> impl Strategy<Value = Series> {
    let again = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec(0_i64..4000, 1..4)
    ];
    (values(), 0_i64..300, 1_i64..90, 1_i64..4000, any::<u32>(), again).prop_map(
        |(values, first_minute, step_s, count, seed, again)| Series {
            values,
            first_minute,
            step_s,
            count,
            seed,
            again,
        },
    )
}

impl Series {
    fn point(&self, number: i64, time_ms: i64, seed: u32) -> Point {
        let noise = u32::try_from(number).unwrap().wrapping_mul(2_654_435_761) ^ seed;
        let (kind, bits) = value(self.values, number, noise >> 8);
        Point {
            time_ms,
            kind: PointKind::new(oxtsdb_point_store::Resolution::Seconds, kind),
            bits,
        }
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        let first_ms = START_MS + self.first_minute * 60_000;
        (0..self.count)
            .map(move |number| self.point(number, first_ms + number * self.step_s * 1000, self.seed))
    }

    fn later(&self) -> impl Iterator<Item = Point> {
        let again = self.again.iter();
        again.map(|minute| self.point(*minute, START_MS + minute * 60_000, !self.seed))
    }
}

fn tsuid(number: usize) -> Vec<u8> {
    vec![0, 0, 1, 0, 0, 1, 0, 0, u8::try_from(number + 1).unwrap()]
}

/// Where points that are written again are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Flushed,
    LaterInHead,
    AllFlushed,
}

async fn engine(points: Arc<dyn PointStore>) -> Engine {
    support::engine(points, Limits::NONE, QueryResources::unlimited().unwrap()).await
}

async fn append(store: &dyn PointStore, points: impl Iterator<Item = (usize, Point)>) {
    let mut batch = PointBatch::default();
    for (number, point) in points {
        let tsuid = tsuid(number);
        batch.push(store.numbers(&[&tsuid]).unwrap()[0], point);
    }
    store.append(batch).await.unwrap();
}

fn parts() -> PartsStore {
    let config = PartsConfig {
        shards: 2,
        head_bytes: 8 << 20,
        flush_after: Duration::from_secs(3600),
        reserve_bytes: 0,
        ..PartsConfig::new(Path::new("/store"), Arc::new(SimulatedDisk::new()))
    };
    PartsStore::open(config).unwrap()
}

async fn result(engine: &Engine, query: QuerySpec) -> (Vec<String>, u64) {
    let frames = engine.run_whole(query, RequestContext::default()).await;
    let deliveries: Vec<_> = frames.try_collect().await.unwrap();
    let mut points = 0;
    let mut groups = Vec::new();
    for delivery in deliveries {
        match delivery.frame {
            Frame::Group(group) => {
                let bits = |value: oxtsdb_query::Number| match value {
                    oxtsdb_query::Number::Int(int) => format!("{int}"),
                    oxtsdb_query::Number::Double(double) => format!("{double:?} {:x}", double.to_bits()),
                };
                let points = group.points.iter().map(|(time_ms, value)| (time_ms, bits(value)));
                groups.push(format!("{:?} {:?}", group.tsuids, points.collect::<Vec<_>>()));
            }
            Frame::Statistics(statistics) => points = statistics.points,
            _ => {}
        }
    }
    (groups, points)
}

const DOWNSAMPLED: [&str; 16] = [
    "1h-count",
    "6h-count",
    "1d-count",
    "0all-count",
    "3h-min",
    "0all-min",
    "1d-max-zero",
    "0all-max",
    "5h-sum",
    "1d-sum-nan",
    "0all-sum",
    "8h-avg",
    "0all-avg",
    "2dc-sum",
    "1nc-max",
    "6h-dev",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn summaries_equal_points(
        all in prop::collection::vec(series(), 1..5),
        place in prop_oneof![Just(Place::Flushed), Just(Place::LaterInHead), Just(Place::AllFlushed)],
        deleted in prop::option::of((0_i64..3000, 1_i64..500)),
        (first_minute, minutes) in (-600_i64..3000, 1_i64..6000),
        grouped: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let parts = Arc::new(parts());
            let memory = Arc::new(MemoryPoints::new(RowKeyLayout::default().widths));
            let stores: [Arc<dyn PointStore>; 2] = [memory, parts.clone()];
            for store in &stores {
                let first = all.iter().enumerate().flat_map(|(number, series)| series.points().map(move |point| (number, point)));
                append(&**store, first).await;
                parts.flush().await.unwrap();
                if place != Place::Flushed {
                    let later = all.iter().enumerate().flat_map(|(number, series)| series.later().map(move |point| (number, point)));
                    append(&**store, later).await;
                }
                if place == Place::AllFlushed {
                    parts.flush().await.unwrap();
                }
                if let Some((minute, length)) = deleted {
                    let range = TimeRange {
                        first_ms: START_MS + minute * 60_000,
                        last_ms: START_MS + (minute + length) * 60_000,
                    };
                    store.delete(&store.numbers(&[&tsuid(0)]).unwrap(), range).await.unwrap();
                }
            }
            let engines = [engine(Arc::clone(&stores[0])).await, engine(Arc::clone(&stores[1])).await];
            for downsample in DOWNSAMPLED {
                let text = format!("{}:{downsample}:m", if grouped { "sum" } else { "none" });
                let zone = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
                let query = QuerySpec {
                    start_ms: START_MS + first_minute * 60_000,
                    end_ms: START_MS + (first_minute + minutes) * 60_000,
                    sub_queries: vec![parse_metric_query(&text, &zone).unwrap()],
                    duplicates: DuplicatePolicy::Error,
                    max_scanned_points: None,
                    quirks: Quirks::NONE,
                    skip_damaged_rows: false,
                    with_surroundings: false,
                    with_infinities: false,
                    annotations: AnnotationSelection::default(),
                };
                let expected = result(&engines[0], query.clone()).await;
                let actual = result(&engines[1], query).await;
                assert_eq!(actual, expected, "{text}");
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_one_part_are_summarized() {
    let store = parts();
    let series = Series {
        values: Values::Ints,
        first_minute: 0,
        step_s: 10,
        count: 5000,
        seed: 1,
        again: Vec::new(),
    };
    append(&store, series.points().map(|point| (0, point))).await;
    let number = store.numbers(&[&tsuid(0)]).unwrap()[0];
    let mut points = Columns::default();
    let mut blocks = Vec::new();
    let asked = AtomicU64::new(0);
    let half = TimeRange {
        first_ms: START_MS,
        last_ms: START_MS + 6 * HOUR_MS,
    };
    let accepts = |block: &BlockSummary| {
        asked.fetch_add(1, Ordering::Relaxed);
        half.contains(block.range.last_ms)
    };
    let mut read = async |points: &mut Columns| {
        let mut reader = store.reader(TimeRange::ALL).unwrap();
        reader
            .read_summarized(number, &accepts, points, &mut blocks)
            .unwrap();
        let summarized: usize = blocks.iter().map(|block| block.count).sum();
        (points.len(), summarized, blocks.len())
    };
    assert_eq!(read(&mut points).await, (5000, 0, 0), "in memory");
    store.flush().await.unwrap();
    let (decoded, summarized, blocks) = read(&mut points).await;
    assert_eq!(decoded + summarized, 5000);
    assert_eq!((summarized, blocks), (2048, 2));
    assert!(asked.load(Ordering::Relaxed) >= 5);
    append(&store, [(0, series.point(3, START_MS + 1234, 7))].into_iter()).await;
    assert_eq!(read(&mut points).await, (5001, 0, 0), "beside points in memory");
}
