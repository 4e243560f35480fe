//! Each file of a store is removed, emptied, cut, or replaced by an older copy: the store is refused with the file's name,
//! or the loss is known by series and range, and all else is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{Point, PointStore as _, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk as _;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;
use oxtsdb_storage_file::folder::read_all;

use crate::support::{batch, int, keys, numbers, read, small};

/// Of three metrics.
const SERIES: u32 = 5;
const DAY: i64 = 86_400;

/// The points that are visible.
type Points = BTreeMap<(SeriesNumber, i64), Point>;

/// A store, and what it has had.
struct History {
    disk: SimulatedDisk,
    /// All contents that each file has had, without its last one.
    older: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// The points after each append since the last flush, the last of them at the end.
    states: Vec<Points>,
}

struct Recorder {
    store: PartsStore,
    disk: SimulatedDisk,
    contents: BTreeMap<String, BTreeSet<Vec<u8>>>,
    points: Points,
    states: Vec<Points>,
}

impl Recorder {
    async fn append(&mut self, of: &[u32], second: i64, value: i64) {
        let series = numbers(&self.store, &keys(SERIES));
        let points: Vec<_> = of
            .iter()
            .map(|of| (series[*of as usize], int(second, value)))
            .collect();
        self.store.append(batch(&points)).await.unwrap();
        let points = points.into_iter();
        self.points
            .extend(points.map(|(series, point)| ((series, point.time_ms), point)));
        self.states.push(self.points.clone());
        self.record();
    }

    async fn flush(&mut self) {
        self.store.flush().await.unwrap();
        self.states = vec![self.points.clone()];
        self.record();
    }

    fn record(&mut self) {
        for (path, content) in contents(&self.disk.kill()) {
            self.contents.entry(path).or_default().insert(content);
        }
    }
}

fn contents(disk: &SimulatedDisk) -> BTreeMap<String, Vec<u8>> {
    let paths = disk.files().into_keys();
    let content = |path: String| {
        let content = read_all(disk, Path::new(&path), u64::MAX).unwrap();
        (path, content)
    };
    paths.map(content).collect()
}

/// A store with days of one part, of parts of different metrics, and of a merged part; a tombstone; a journal.
async fn history() -> History {
    let disk = SimulatedDisk::new();
    let mut recorder = Recorder {
        store: PartsStore::open(small(Arc::new(disk.clone()))).unwrap(),
        disk: disk.clone(),
        contents: BTreeMap::new(),
        points: Points::new(),
        states: vec![Points::new()],
    };
    let all = [0, 1, 2, 3, 4];
    for (second, value) in [(0, 1), (10, 2), (3 * DAY, 3)] {
        recorder.append(&all, second, value).await;
    }
    recorder.flush().await;
    recorder.append(&[1], 50, 4).await;
    recorder.flush().await;
    for round in 0..6 {
        recorder.append(&all[..3], DAY + round * 10, round).await;
        recorder.flush().await;
    }
    while recorder.store.stats().figures.merges.completed.get() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    recorder.append(&[2], DAY + 100, 5).await;
    let series = numbers(&recorder.store, &keys(SERIES));
    let range = TimeRange {
        first_ms: int(0, 0).time_ms,
        last_ms: int(5, 0).time_ms,
    };
    recorder.store.delete(&series[..2], range).await.unwrap();
    recorder
        .points
        .retain(|(of, time_ms), _| !(series[..2].contains(of) && range.contains(*time_ms)));
    recorder.states = vec![recorder.points.clone()];
    recorder.record();
    recorder.append(&[4], 20, 6).await;
    recorder.append(&all, 4 * DAY, 7).await;
    let Recorder {
        store,
        mut contents,
        states,
        ..
    } = recorder;
    drop(store);
    let disk = disk.kill();
    let last = self::contents(&disk);
    contents.retain(|path, _| last.contains_key(path));
    for (path, older) in &mut contents {
        older.remove(&last[path]);
    }
    History {
        disk,
        older: contents,
        states,
    }
}

/// Replaces a file, durably; removes it without content.
fn put(disk: &SimulatedDisk, path: &str, content: Option<&[u8]>) {
    let path = Path::new(path);
    disk.remove(path).unwrap();
    if let Some(content) = content {
        let mut file = disk.create(path).unwrap();
        file.write(content).unwrap();
        file.sync().unwrap();
    }
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// Whether an error names a file, or its folder.
fn names(error: &PointStoreError, path: &str) -> bool {
    let text = error.to_string();
    let folder = Path::new(path).parent().unwrap().to_str().unwrap();
    text.contains(path) || text.contains(folder)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Whole,
    /// So many points are lost, and known to be.
    Known(usize),
    /// Appends at the end of the journal are absent: they cannot be told from an interrupted write.
    Shorter,
}

async fn check(history: &History, disk: &SimulatedDisk, path: &str, context: &str) -> Outcome {
    let store = match PartsStore::open(small(Arc::new(disk.clone()))) {
        Ok(store) => store,
        Err(error) => {
            let is_named = matches!(
                error,
                PointStoreError::Damaged { .. } | PointStoreError::Format { .. }
            );
            assert!(is_named && names(&error, path), "{context}: {error}");
            return Outcome::Refused;
        }
    };
    let series: Vec<_> = keys(SERIES)
        .iter()
        .map(|key| {
            store
                .find(key)
                .unwrap_or_else(|| panic!("{context}: a series is lost"))
        })
        .collect();
    // Damage that opening did not find is found by the first read, which fails.
    for one in &series {
        if let Err(error) = read(&store, &[*one], TimeRange::ALL).await {
            assert!(
                matches!(error, PointStoreError::Damaged { .. }) && names(&error, path),
                "{context}: {error}"
            );
        }
    }
    let mut read_points = Points::new();
    for (series, points) in read(&store, &series, TimeRange::ALL).await.unwrap() {
        read_points.extend(points.into_iter().map(|point| ((series, point.time_ms), point)));
    }
    let is_known = |(series, time_ms): &(SeriesNumber, i64)| {
        let (first_ms, last_ms) = (*time_ms, *time_ms);
        !store.lost(&[*series], TimeRange { first_ms, last_ms }).is_empty()
    };
    let whole = history.states.last().unwrap();
    let places: BTreeSet<_> = whole.keys().chain(read_points.keys()).collect();
    let differ: Vec<_> = places
        .into_iter()
        .filter(|place| whole.get(place) != read_points.get(place))
        .collect();
    if differ.is_empty() {
        return Outcome::Whole;
    }
    if differ.iter().all(|place| is_known(place)) {
        return Outcome::Known(differ.len());
    }
    assert!(
        path.ends_with(".journal") && history.states.contains(&read_points),
        "{context}: silently differs at {differ:?}"
    );
    Outcome::Shorter
}

/// A refused store opens when losses are accepted, and then without them.
async fn check_accepted(history: &History, disk: &SimulatedDisk, context: &str) {
    let config = PartsConfig {
        accept_losses: true,
        ..small(Arc::new(disk.clone()))
    };
    let Ok(store) = PartsStore::open(config) else {
        assert!(context.contains("/STORE"), "{context}: is refused");
        return;
    };
    let losses = store.losses().to_vec();
    assert!(!losses.is_empty(), "{context}");
    assert!(
        losses.iter().all(|loss| store.damage().contains(loss)),
        "{context}"
    );
    let series = numbers(&store, &keys(SERIES));
    let points = async |store: &PartsStore| {
        let mut read_points = Points::new();
        for (series, points) in read(store, &series, TimeRange::ALL).await.unwrap() {
            read_points.extend(points.into_iter().map(|point| ((series, point.time_ms), point)));
        }
        read_points
    };
    let read_points = points(&store).await;
    for (place, point) in &history.states[0] {
        assert_eq!(
            read_points.get(place),
            Some(point),
            "{context}: {place:?} is in parts"
        );
    }
    let added = int(9 * DAY, 1);
    store.append(batch(&[(series[0], added)])).await.unwrap();
    let mut read_points = points(&store).await;
    store.close().await.unwrap();
    drop(store);
    let store = PartsStore::open(small(Arc::new(disk.power_loss())))
        .unwrap_or_else(|error| panic!("{context}: accepted, and {error}"));
    assert_eq!(
        (store.losses(), points(&store).await),
        (&[][..], read_points.clone()),
        "{context}"
    );
    assert_eq!(read_points.remove(&(series[0], added.time_ms)), Some(added));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_lost_silently() {
    let history = Arc::new(history().await);
    let whole = check(&history, &history.disk.kill(), "", "whole").await;
    assert_eq!(whole, Outcome::Whole);
    let files = contents(&history.disk);
    let mut checks = Vec::new();
    for (path, content) in files.clone() {
        let half = content[..content.len() / 2].to_vec();
        let mut variants = vec![
            ("removed", None),
            ("emptied", Some(Vec::new())),
            ("cut", Some(half)),
            ("longer", Some([&content[..], b"more"].concat())),
        ];
        let older = history.older.get(&path).into_iter().flatten();
        variants.extend(older.map(|content| ("older", Some(content.clone()))));
        for (kind, content) in variants {
            let (history, path) = (Arc::clone(&history), path.clone());
            checks.push(tokio::spawn(async move {
                let context = format!("{path}, {kind}, {:?} bytes", content.as_ref().map(Vec::len));
                let disk = history.disk.kill();
                put(&disk, &path, content.as_deref());
                let outcome = check(&history, &disk.kill(), &path, &context).await;
                if outcome == Outcome::Refused {
                    check_accepted(&history, &disk, &context).await;
                }
                (kind, path, outcome)
            }));
        }
    }
    let mut outcomes: BTreeMap<(&str, String, Outcome), usize> = BTreeMap::new();
    for check in checks {
        let (kind, path, outcome) = check.await.unwrap();
        let name = path.rsplit('/').next().unwrap();
        let name = name.rsplit_once('.').map_or(name, |(_, extension)| extension);
        let is_part = path.ends_with(".part");
        assert!(
            !is_part || matches!(outcome, Outcome::Known(_)),
            "{path}, {kind}: {outcome:?}"
        );
        let is_root = path == "/store/MANIFEST" || path.ends_with("SEGMENTS");
        assert!(
            !is_root || kind == "older" || outcome == Outcome::Refused,
            "{path}, {kind}: {outcome:?}"
        );
        assert!(
            outcome != Outcome::Shorter || kind == "cut" || kind == "older",
            "{path}, {kind}"
        );
        *outcomes.entry((kind, name.to_owned(), outcome)).or_default() += 1;
    }
    for ((kind, name, outcome), count) in outcomes {
        eprintln!("{name:10} {kind:8} {outcome:?} × {count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_gone_is_noticed() {
    let history = history().await;
    let folders: BTreeSet<_> = history.disk.files().into_keys().collect();
    let folders: BTreeSet<_> = folders
        .iter()
        .map(|path| Path::new(path).parent().unwrap())
        .filter(|folder| *folder != Path::new("/store"))
        .collect();
    assert_eq!(folders.len(), 4, "three days and the journal: {folders:?}");
    for folder in folders {
        let is_journal = folder.ends_with("journal");
        for is_emptied in [false, true] {
            let disk = history.disk.kill();
            disk.remove_dir(folder).unwrap();
            if is_emptied {
                disk.create_dir(folder).unwrap();
            }
            let path = folder.join("any");
            let context = format!("{}, emptied: {is_emptied}", folder.display());
            let outcome = check(
                &history,
                &disk.power_loss_seeded(1),
                path.to_str().unwrap(),
                &context,
            )
            .await;
            if is_journal {
                assert_eq!(outcome, Outcome::Refused, "{context}");
                check_accepted(&history, &disk, &context).await;
            } else {
                assert!(matches!(outcome, Outcome::Known(_)), "{context}: {outcome:?}");
                // It stays known.
                let outcome = check(&history, &disk.kill(), path.to_str().unwrap(), &context).await;
                assert!(matches!(outcome, Outcome::Known(_)), "{context}: {outcome:?}");
            }
        }
    }
}

/// A part is missing together with the manifest of its day: the store's manifest has its sequences.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_missing_with_its_manifest_is_noticed() {
    let history = history().await;
    let files = history.disk.files();
    let of_first_day = files
        .keys()
        .filter(|path| path.contains("2023-11-14") && path.ends_with(".part"));
    for path in of_first_day {
        let disk = history.disk.kill();
        put(&disk, path, None);
        let manifest = Path::new(path).with_file_name("MANIFEST");
        put(&disk, manifest.to_str().unwrap(), None);
        let outcome = check(&history, &disk, path, path).await;
        assert!(matches!(outcome, Outcome::Known(_)), "{path}: {outcome:?}");
    }
}

/// Both copies of the series' keys are gone, or older.
#[tokio::test(flavor = "multi_thread")]
async fn series_that_are_missing_in_both_copies_are_noticed() {
    let history = history().await;
    for is_removed in [true, false] {
        let disk = history.disk.kill();
        for path in ["/store/series.log", "/store/series.copy"] {
            let content = contents(&disk)[path].clone();
            // The header, without series.
            put(&disk, path, (!is_removed).then_some(&content[..20]));
        }
        let outcome = check(&history, &disk, "/store/series.log", "series").await;
        assert_eq!(outcome, Outcome::Refused);
    }
}

/// The part with points of one metric is damaged so that its index cannot be read: other metrics of its day are served.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_fails_only_its_metrics() {
    let history = history().await;
    let series: Vec<_> = (0..SERIES).map(SeriesNumber).collect();
    let day = |second: i64| TimeRange {
        first_ms: int(second, 0).time_ms,
        last_ms: int(second, 0).time_ms,
    };
    for is_removed in [false, true] {
        let disk = history.disk.kill();
        let files = disk.files();
        // The second part of the first day has series 1 only.
        let path = files
            .keys()
            .filter(|path| path.ends_with(".part"))
            .nth(1)
            .unwrap();
        if is_removed {
            put(&disk, path, None);
        } else {
            disk.flip_bit(Path::new(path), files[path] * 8 - 100).unwrap();
        }
        let store = PartsStore::open(small(Arc::new(disk))).unwrap();
        assert_eq!(store.damage().len(), 1);
        for one in &series {
            let lost = store.lost(&[*one], TimeRange::ALL);
            // Series 1 and 4 are of one metric.
            assert_eq!(lost.len(), usize::from(one.0 % 3 == 1), "{one:?}");
            assert!(store.lost(&[*one], day(10)).is_empty(), "it has other instants");
        }
        let series_points = read(&store, &series, TimeRange::ALL).await.unwrap();
        let count: usize = series_points.iter().map(|(_, points)| points.len()).sum();
        assert_eq!(count, history.states.last().unwrap().len() - 1);
        let checked = store.check(0, &mut |_| true).unwrap();
        assert_eq!(checked.damaged, []);
    }
}

/// A part is removed under a running store.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_a_part_that_was_removed() {
    let history = history().await;
    let disk = history.disk.kill();
    let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
    let files: Vec<_> = disk.files().into_keys().collect();
    let mut parts = files.iter().filter(|path| path.ends_with(".part"));
    put(&disk, parts.next().unwrap(), None);
    let manifest = Path::new(parts.next_back().unwrap()).with_file_name("MANIFEST");
    put(&disk, manifest.to_str().unwrap(), Some(b""));
    let checked = store.check(0, &mut |_| true).unwrap();
    assert_eq!(checked.damaged.len(), 2, "{:?}", checked.damaged);
    assert_eq!(store.damage().len(), 1);
    assert_eq!(store.check(0, &mut |_| true).unwrap().damaged, []);
}
