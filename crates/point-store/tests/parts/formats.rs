//! Folders of older formats: what earlier versions wrote is read, and is of the newest format then.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxtsdb_point_store::parts::PartsStore;
use oxtsdb_point_store::{PointStore as _, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk as _;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;
use oxtsdb_storage_file::folder::{create_dir_durably, read_all, replace};

use crate::support::{int, keys, read, small};

const SERIES: u32 = 4;
const DAY: i64 = 86_400;

/// A disk with a folder that was written in format 1: parts of two days, a tombstone, a journal with two appends.
fn format_1() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parts/fixtures/format-1");
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let target = Path::new("/store").join(&folder);
        create_dir_durably(&disk, &target).unwrap();
        for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else {
                let content = std::fs::read(entry.path()).unwrap();
                replace(&disk, &target.join(entry.file_name()), &content).unwrap();
            }
        }
    }
    disk
}

/// The second and value of each point, by series.
fn expected() -> BTreeSet<(u32, i64, i64)> {
    let points = [(0, 1), (10, 8), (30, 9), (DAY, 3), (DAY + 7, 4)];
    let of = |series| points.map(|(second, value)| (series, second, value));
    let mut all: BTreeSet<_> = (0..SERIES).flat_map(of).collect();
    // It was deleted.
    all.remove(&(0, 0, 1));
    all
}

async fn found(store: &PartsStore) -> BTreeSet<(u32, i64, i64)> {
    let series: Vec<_> = keys(SERIES).iter().map(|key| store.find(key).unwrap()).collect();
    let series_points = read(store, &series, TimeRange::ALL).await.unwrap();
    let of = |series: SeriesNumber, point: oxtsdb_point_store::Point| {
        let second = (point.time_ms - int(0, 0).time_ms) / 1000;
        (series.0, second, point.bits.cast_signed())
    };
    series_points
        .into_iter()
        .flat_map(|(series, points)| points.into_iter().map(move |point| of(series, point)))
        .collect()
}

fn format_of(disk: &SimulatedDisk) -> String {
    let text = read_all(disk, Path::new("/store/STORE"), 100).unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_format_1_opens_with_all_points_and_gets_manifests() {
    // The first versions of the format had no list of the journal's segments.
    for has_list in [true, false] {
        let disk = format_1();
        if !has_list {
            disk.remove(Path::new("/store/journal/SEGMENTS")).unwrap();
        }
        assert_eq!(format_of(&disk), "oxtsdb point store, format 1\n");
        let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
        assert_eq!(found(&store).await, expected());
        drop(store);
        let disk = disk.power_loss();
        assert_eq!(format_of(&disk), "oxtsdb point store, format 2\n");
        let files = disk.files();
        let manifests = files.keys().filter(|path| path.ends_with("/MANIFEST")).count();
        assert_eq!(manifests, 3, "of two days and of the store: {files:?}");
        // From now on a file that is missing is noticed.
        let part = files.keys().find(|path| path.ends_with(".part")).unwrap();
        disk.remove(Path::new(part)).unwrap();
        let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
        assert_eq!(store.damage().len(), 1);
        store.close().await.unwrap();
        drop(store);
        disk.remove(Path::new("/store/journal/SEGMENTS")).unwrap();
        let error = PartsStore::open(small(Arc::new(disk))).unwrap_err();
        assert!(error.to_string().contains("/store/journal/SEGMENTS"), "{error}");
        assert!(error.to_string().contains("tsdb store salvage"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_change_of_the_format_is_repeated() {
    for count in 0.. {
        let disk = format_1();
        let before = disk.operations();
        disk.fail_after(count);
        let is_open = PartsStore::open(small(Arc::new(disk.clone()))).is_ok();
        let operations = disk.operations() - before;
        for disk in [disk.kill(), disk.power_loss(), disk.power_loss_seeded(count)] {
            let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
            assert_eq!(
                (found(&store).await, store.damage()),
                (expected(), Vec::new()),
                "{count}"
            );
        }
        if is_open && operations <= count {
            assert!(count > 50, "{count}");
            break;
        }
    }
}

#[test]
fn a_newer_format_is_refused() {
    let disk = format_1();
    replace(
        &disk,
        Path::new("/store/STORE"),
        b"oxtsdb point store, format 3\n",
    )
    .unwrap();
    let error = PartsStore::open(small(Arc::new(disk))).unwrap_err();
    assert!(matches!(error, PointStoreError::Format { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "/store has format `3`, this version reads format 2"
    );
}
