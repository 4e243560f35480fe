//! Readers beside a writer, merges, deletes and snapshots.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::*;

const PARTS: i64 = 150;

/// The points of a series after `parts` parts: part *n* adds instant *n* and replaces the value of instant 0.
fn expected(parts: i64) -> Vec<(i64, u64)> {
    let newest = u64::try_from(parts - 1).unwrap();
    let later = (1..parts).map(|part| (part * 1000, u64::try_from(part).unwrap()));
    std::iter::once((0, newest)).chain(later).collect()
}

fn found(points: &Columns) -> Vec<(i64, u64)> {
    let times = points.times_ms.iter().map(|time_ms| time_ms - FIRST_DAY_MS);
    times.zip(points.bits.iter().copied()).collect()
}

#[test]
fn reads_and_snapshots_see_whole_parts_while_others_merge() {
    let store = Store::new();
    let added = AtomicI64::new(0);
    let is_done = AtomicBool::new(false);
    let snapshots = Path::new("/snapshots");
    std::thread::scope(|scope| {
        let reader = || {
            while !is_done.load(Ordering::SeqCst) {
                let before = added.load(Ordering::SeqCst);
                let points = store.read(1, TimeRange::ALL).unwrap();
                let after = added.load(Ordering::SeqCst);
                if points.is_empty() {
                    assert_eq!(before, 0);
                    continue;
                }
                let parts = i64::try_from(points.len()).unwrap();
                assert!(before <= parts && parts <= after + 1, "{before} {parts} {after}");
                assert_eq!(found(&points), expected(parts));
            }
        };
        scope.spawn(reader);
        scope.spawn(reader);
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                if let Some(job) = store.days.next_merge(0, u64::MAX) {
                    assert!(matches!(job.run(&Unpaced), Ok(Merged::Done { .. })));
                }
                assert_eq!(store.days.check(&Unpaced).unwrap().damaged, []);
            }
        });
        scope.spawn(|| {
            for part in 0..PARTS {
                let value = u64::try_from(part).unwrap();
                // Series 2 loses its points again and again.
                store
                    .add(&[(1, 0, value), (1, part * 1000, value), (2, part * 1000, value)])
                    .unwrap();
                added.fetch_add(1, Ordering::SeqCst);
                if part % 10 == 9 {
                    store.delete(&[2], span(0, DAY_MS)).unwrap();
                    store.days.snapshot(&snapshots.join(part.to_string())).unwrap();
                }
            }
            is_done.store(true, Ordering::SeqCst);
        });
    });
    assert_eq!(found(&store.read(1, TimeRange::ALL).unwrap()), expected(PARTS));
    assert!(store.read(2, TimeRange::ALL).unwrap().is_empty());
    for part in (9..PARTS).step_by(10) {
        let target = snapshots.join(part.to_string());
        let disk: Arc<dyn Disk> = Arc::new(store.disk.clone());
        let restored = Path::new("/restored").join(part.to_string());
        let folder = Folder::open(&store.disk, &restored).unwrap();
        for day in store.disk.list(&target).unwrap() {
            store
                .disk
                .rename(&target.join(&day.name), &restored.join(&day.name))
                .unwrap();
        }
        let days = Days::open(disk, &folder, cache(), policy(), u32::MAX, false).unwrap();
        let mut points = Columns::default();
        days.read(key(1), TimeRange::ALL, &mut Decoder::default(), &mut points)
            .unwrap();
        assert_eq!(found(&points), expected(part + 1));
        points.clear();
        days.read(key(2), TimeRange::ALL, &mut Decoder::default(), &mut points)
            .unwrap();
        assert!(points.is_empty());
    }
}

#[test]
fn readers_of_a_dropped_day_find_no_points() {
    let store = Store::new();
    store.add(&[(1, 0, 1), (1, DAY_MS, 2)]).unwrap();
    let lists = store.days.days_in(TimeRange::ALL);
    store.days.drop_before(FIRST_DAY_MS + DAY_MS).unwrap();
    let mut points = Columns::default();
    for list in &lists {
        let mut decoder = Decoder::default();
        store
            .days
            .read_day(list, key(1), TimeRange::ALL, &mut decoder, &mut points)
            .unwrap();
    }
    assert_eq!(found(&points), [(DAY_MS, 2)]);
}
