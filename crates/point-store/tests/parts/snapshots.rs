//! Snapshots of a store that is written to, and checks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oxtsdb_point_store::parts::{PartsConfig, PartsStore, snapshot};
use oxtsdb_point_store::{PointStore as _, PointStoreError, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

use crate::support::{batch, int, keys, numbers, read, small};

fn open_at(disk: &SimulatedDisk, path: &Path) -> PartsStore {
    let config = PartsConfig {
        path: path.to_owned(),
        ..small(Arc::new(disk.clone()))
    };
    PartsStore::open(config).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_a_prefix_of_the_appends_with_all_acknowledged_ones() {
    let disk = SimulatedDisk::new();
    let store = Arc::new(PartsStore::open(small(Arc::new(disk.clone()))).unwrap());
    let all = keys(3);
    for round in 0..5 {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn({
            let (store, stop, all) = (Arc::clone(&store), Arc::clone(&stop), all.clone());
            async move {
                let series = numbers(&store, &all);
                let mut written = round * 10_000;
                while !stop.load(Ordering::Relaxed) {
                    // Over several days.
                    let second = written * 20_000;
                    let points = [0, 1, 2].map(|of| (series[of], int(second, written)));
                    store.append(batch(&points)).await.unwrap();
                    written += 1;
                }
                written
            }
        });
        let series = numbers(&store, &all);
        let acknowledged = int(round * 10_000 * 20_000 + 7, -1);
        store.append(batch(&[(series[0], acknowledged)])).await.unwrap();
        let target = Path::new("/snapshots").join(round.to_string());
        store.snapshot(&target).await.unwrap();
        stop.store(true, Ordering::Relaxed);
        let written = writer.await.unwrap();

        let copy = open_at(&disk, &target);
        let copy_series = numbers(&copy, &all);
        assert_eq!(copy_series, series, "series keep their numbers");
        let points = read(&copy, &copy_series, TimeRange::ALL).await.unwrap();
        let of = |index: usize| {
            let values = points[index].1.iter().map(|point| point.bits.cast_signed());
            values
                .filter(|value| *value >= round * 10_000)
                .collect::<Vec<_>>()
        };
        assert!(points[0].1.contains(&acknowledged), "round {round}");
        if points.len() == 3 {
            // Batches are whole, and none is missing before one that is there.
            assert_eq!((of(0), of(1)), (of(1), of(2)));
            assert!(of(0).is_sorted() && of(0).len() <= usize::try_from(written - round * 10_000).unwrap());
            assert!(of(0).iter().copied().eq((round * 10_000..).take(of(0).len())));
        }
        // It is a store of its own.
        copy.append(batch(&[(copy_series[0], int(0, 1))])).await.unwrap();
        copy.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_needs_an_empty_folder() {
    let disk = SimulatedDisk::new();
    let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
    let target = Path::new("/snapshots/1");
    store.snapshot(target).await.unwrap();
    assert!(open_at(&disk, target).metrics().is_empty(), "an empty store");
    let error = store.snapshot(target).await.unwrap_err();
    assert!(matches!(error, PointStoreError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("not empty"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reports_progress_and_damage() {
    let disk = SimulatedDisk::new();
    let store = PartsStore::open(small(Arc::new(disk.clone()))).unwrap();
    let series = numbers(&store, &keys(2));
    for day in 0..3 {
        let points = [
            (series[0], int(day * 86_400, day)),
            (series[1], int(day * 86_400, day)),
        ];
        store.append(batch(&points)).await.unwrap();
    }
    store.flush().await.unwrap();
    let bytes: u64 = store.stats().days.iter().map(|day| day.bytes).sum();
    let mut last = 0;
    let checked = store
        .check(0, &mut |bytes| {
            last = bytes;
            true
        })
        .unwrap();
    assert_eq!((checked.files, checked.damaged.len(), last), (3, 0, bytes));
    assert!(store.check(0, &mut |_| false).unwrap().was_stopped);

    let target = Path::new("/snapshots/1");
    store.snapshot(target).await.unwrap();
    let of_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let days = disk.list(target).unwrap();
    let day = days.iter().find(|entry| entry.is_dir).unwrap();
    let folder = target.join(&day.name);
    let part = folder.join(&disk.list(&folder).unwrap()[0].name);
    assert_eq!(snapshot::verify(&of_disk, &part), Ok(true));
    assert_eq!(snapshot::verify(&of_disk, &target.join("series.log")), Ok(false));
    assert!(disk.flip_bit(&part, 300).unwrap());
    let error = snapshot::verify(&of_disk, &part).unwrap_err();
    assert!(matches!(error, PointStoreError::Damaged { .. }), "{error}");
    assert_eq!(store.check(0, &mut |_| true).unwrap().damaged.len(), 1);
}
