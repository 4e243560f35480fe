//! Random histories that end in a crash at any operation of the disk: what was acknowledged is there afterwards, and
//! what was not is there or not, as a whole point.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_point_store::parts::PartsStore;
use oxtsdb_point_store::{Point, PointStore as _, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

use crate::support::{batch, int, keys, numbers, read, small};

pub(crate) const SERIES: u32 = 12;

/// The states that a read may find at an instant of a series: the last acknowledged one, or one of later attempts.
pub(crate) type Model = BTreeMap<(SeriesNumber, i64), Vec<Option<Point>>>;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
        (self.0 >> 33) % bound
    }

    pub(crate) fn number(&mut self, bound: u64) -> i64 {
        i64::try_from(self.below(bound)).unwrap()
    }

    /// A point within three days.
    pub(crate) fn point(&mut self) -> Point {
        int(self.number(3) * 86_400 + self.number(200) * 10, self.number(1000))
    }
}

pub(crate) fn record(model: &mut Model, key: (SeriesNumber, i64), state: Option<Point>, acknowledged: bool) {
    let allowed = model.entry(key).or_insert_with(|| vec![None]);
    if acknowledged {
        allowed.clear();
    }
    allowed.push(state);
}

/// A random append, deletion or flush; whether it was acknowledged.
pub(crate) async fn step(
    store: &PartsStore,
    series: &[SeriesNumber],
    random: &mut Random,
    model: &mut Model,
) -> bool {
    match random.below(20) {
        0 => {
            let from = usize::try_from(random.below(u64::from(SERIES))).unwrap();
            let deleted = &series[from..(from + 3).min(series.len())];
            let first_ms = random.point().time_ms;
            let range = TimeRange {
                first_ms,
                last_ms: first_ms + random.number(86_400_000),
            };
            let done = store.delete(deleted, range).await.is_ok();
            let keys: Vec<_> = model.keys().copied().collect();
            for key in keys {
                if deleted.contains(&key.0) && range.contains(key.1) {
                    record(model, key, None, done);
                }
            }
            done
        }
        1 => store.flush().await.is_ok(),
        _ => {
            let points: Vec<_> = (0..1 + random.below(120))
                .map(|_| {
                    let series = series[usize::try_from(random.below(u64::from(SERIES))).unwrap()];
                    (series, random.point())
                })
                .collect();
            let done = store.append(batch(&points)).await.is_ok();
            for (series, point) in points {
                record(model, (series, point.time_ms), Some(point), done);
            }
            done
        }
    }
}

/// Performs a random number of random operations, until one fails.
async fn operate(store: &PartsStore, series: &[SeriesNumber], random: &mut Random, model: &mut Model) {
    for _ in 0..random.below(60) {
        if !step(store, series, random, model).await {
            return;
        }
    }
}

pub(crate) async fn check(store: &PartsStore, series: &[SeriesNumber], model: &Model, context: &str) {
    let mut read_points: BTreeMap<(SeriesNumber, i64), Point> = BTreeMap::new();
    for (series, points) in read(store, series, TimeRange::ALL).await.unwrap() {
        read_points.extend(points.into_iter().map(|point| ((series, point.time_ms), point)));
    }
    for (key, allowed) in model {
        let point = read_points.remove(key);
        assert!(
            allowed.contains(&point),
            "{context}: {key:?} is {point:?}, not of {allowed:?}"
        );
    }
    assert!(
        read_points.is_empty(),
        "{context}: was never written: {read_points:?}"
    );
    assert_eq!(store.damage(), [], "{context}: nothing is lost");
}

async fn history(seed: u64) {
    let mut random = Random(seed);
    let mut disk = SimulatedDisk::new();
    let mut model = Model::new();
    for crash in 0..6 {
        let context = format!("seed {seed}, crash {crash}");
        // The open may crash, too.
        disk.fail_after(random.below(600));
        if let Ok(store) = PartsStore::open(small(Arc::new(disk.clone()))) {
            let series = numbers(&store, &keys(SERIES));
            operate(&store, &series, &mut random, &mut model).await;
        }
        let loses_power = random.below(2) == 0;
        disk.repair();
        disk = if loses_power {
            disk.power_loss_seeded(random.below(u64::MAX))
        } else {
            disk.kill()
        };
        let store = PartsStore::open(small(Arc::new(disk.clone())))
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        let series = numbers(&store, &keys(SERIES));
        check(&store, &series, &model, &context).await;
        drop(store);
        disk = disk.kill();
    }
}

/// `OXTSDB_HISTORIES=20000` for a longer run.
#[tokio::test(flavor = "multi_thread")]
async fn crashes_lose_nothing_that_was_acknowledged() {
    let count = std::env::var("OXTSDB_HISTORIES").map_or(25, |count| count.parse().unwrap());
    for seed in 0..count {
        history(seed).await;
    }
}
