//! A flipped bit in each file of a store: it is refused with the file's name, or serves what is right and reports the
//! rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use oxtsdb_point_store::parts::PartsStore;
use oxtsdb_point_store::{Point, PointStore as _, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

use crate::support::{batch, int, keys, numbers, read, small};

const SERIES: u32 = 4;
const DAY: i64 = 86_400;
/// Bits of a file, at equal distances; of smaller files one of each byte.
const FLIPS: u64 = 50;

/// All states of each instant, oldest first. `None`: no point.
type History = BTreeMap<(SeriesNumber, i64), Vec<Option<Point>>>;

async fn append(store: &PartsStore, second: i64, value: i64, history: &mut History) {
    let series = numbers(store, &keys(SERIES));
    let points: Vec<_> = series
        .iter()
        .map(|series| (*series, int(second, value)))
        .collect();
    store.append(batch(&points)).await.unwrap();
    for (series, point) in points {
        history
            .entry((series, point.time_ms))
            .or_default()
            .push(Some(point));
    }
}

/// A store with series, parts of two days, a tombstone, and a journal of two frames; the last one has a point of its
/// own instant.
async fn whole() -> (SimulatedDisk, History) {
    let disk = SimulatedDisk::new();
    let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
    let series = numbers(&store, &keys(SERIES));
    let mut history = History::new();
    for (second, value) in [(0, 1), (10, 2), (DAY, 3), (DAY + 7, 4)] {
        append(&store, second, value, &mut history).await;
    }
    store.flush().await.unwrap();
    append(&store, 10, 5, &mut history).await;
    store.flush().await.unwrap();
    append(&store, 10, 6, &mut history).await;
    append(&store, 20, 7, &mut history).await;
    let deleted = int(0, 0).time_ms;
    let range = TimeRange {
        first_ms: deleted,
        last_ms: deleted,
    };
    store.delete(&series[..1], range).await.unwrap();
    history.entry((series[0], deleted)).or_default().push(None);
    append(&store, 10, 8, &mut history).await;
    append(&store, 30, 9, &mut history).await;
    drop(store);
    (disk.kill(), history)
}

/// Whether an error names the damaged file, or the folder of its kind.
fn names(error: &PointStoreError, path: &str) -> bool {
    let text = error.to_string();
    let folder = Path::new(path).parent().unwrap().to_str().unwrap();
    // The keys of series are in two files and in the journal.
    let is_series = path.contains("series.") && text.contains("series.");
    text.contains(path) || text.contains(folder) || is_series
}

/// Whether a point that is not the newest of its instant may be found: the loss is reported, or it was in the last
/// write to the journal, which cannot be told from an interrupted one.
fn may_differ(store: &PartsStore, place: (SeriesNumber, i64), path: &str) -> bool {
    let (series, time_ms) = place;
    let at = TimeRange {
        first_ms: time_ms,
        last_ms: time_ms,
    };
    !store.lost(&[series], at).is_empty() || path.ends_with(".journal") && time_ms == int(30, 0).time_ms
}

/// Opens the store and checks it; returns whether the flip was noticed.
async fn check(disk: SimulatedDisk, path: &str, history: &History) -> bool {
    let store = match PartsStore::open(small(Arc::new(disk.clone()))) {
        Ok(store) => store,
        Err(error) => {
            assert!(names(&error, path), "{path}: {error}");
            assert!(
                matches!(
                    error,
                    PointStoreError::Damaged { .. } | PointStoreError::Format { .. }
                ),
                "{path}: {error:?}"
            );
            return true;
        }
    };
    let all = keys(SERIES);
    let series: Vec<_> = all.iter().map(|key| store.find(key).unwrap()).collect();
    let mut is_noticed = false;
    for _attempt in 0..3 {
        match read(&store, &series, TimeRange::ALL).await {
            Ok(read) => {
                let mut read_points = BTreeMap::new();
                for (series, points) in read {
                    read_points.extend(points.into_iter().map(|point| ((series, point.time_ms), point)));
                }
                for (place, states) in history {
                    let point = read_points.remove(place);
                    if Some(&point) != states.last() {
                        assert!(
                            states.contains(&point) || point.is_none(),
                            "{path}: {place:?} is {point:?}"
                        );
                        assert!(may_differ(&store, *place, path), "{path}: {place:?} is {point:?}");
                        is_noticed = true;
                    }
                }
                assert!(
                    read_points.is_empty(),
                    "{path}: was never written: {read_points:?}"
                );
                break;
            }
            Err(error) => {
                assert!(
                    matches!(error, PointStoreError::Damaged { .. }),
                    "{path}: {error}"
                );
                assert!(names(&error, path), "{path}: {error}");
                is_noticed = true;
            }
        }
    }
    for (series, key) in series.iter().zip(&all) {
        let mut stored_key = Vec::new();
        assert!(
            store.key(*series, &mut stored_key) && stored_key == *key,
            "{path}"
        );
    }
    // Appends go on, with a new series, too.
    let new = numbers(&store, &keys(SERIES + 1));
    let points: Vec<_> = new.iter().map(|series| (*series, int(2 * DAY, 10))).collect();
    store.append(batch(&points)).await.unwrap();
    store.flush().await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = PartsStore::open(small(Arc::new(disk))).unwrap();
    assert_eq!(numbers(&store, &keys(SERIES + 1)), new, "{path}");
    let behind = TimeRange {
        first_ms: int(2 * DAY, 0).time_ms,
        last_ms: i64::MAX,
    };
    let series_points = read(&store, &new, behind).await.unwrap();
    let expected: Vec<_> = points
        .iter()
        .map(|(series, point)| (*series, vec![*point]))
        .collect();
    assert_eq!(series_points, expected, "{path}");
    is_noticed || !store.damage().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_any_file_is_no_wrong_answer() {
    let (whole, history) = whole().await;
    assert!(!check(whole.kill(), "none", &history).await);
    let files = whole.files();
    for kind in [
        "/STORE",
        "/series.log",
        "/series.copy",
        ".journal",
        ".part",
        ".deleted",
    ] {
        assert!(files.keys().any(|path| path.ends_with(kind)), "{kind}: {files:?}");
    }
    let history = Arc::new(history);
    let mut checks = Vec::new();
    for (path, length) in files {
        let (whole, history) = (whole.kill(), Arc::clone(&history));
        checks.push(tokio::spawn(async move {
            let bits = length * 8;
            let distance = (bits / FLIPS).max(9);
            let (mut flips, mut noticed) = (0, 0);
            for bit in (0..bits).step_by(usize::try_from(distance).unwrap()) {
                let disk = whole.kill();
                disk.flip_bit(Path::new(&path), bit).unwrap();
                flips += 1;
                noticed += usize::from(check(disk, &path, &history).await);
            }
            eprintln!("{path}: {length} bytes, {flips} flips, {noticed} were noticed");
            let is_checked = [".part", ".deleted"].iter().any(|kind| path.ends_with(kind));
            assert!(!is_checked || noticed == flips, "{path}: {noticed} of {flips}");
        }));
    }
    for check in checks {
        check.await.unwrap();
    }
}
