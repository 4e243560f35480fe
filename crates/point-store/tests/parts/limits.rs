//! Full disks, folders that are taken, retention.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use oxtsdb_point_store::parts::{ClockStats, PartsConfig, PartsStore};
use oxtsdb_point_store::{Columns, PointStore as _, PointStoreError, TimeRange};
use oxtsdb_row_store::Clock;
use oxtsdb_storage_file::disk::Disk as _;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

use crate::support::{START_MS, batch, int, keys, numbers, read, small};

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_under_its_reserve_refuses_points_and_serves_the_rest() {
    let disk = SimulatedDisk::new();
    let config = PartsConfig {
        reserve_bytes: 1 << 20,
        ..small(Arc::new(disk.clone()))
    };
    let store = PartsStore::open(config).unwrap();
    let series = numbers(&store, &keys(1));
    store.append(batch(&[(series[0], int(0, 1))])).await.unwrap();
    disk.set_free_bytes(400 << 10);
    let refused = loop {
        // Free space is measured from time to time.
        match store.append(batch(&[(series[0], int(1, 2))])).await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, PointStoreError::Full(_)), "{refused}");
    assert!(refused.to_string().contains("524288 are reserved"), "{refused}");
    assert!(store.check_health().await.is_err());
    assert_eq!(read(&store, &series, TimeRange::ALL).await.unwrap().len(), 1);
    store.delete(&series, TimeRange::ALL).await.unwrap();
    assert!(read(&store, &series, TimeRange::ALL).await.unwrap().is_empty());
    disk.set_free_bytes(1 << 30);
    loop {
        if store.append(batch(&[(series[0], int(2, 3))])).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.check_health().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_belongs_to_one_store() {
    let disk = SimulatedDisk::new();
    let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
    let error = PartsStore::open(small(Arc::new(disk.clone()))).unwrap_err();
    assert!(matches!(error, PointStoreError::Unavailable(_)), "{error}");
    drop(store);
    PartsStore::open(small(Arc::new(disk))).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn days_before_the_edge_are_dropped_even_if_the_clock_jumps() {
    const DAY: i64 = 86_400;
    let disk = SimulatedDisk::new();
    // Years ahead of all points.
    let config = PartsConfig {
        retention: Some(Duration::from_secs(86_400 * 3)),
        clock: Clock::new(|| START_MS + 1000 * 86_400_000),
        ..small(Arc::new(disk))
    };
    let store = PartsStore::open(config).unwrap();
    let series = numbers(&store, &keys(2));
    for day in 0..10 {
        let points = [
            (series[0], int(day * DAY, day)),
            (series[1], int(day * DAY + 7, day)),
        ];
        store.append(batch(&points)).await.unwrap();
    }
    store.flush().await.unwrap();
    // The edge is in the middle of a day, which stays.
    let days = loop {
        let series_points = read(&store, &series, TimeRange::ALL).await.unwrap();
        let days: Vec<i64> = series_points[0]
            .1
            .iter()
            .map(|point| point.bits.cast_signed())
            .collect();
        assert!(days.ends_with(&[7, 8, 9]), "{days:?}");
        // They are dropped one after the other.
        if days.len() <= 4 {
            break days;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(days == [6, 7, 8, 9] || days == [7, 8, 9], "{days:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn estimates_tell_memory_from_files() {
    let store = PartsStore::open(small(Arc::new(SimulatedDisk::new()))).unwrap();
    let series = numbers(&store, &keys(2));
    let append = async |hour: i64| {
        let points: Vec<_> = (0..100)
            .map(|step| (series[0], int(hour * 3600 + step, step)))
            .collect();
        store.append(batch(&points)).await.unwrap();
    };
    append(0).await;
    let before = store.estimate(&series, TimeRange::ALL);
    assert!(before.points > 0 && before.memory_points == before.points);
    assert_eq!((before.blocks, before.files), (0, 0));
    store.flush().await.unwrap();
    let flushed = store.estimate(&series, TimeRange::ALL);
    assert_eq!((flushed.points, flushed.memory_points), (100, 0));
    assert_eq!((flushed.blocks, flushed.files), (1, 1));
    append(1).await;
    let both = store.estimate(&series, TimeRange::ALL);
    assert!(both.memory_points > 0 && both.points == 100 + both.memory_points);
    assert_eq!((both.blocks, both.files), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn points_of_files_are_in_memory_once_their_pages_are_read() {
    let store = PartsStore::open(small(Arc::new(SimulatedDisk::new()))).unwrap();
    let series = numbers(&store, &keys(2));
    let append = async |hour: i64| {
        let points = (0..100).flat_map(|step| {
            // Instants of no regular distance, which are a column that the series share.
            let time_s = hour * 3600 + step * 10 + step % 3;
            series.iter().map(move |one| (*one, int(time_s, step)))
        });
        let points: Vec<_> = points.collect();
        store.append(batch(&points)).await.unwrap();
    };
    append(0).await;
    let of_head = store.points_in_memory(&series, TimeRange::ALL).unwrap();
    assert!((200..1000).contains(&of_head), "{of_head}");
    store.flush().await.unwrap();
    assert_eq!(store.points_in_memory(&series, TimeRange::ALL), None);
    let mut reader = store.reader(TimeRange::ALL).unwrap();
    let mut points = Columns::default();
    reader.read(series[0], &mut points).unwrap();
    assert_eq!(points.len(), 100);
    assert_eq!(store.points_in_memory(&series[..1], TimeRange::ALL), Some(100));
    reader.read(series[1], &mut points).unwrap();
    assert_eq!(store.points_in_memory(&series, TimeRange::ALL), Some(200));
    let later = TimeRange {
        first_ms: START_MS + 3_600_000,
        last_ms: START_MS + 7_200_000,
    };
    assert_eq!(store.points_in_memory(&series, later), Some(0));
    append(1).await;
    assert!(store.points_in_memory(&series, later).unwrap() >= 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn points_in_the_future_drop_no_others() {
    const DAY: i64 = 86_400;
    let now = Arc::new(AtomicI64::new(START_MS + 5 * DAY * 1000));
    let open = |disk: SimulatedDisk| {
        let clock = Arc::clone(&now);
        let config = PartsConfig {
            retention: Some(Duration::from_secs(3 * 86_400)),
            clock: Clock::new(move || clock.load(Ordering::Relaxed)),
            ..small(Arc::new(disk))
        };
        PartsStore::open(config).unwrap()
    };
    let disk = SimulatedDisk::new();
    let store = open(disk.clone());
    let series = numbers(&store, &keys(1));
    assert_eq!(store.retention_edge_ms(), None, "there are no points");
    let far = 2000 * DAY;
    let points = [(series[0], int(4 * DAY, 4)), (series[0], int(far, 5))];
    store.append(batch(&points)).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    // The machine starts with a clock that is a thousand days ahead.
    now.fetch_add(1000 * DAY * 1000, Ordering::Relaxed);
    let store = open(disk);
    let edge_ms = store.retention_edge_ms().unwrap();
    let newest_ms = START_MS + 4 * DAY * 1000;
    let last_of_day = newest_ms..newest_ms + DAY * 1000;
    assert!(last_of_day.contains(&(edge_ms + 3 * DAY * 1000)), "{edge_ms}");
    assert_eq!(read(&store, &series, TimeRange::ALL).await.unwrap()[0].1.len(), 2);
    // It jumps by as much again, which is noticed, and retention stays.
    now.fetch_add(3000 * DAY * 1000, Ordering::Relaxed);
    while store.stats().figures.clock.jumps == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(store.retention_edge_ms(), Some(edge_ms));
    let held_back_ms = store.stats().figures.clock.held_back_ms;
    assert!(
        (held_back_ms - 4000 * DAY * 1000).abs() < 60_000,
        "{held_back_ms}"
    );
    assert_eq!(store.stats().figures.counters.dropped_days.get(), 0);
}

/// A store that was used until now, with points of the last 20 days, and is opened by a clock 400 days ahead.
struct ClockAhead {
    disk: SimulatedDisk,
    now_ms: i64,
    /// How often stores have looked at the clock.
    looks: Arc<AtomicI64>,
}

impl ClockAhead {
    const DAY: i64 = 86_400;

    async fn new() -> Self {
        let ahead = Self {
            disk: SimulatedDisk::new(),
            now_ms: START_MS + 19 * Self::DAY * 1000,
            looks: Arc::default(),
        };
        let store = ahead.open(0, None);
        let series = numbers(&store, &keys(1));
        let points: Vec<_> = (0..20)
            .map(|day| (series[0], int(day * Self::DAY, day)))
            .collect();
        store.append(batch(&points)).await.unwrap();
        store.close().await.unwrap();
        ahead
    }

    fn open(&self, days_ahead: i64, confirmed_ms: Option<i64>) -> PartsStore {
        let now_ms = self.now_ms + days_ahead * Self::DAY * 1000;
        let config = PartsConfig {
            retention: Some(Duration::from_secs(30 * 86_400)),
            clock: Clock::new({
                let looks = Arc::clone(&self.looks);
                move || {
                    looks.fetch_add(1, Ordering::Relaxed);
                    now_ms
                }
            }),
            clock_confirmed_ms: confirmed_ms,
            ..small(Arc::new(self.disk.clone()))
        };
        PartsStore::open(config).unwrap()
    }

    /// Adds a point at the time of the clock, writes it to a part, and returns how many points remain.
    async fn points_after_one_of(&self, store: &PartsStore, days_ahead: i64) -> usize {
        let series = numbers(store, &keys(1));
        let point = int((19 + days_ahead) * Self::DAY, -1);
        store.append(batch(&[(series[0], point)])).await.unwrap();
        store.flush().await.unwrap();
        // Two threads look for merges, one of them for old days before.
        let looks = self.looks.load(Ordering::Relaxed);
        while self.looks.load(Ordering::Relaxed) < looks + 9 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        read(store, &series, TimeRange::ALL).await.unwrap()[0].1.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_ahead_by_more_than_the_retention_drops_nothing() {
    let ahead = ClockAhead::new().await;
    // Not by a second start either.
    for _ in 0..2 {
        let store = ahead.open(400, None);
        assert_eq!(ahead.points_after_one_of(&store, 400).await, 21);
        let clock = store.stats().figures.clock;
        assert!(clock.needs_confirmation, "{clock:?}");
        assert_eq!(store.stats().figures.counters.dropped_days.get(), 0);
        store.close().await.unwrap();
    }
    // The clock is set right.
    let store = ahead.open(1, None);
    assert_eq!(store.stats().figures.clock, ClockStats::default());
    assert_eq!(ahead.points_after_one_of(&store, 1).await, 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_ahead_is_followed_when_the_operator_confirms_the_day() {
    let ahead = ClockAhead::new().await;
    let day_ms = ahead.now_ms + 400 * ClockAhead::DAY * 1000;
    let store = ahead.open(400, Some(day_ms - 1));
    assert!(store.stats().figures.clock.needs_confirmation);
    drop(store);
    let store = ahead.open(400, Some(day_ms));
    assert_eq!(store.stats().figures.clock, ClockStats::default());
    assert_eq!(ahead.points_after_one_of(&store, 400).await, 1);
    drop(store);
    // The time is recorded then.
    let store = ahead.open(401, None);
    assert_eq!(store.stats().figures.clock, ClockStats::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_points_replace_a_record_of_the_time_that_is_absent_or_damaged() {
    let record = Path::new("/store/CLOCK");
    for damage in [false, true] {
        let ahead = ClockAhead::new().await;
        match damage {
            true => assert!(ahead.disk.flip_bit(record, 100).unwrap()),
            false => ahead.disk.remove(record).unwrap(),
        }
        let store = ahead.open(400, None);
        assert!(store.stats().figures.clock.needs_confirmation);
        assert_eq!(ahead.points_after_one_of(&store, 400).await, 21);
        drop(store);
        // Within the retention.
        assert_eq!(ahead.open(20, None).stats().figures.clock, ClockStats::default());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_the_time_at_which_it_was_made() {
    let ahead = ClockAhead::new().await;
    let store = ahead.open(0, None);
    // A point in the future is no witness.
    let series = numbers(&store, &keys(1));
    let point = int(300 * ClockAhead::DAY, -1);
    store.append(batch(&[(series[0], point)])).await.unwrap();
    let snapshot = Path::new("/snapshot");
    store.snapshot(snapshot).await.unwrap();
    let now_ms = ahead.now_ms + 300 * ClockAhead::DAY * 1000;
    let config = PartsConfig {
        path: snapshot.to_owned(),
        retention: Some(Duration::from_secs(30 * 86_400)),
        clock: Clock::new(move || now_ms),
        ..small(Arc::new(ahead.disk.clone()))
    };
    let copy = PartsStore::open(config).unwrap();
    assert!(copy.stats().figures.clock.needs_confirmation);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_does_not_get_fuller_with_each_attempt_to_flush() {
    const DAYS: i64 = 40;
    let disk = SimulatedDisk::new();
    let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
    let series = numbers(&store, &keys(1));
    store
        .append(batch(&[(series[0], int(-86_400, 0))]))
        .await
        .unwrap();
    store.flush().await.unwrap();
    let points: Vec<_> = (0..DAYS).map(|day| (series[0], int(day * 86_400, day))).collect();
    store.append(batch(&points)).await.unwrap();
    let parts = || disk.files().keys().filter(|path| path.ends_with(".part")).count();
    // For the parts of some days.
    disk.set_free_bytes(2500);
    let mut counts = Vec::new();
    for _ in 0..4 {
        store.flush().await.unwrap_err();
        counts.push(parts());
    }
    assert!(
        counts[0] > 1 && counts.iter().all(|count| *count == counts[0]),
        "{counts:?}"
    );
    disk.set_free_bytes(1 << 30);
    while store.flush().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(parts(), usize::try_from(DAYS).unwrap() + 1, "one of each day");
    let series_points = read(&store, &series, TimeRange::ALL).await.unwrap();
    assert_eq!(series_points[0].1.len(), usize::try_from(DAYS).unwrap() + 1);
    drop(store);
    let store = PartsStore::open(small(Arc::new(disk.power_loss()))).unwrap();
    assert_eq!(store.damage(), []);
    assert_eq!(
        read(&store, &series, TimeRange::ALL).await.unwrap(),
        series_points
    );
}
