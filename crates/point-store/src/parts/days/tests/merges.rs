//! Merges, tombstones, retention and snapshots.

use super::super::pace::{Pacer, Stopped};
use super::*;

/// A pacer that ends all work.
struct Stop;

impl Pacer for Stop {
    fn pace(&self, _bytes: u64) -> Result<(), Stopped> {
        Err(Stopped)
    }
}

/// Some points of the first day.
fn points(values: std::ops::Range<u64>) -> Vec<TestPoint> {
    values
        .flat_map(|value| (0..4).map(move |series| (series, i64::try_from(value).unwrap() * 1000, value)))
        .collect()
}

#[test]
fn merges_neighbours_into_a_part_of_their_sequences() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&points(5..15)).unwrap();
    let visible = store.visible();
    assert!(store.merge().unwrap());
    assert_eq!(store.files(), ["2024-10-04/0000000000-0000000001.part"]);
    assert_eq!(store.visible(), visible);
    assert_eq!(visible.len(), 60);
    let stats = store.days.stats();
    let merges = stats.merges;
    assert_eq!((merges.completed.get(), merges.failed.get()), (1, 0));
    assert_eq!((stats.days[0].parts, stats.days[0].points), (1, 60));
}

#[test]
fn applies_tombstones_once() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.delete(&[1, 3], span(2000, 4999)).unwrap();
    assert_eq!(store.visible().len(), 40 - 6);
    let written_again: Vec<TestPoint> = vec![(1, 3000, 33)];
    store.add(&written_again).unwrap();
    let visible = store.visible();
    assert_eq!((visible.len(), visible[&(1, 3000)]), (35, 33));
    store.merge_all();
    assert_eq!(store.files(), ["2024-10-04/0000000000-0000000002.part"]);
    assert_eq!(store.visible(), visible);
}

#[test]
fn rewrites_a_part_alone_to_free_deleted_points() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.delete(&[0, 1, 2, 3], span(0, 8999)).unwrap();
    store.merge_all();
    assert_eq!(store.files(), ["2024-10-04/0000000000-0000000001.part"]);
    assert_eq!(store.visible().len(), 4);
}

#[test]
fn a_part_of_which_all_points_were_deleted_replaces_its_sources() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&points(3..12)).unwrap();
    store.delete(&[0, 1, 2, 3], TimeRange::ALL).unwrap();
    store.merge_all();
    assert_eq!(store.visible(), Model::new());
    let store = Store::open(store.disk.kill()).unwrap();
    assert_eq!(store.visible(), Model::new());
    store.add(&points(1..2)).unwrap();
    assert_eq!(store.visible().len(), 4);
}

#[test]
fn a_deletion_of_many_days_is_one_file() {
    let store = Store::new();
    for day in 0..3 {
        store.add(&[(0, day * DAY_MS, 1)]).unwrap();
    }
    let before = store.disk.written().get("tmp").copied().unwrap_or_default();
    store.delete(&[0], span(0, 2 * DAY_MS)).unwrap();
    let written = store.disk.written()["tmp"] - before;
    let manifests = ["2024-10-04", "2024-10-05", "2024-10-06"].map(|day| format!("/points/{day}/MANIFEST"));
    let files = store.disk.files();
    let of_manifests: u64 = manifests.iter().map(|path| files[path]).sum();
    assert!(
        written - of_manifests < 64,
        "{written} bytes, {of_manifests} of manifests"
    );
    assert_eq!(store.visible(), Model::new());
    let store = Store::open(store.disk.power_loss()).unwrap();
    assert_eq!(store.visible(), Model::new());
}

#[test]
fn readers_keep_the_files_of_their_list() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&points(5..15)).unwrap();
    let list = store.list();
    store.merge_all();
    assert_eq!(store.files().len(), 3);
    let mut columns = Columns::default();
    list.read(key(2), TimeRange::ALL, &mut Decoder::default(), &mut columns)
        .unwrap();
    assert_eq!(columns.len(), 15);
    drop(list);
    assert_eq!(store.files().len(), 1);
}

#[test]
fn a_stopped_merge_leaves_no_file() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&points(0..10)).unwrap();
    let job = store.days.next_merge(0, u64::MAX).unwrap();
    assert!(store.days.next_merge(0, u64::MAX).is_none(), "its parts are busy");
    assert_eq!(job.run(&Stop), Ok(Merged::Cancelled));
    assert_eq!(store.files().len(), 2);
    assert!(store.days.next_merge(0, u64::MAX).is_some());
}

#[test]
fn a_failed_merge_removes_its_output_and_backs_off() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&points(0..10)).unwrap();
    let job = store.days.next_merge(0, u64::MAX).unwrap();
    store.disk.set_free_bytes(10);
    assert!(matches!(job.run(&Unpaced), Err(PointStoreError::Full(_))));
    store.disk.set_free_bytes(1 << 30);
    assert_eq!(store.files().len(), 2);
    assert!(store.days.next_merge(5000, u64::MAX).is_none());
    assert!(store.days.next_merge(5999, u64::MAX).is_none());
    let job = store.days.next_merge(6000, u64::MAX).unwrap();
    assert!(matches!(job.run(&Unpaced), Ok(Merged::Done { .. })));
    assert_eq!(store.days.stats().merges.failed.get(), 1);
}

#[test]
fn a_merge_of_a_dropped_day_is_cancelled() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&points(0..10)).unwrap();
    let job = store.days.next_merge(0, u64::MAX).unwrap();
    let dropped = store.days.drop_before(FIRST_DAY_MS + DAY_MS).unwrap();
    assert_eq!(dropped.days, 1);
    store.add(&points(0..1)).unwrap();
    assert_eq!(job.run(&Unpaced), Ok(Merged::Cancelled));
    assert_eq!(store.visible().len(), 4);
    assert_eq!(store.files().len(), 1);
}

#[test]
fn drops_only_whole_days_before_the_edge() {
    let store = Store::new();
    store
        .add(&[(0, 0, 1), (0, DAY_MS, 2), (0, 2 * DAY_MS, 3)])
        .unwrap();
    let edge = |ms| store.days.drop_before(FIRST_DAY_MS + ms).unwrap().days;
    assert_eq!(edge(DAY_MS - 1), 0);
    assert_eq!(edge(2 * DAY_MS - 1), 1);
    assert_eq!(store.visible().len(), 2);
    assert_eq!(edge(i64::MAX - FIRST_DAY_MS), 2);
    assert_eq!(store.files(), [""; 0]);
}

#[test]
fn the_next_start_completes_a_drop() {
    let store = Store::new();
    store.add(&[(0, 0, 1), (0, DAY_MS, 2)]).unwrap();
    // Fails while it removes the files.
    let drop = |disk: &SimulatedDisk| Store::open(disk.kill()).unwrap();
    let probe = drop(&store.disk);
    let before = probe.disk.operations();
    probe.days.drop_before(FIRST_DAY_MS + DAY_MS).unwrap();
    let operations = probe.disk.operations() - before;
    let mut interrupted = 0;
    for count in 0..operations {
        let store = Store::open(store.disk.kill()).unwrap();
        store.disk.fail_after(count);
        store.days.drop_before(FIRST_DAY_MS + DAY_MS).unwrap_err();
        interrupted += usize::from(store.files().iter().any(|path| path.starts_with("dropped/")));
        for disk in [store.disk.kill(), store.disk.power_loss_seeded(count)] {
            let store = Store::open(disk).unwrap();
            assert_eq!(store.days.damage(), [], "{count}: the day was dropped, not lost");
            store.days.drop_before(FIRST_DAY_MS + DAY_MS).unwrap();
            assert_eq!(store.files().len(), 1, "{count}");
            assert_eq!(store.visible(), Model::from([((0, DAY_MS), 2)]));
        }
    }
    assert!(interrupted > 1);
}

#[test]
fn drops_days_on_a_full_disk() {
    let store = Store::new();
    store.add(&[(0, 0, 1), (0, DAY_MS, 2)]).unwrap();
    store.disk.create_dir(Path::new("/points/dropped")).unwrap();
    store.disk.set_free_bytes(0);
    store.days.drop_before(FIRST_DAY_MS + DAY_MS).unwrap();
    let store = Store::open(store.disk.power_loss()).unwrap();
    assert_eq!(store.days.damage(), []);
    assert_eq!(store.visible(), Model::from([((0, DAY_MS), 2)]));
}

#[test]
fn a_snapshot_has_the_points_of_its_instant() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    store.add(&[(0, DAY_MS, 7)]).unwrap();
    store.delete(&[2], span(0, 4999)).unwrap();
    let visible = store.visible();
    let target = Path::new("/snapshots/1");
    store.days.snapshot(target).unwrap();
    store.merge_all();
    store.days.drop_before(i64::MAX).unwrap();
    assert_eq!(store.visible(), Model::new());

    let disk = store.disk.power_loss();
    // The snapshot as a store of its own.
    let restored = Path::new("/restored");
    Folder::open(&disk, restored).unwrap();
    for day in disk.list(target).unwrap() {
        disk.rename(&target.join(&day.name), &restored.join(&day.name))
            .unwrap();
    }
    let folder = Folder::open(&disk, restored).unwrap();
    let days = Days::open(
        Arc::new(disk.clone()),
        &folder,
        cache(),
        policy(),
        u32::MAX,
        false,
    )
    .unwrap();
    let restored = Store {
        disk,
        days,
        _folder: folder,
    };
    assert_eq!(restored.visible(), visible);
}

#[test]
fn a_snapshot_needs_an_empty_folder_and_leaves_none_half_full() {
    let store = Store::new();
    store.add(&points(0..10)).unwrap();
    let target = Path::new("/snapshots/1");
    store.disk.create_dir(&target.join("x")).unwrap();
    assert!(matches!(
        store.days.snapshot(target),
        Err(PointStoreError::Invalid(_))
    ));
    let target = Path::new("/snapshots/2");
    let before = store.disk.operations();
    store.days.snapshot(target).unwrap();
    let operations = store.disk.operations() - before;
    for count in 0..operations {
        let target = Path::new("/snapshots").join(format!("failed-{count}"));
        store
            .disk
            .fail_operation(count, std::io::ErrorKind::PermissionDenied);
        // Some find out whether there is a file.
        if store.days.snapshot(&target).is_err() {
            assert_eq!(store.disk.list(&target).unwrap_or_default(), [], "{count}");
        }
    }
}

#[test]
fn a_day_becomes_one_part_when_it_is_over_and_settled() {
    let store = Store::new();
    store.add(&points(0..100)).unwrap();
    store.add(&points(0..1)).unwrap();
    let next = |now_ms| store.days.next_merge(FIRST_DAY_MS + now_ms, u64::MAX);
    assert!(next(0).is_none());
    assert!(next(DAY_MS - 1).is_none(), "the day is not over");
    assert!(next(DAY_MS).is_some());
    store.add(&[]).unwrap();
    store.delete(&[0], span(0, 0)).unwrap();
    assert!(next(DAY_MS).is_none(), "the day has just changed");
    assert!(next(DAY_MS + 999).is_none());
    assert!(
        store.days.next_merge(FIRST_DAY_MS + DAY_MS + 1000, 100).is_none(),
        "it is too large"
    );
    let job = next(DAY_MS + 1000).unwrap();
    assert_eq!(job.parts(), 2);
    job.run(&Unpaced).unwrap();
    assert!(next(2 * DAY_MS).is_none());
}

#[test]
fn days_over_budget_are_first_then_the_smallest_merge() {
    let store = Store::new();
    // The sizes of the first day's parts fall, so that only the budget triggers merges.
    for part in 0..4 {
        store.add(&points(0..(1000 >> (2 * part)))).unwrap();
    }
    let of_day = |day: i64, count: u64| -> Vec<TestPoint> {
        let shift = |(series, time_ms, value)| (series, time_ms + day * DAY_MS, value);
        points(0..count).into_iter().map(shift).collect()
    };
    for _ in 0..2 {
        store.add(&of_day(1, 30)).unwrap();
        store.add(&of_day(2, 20)).unwrap();
    }
    let next = || {
        let job = store.days.next_merge(0, u64::MAX).unwrap();
        let day = (job.day().first_ms() - FIRST_DAY_MS) / DAY_MS;
        job.run(&Unpaced).unwrap();
        day
    };
    assert_eq!(next(), 2);
    store.add(&points(0..3)).unwrap();
    assert_eq!(next(), 0);
    assert_eq!(next(), 1);
    assert!(store.days.next_merge(0, u64::MAX).is_none());
}

/// A part with a rename that was done and reported as failed does not return after a deletion that was applied to its
/// successor.
#[test]
fn what_a_failed_operation_left_does_not_return() {
    use oxtsdb_storage_file::disk::simulated::Fault;
    let mut failed = 0;
    for count in 0..40 {
        let store = Store::new();
        store.disk.inject(count, Fault::After, std::io::ErrorKind::Other);
        failed += usize::from(store.add(&[(0, 1000, 1)]).is_err());
        store.disk.repair();
        store.add(&[(0, 1000, 1), (1, 1000, 2)]).unwrap();
        store.delete(&[0], TimeRange::ALL).unwrap();
        store.merge_all();
        let expected = Model::from([((1, 1000), 2)]);
        assert_eq!(store.visible(), expected, "{count}");
        for disk in [store.disk.kill(), store.disk.power_loss_seeded(count)] {
            let store = Store::open(disk).unwrap();
            assert_eq!(
                (store.visible(), store.days.damage()),
                (expected.clone(), Vec::new()),
                "{count}"
            );
        }
    }
    assert!(failed > 10, "{failed}");
}
