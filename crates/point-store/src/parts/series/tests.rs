use std::collections::BTreeSet;

use super::*;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

/// A key of the default widths.
fn key(metric: u32, tags: &[(u32, u32)]) -> Vec<u8> {
    let uid = |number: u32| number.to_be_bytes()[1..].to_vec();
    let mut key = uid(metric);
    for (tagk, tagv) in tags {
        key.extend(uid(*tagk));
        key.extend(uid(*tagv));
    }
    key
}

fn catalogue() -> SeriesCatalogue {
    open(&SimulatedDisk::new()).unwrap()
}

fn open(disk: &SimulatedDisk) -> Result<SeriesCatalogue, PointStoreError> {
    SeriesCatalogue::open(
        Arc::new(disk.clone()),
        Path::new("series.log"),
        UidWidths::default(),
    )
}

fn numbers(catalogue: &SeriesCatalogue, keys: &[Vec<u8>]) -> Vec<u32> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let numbers = catalogue.numbers(&keys).unwrap();
    numbers.into_iter().map(|series| series.0).collect()
}

#[test]
fn new_keys_get_the_next_numbers_and_keep_them() {
    let catalogue = catalogue();
    let keys = [key(5, &[(1, 1)]), key(3, &[(1, 1)]), key(5, &[(1, 1)])];
    assert_eq!(numbers(&catalogue, &keys), [0, 1, 0]);
    let more = [key(3, &[(1, 2)]), key(3, &[(1, 1)]), key(5, &[(1, 1), (2, 1)])];
    assert_eq!(numbers(&catalogue, &more), [2, 1, 3]);
    assert_eq!(catalogue.len(), 4);
    assert_eq!(catalogue.find(&more[0]), Some(SeriesNumber(2)));
    assert_eq!(catalogue.find(&key(3, &[(1, 3)])), None);
    let mut stored_key = vec![1];
    assert!(catalogue.key(SeriesNumber(3), &mut stored_key));
    assert_eq!(stored_key, more[2]);
    assert!(!catalogue.key(SeriesNumber(4), &mut stored_key));
    assert!(stored_key.is_empty());
}

#[test]
fn metrics_are_numbered_in_the_order_of_their_first_series() {
    let catalogue = catalogue();
    let keys = [
        key(9, &[(1, 1)]),
        key(2, &[(1, 1)]),
        key(9, &[(1, 2)]),
        key(7, &[(1, 1)]),
    ];
    numbers(&catalogue, &keys);
    let metrics = (0..5).map(|series| catalogue.metric_of(SeriesNumber(series)));
    let metrics: Vec<Option<u32>> = metrics.map(|metric| metric.map(|metric| metric.0)).collect();
    assert_eq!(metrics, [Some(0), Some(1), Some(0), Some(2), None]);
    assert_eq!(catalogue.metric_number(&[0, 0, 7]), Some(MetricNumber(2)));
    assert_eq!(catalogue.metric_number(&[0, 0, 1]), None);
    assert_eq!(catalogue.metric_number(&[7]), None);
}

#[test]
fn rejects_keys_that_are_no_tsuids() {
    let catalogue = catalogue();
    for bad in [
        &[][..],
        &key(1, &[]),
        &key(1, &[(1, 1)])[..8],
        &key(1, &[(2, 1), (1, 1)]),
    ] {
        let error = catalogue.numbers(&[bad]).unwrap_err();
        assert!(matches!(error, PointStoreError::Invalid(_)), "{error}");
    }
    assert!(catalogue.is_empty());
}

#[test]
fn concurrent_callers_get_the_same_numbers() {
    let catalogue = catalogue();
    let keys: Vec<Vec<u8>> = (0..5_000).map(|number| key(number % 7, &[(1, number)])).collect();
    let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (catalogue, mut keys) = (&catalogue, keys.clone());
                keys.rotate_left(thread * 700);
                scope.spawn(move || {
                    let mut numbers = numbers(catalogue, &keys);
                    numbers.rotate_right(thread * 700);
                    numbers
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|numbers| *numbers == all[0]));
    assert_eq!(all[0].iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert_eq!(catalogue.len(), 5_000);
}

#[test]
fn restored_series_keep_numbers_and_metrics() {
    let disk = SimulatedDisk::new();
    let catalogue = open(&disk).unwrap();
    let keys: Vec<Vec<u8>> = (0..100)
        .map(|number| key(number * 7 % 10, &[(1, number)]))
        .collect();
    numbers(&catalogue, &keys);
    catalogue.save(60).unwrap();
    let again = open(&disk.power_loss()).unwrap();
    assert_eq!((again.len(), again.saved()), (60, Some(60)));
    // The journal repeats series that the files have.
    for (series, key) in (0..).map(SeriesNumber).zip(&keys).skip(30) {
        again.restore(series, key).unwrap();
    }
    for series in (0..100).map(SeriesNumber) {
        assert_eq!(again.metric_of(series), catalogue.metric_of(series));
        assert_eq!(again.find(&keys[series.index()]), Some(series));
    }
    assert_eq!(again.len(), 100);
}

#[test]
fn knows_the_highest_uid_of_each_kind_after_new_and_restored_series() {
    let disk = SimulatedDisk::new();
    let catalogue = open(&disk).unwrap();
    assert_eq!(catalogue.highest_uids(), HighestUids::default());
    let keys = [key(9, &[(1, 70_000)]), key(2, &[(3, 4), (5, 1)])];
    let highest = HighestUids {
        metric: 9,
        tagk: 5,
        tagv: 70_000,
    };
    numbers(&catalogue, &keys);
    assert_eq!(catalogue.highest_uids(), highest);
    catalogue.save(1).unwrap();
    let again = open(&disk.power_loss()).unwrap();
    assert_eq!(again.highest_uids().tagk, 1);
    again.restore(SeriesNumber(1), &keys[1]).unwrap();
    assert_eq!(again.highest_uids(), highest);
}

#[test]
fn a_journal_that_does_not_fit_is_damage() {
    let catalogue = catalogue();
    numbers(&catalogue, &[key(1, &[(1, 1)]), key(1, &[(1, 2)])]);
    for (series, key, why) in [
        (3, key(1, &[(1, 3)]), "series 3 follows 2 series"),
        (1, key(1, &[(1, 1)]), "the key of series 1 is that of 0"),
        (2, key(1, &[(1, 1)]), "the key of series 2 is that of 0"),
        (2, key(1, &[]), "expected 3 and one or more times 6 bytes"),
    ] {
        let error = catalogue.restore(SeriesNumber(series), &key).unwrap_err();
        assert!(matches!(error, PointStoreError::Damaged { .. }));
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn saves_a_snapshot_beside_its_own_files() {
    let disk = SimulatedDisk::new();
    let catalogue = open(&disk).unwrap();
    numbers(&catalogue, &[key(1, &[(1, 1)]), key(1, &[(1, 2)])]);
    let (shared, path): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), Path::new("snapshot.log"));
    catalogue.save_to(Arc::clone(&shared), path, 1).unwrap();
    let again = catalogue.save_to(Arc::clone(&shared), path, 1);
    assert!(matches!(again, Err(PointStoreError::Invalid(_))));
    let snapshot = SeriesCatalogue::open(shared, path, UidWidths::default()).unwrap();
    assert_eq!((snapshot.len(), snapshot.saved()), (1, Some(1)));
    assert_eq!(catalogue.saved(), Some(0));
}
