//! Damage costs the blocks of the damaged pages.

use super::super::pace::Unpaced;
use super::*;

const POINTS: i64 = 3000;

/// A part of some hundred KiB: series with values that cannot be compressed, at instants that they share.
fn large_part() -> Store {
    let store = Store::new();
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405);
        state
    };
    let instants: Vec<i64> = (0..POINTS)
        .map(|n| n * 1000 + (random() % 500).cast_signed())
        .collect();
    let points: Vec<TestPoint> = (0..8)
        .flat_map(|series| instants.iter().map(move |time_ms| (series, *time_ms)))
        .map(|(series, time_ms)| (series, time_ms, random()))
        .collect();
    store.add(&points).unwrap();
    store
}

/// Points that are absent, by series. All others are as they were.
fn missing(before: &Model, now: &Model) -> BTreeMap<u32, usize> {
    let mut missing = BTreeMap::new();
    for (place, value) in before {
        match now.get(place) {
            None => *missing.entry(place.0).or_default() += 1,
            current_value => assert_eq!(current_value, Some(value)),
        }
    }
    assert!(now.keys().all(|place| before.contains_key(place)));
    missing
}

fn bits(store: &Store, path: &Path) -> u64 {
    store.disk.files()[path.to_str().unwrap()] * 8
}

#[test]
fn a_damaged_page_costs_its_blocks() {
    let store = large_part();
    let (before, path) = (store.visible(), store.part_path(0));
    store.disk.flip_bit(&path, bits(&store, &path) / 2).unwrap();
    // Without cached pages.
    let store = Store::open(store.disk.kill()).unwrap();
    let mut failed = 0;
    for series in 0..8 {
        failed += usize::from(store.read(series, TimeRange::ALL).is_err());
    }
    assert_eq!(failed, 1, "the read that found the damage");
    let missing = missing(&before, &store.visible());
    assert!(
        missing.len() <= 2 && missing.values().sum::<usize>() <= 6000,
        "{missing:?}"
    );
    assert!(!missing.is_empty());
    // The loss is known by series.
    for series in 0..8 {
        let lost = store.days.lost(|| vec![key(series)], TimeRange::ALL);
        assert!(lost.len() == 1 || !missing.contains_key(&series), "{series}");
    }
    let intact = (0..8).filter(|series| store.days.lost(|| vec![key(*series)], TimeRange::ALL).is_empty());
    assert!(intact.count() >= 5);
    assert_eq!(store.list().parts().len(), 1);
    assert_eq!(store.days.check(&Unpaced).unwrap().damaged, []);
    // All of it is durable.
    let (damage, visible) = (store.days.damage(), store.visible());
    let lost = |store: &Store| store.days.lost(|| vec![key(3)], span(0, 1));
    let lost_before = lost(&store);
    let store = Store::open(store.disk.power_loss()).unwrap();
    assert_eq!((store.days.damage(), lost(&store)), (damage, lost_before));
    assert_eq!(store.visible(), visible);
}

#[test]
fn a_part_that_is_damaged_again_adds_to_its_record() {
    let store = large_part();
    let (before, path) = (store.visible(), store.part_path(0));
    for place in [4, 2] {
        store.disk.flip_bit(&path, bits(&store, &path) / place).unwrap();
        assert_eq!(store.days.check(&Unpaced).unwrap().damaged.len(), 1);
    }
    let missing = missing(&before, &store.visible());
    let store = Store::open(store.disk.power_loss()).unwrap();
    assert_eq!(store.days.damage().len(), 1);
    for series in missing.keys() {
        let lost = store.days.lost(|| vec![key(*series)], TimeRange::ALL);
        assert_eq!(lost.len(), 1, "{series}");
    }
    assert!(missing.len() < 6, "{missing:?}");
}

#[test]
fn damage_of_an_index_in_use_costs_nothing() {
    let store = large_part();
    let (before, path) = (store.visible(), store.part_path(0));
    store.disk.flip_bit(&path, bits(&store, &path) - 200).unwrap();
    assert_eq!(store.days.check(&Unpaced).unwrap().damaged.len(), 1);
    assert_eq!(store.days.damage(), []);
    let store = Store::open(store.disk.power_loss()).unwrap();
    assert_eq!(store.visible(), before);
    assert_eq!(store.days.damage(), []);
}

#[test]
fn every_flipped_bit_costs_few_points() {
    let store = large_part();
    let (before, path) = (store.visible(), store.part_path(0));
    let bits = bits(&store, &path);
    for bit in (64..bits - 4000).step_by(usize::try_from(bits / 40).unwrap()) {
        let disk = store.disk.kill();
        disk.flip_bit(&path, bit).unwrap();
        let store = Store::open(disk).unwrap();
        store.days.check(&Unpaced).unwrap();
        let missing = missing(&before, &store.visible());
        let count: usize = missing.values().sum();
        assert!(count > 0 && store.days.damage().len() == 1, "{bit}");
        // A column of instants is shared by all series.
        let most = before.len() / 2;
        assert!(count <= most, "{bit}: {missing:?}");
        store.add(&[(0, 1, 1)]).unwrap();
        store.merge_all();
        assert_eq!(store.days.check(&Unpaced).unwrap().damaged, []);
    }
}

#[test]
fn a_crash_while_a_part_is_repaired_loses_no_intact_points() {
    let store = large_part();
    let (before, path) = (store.visible(), store.part_path(0));
    store.disk.flip_bit(&path, bits(&store, &path) / 2).unwrap();
    let whole = store.disk.kill();
    store.days.check(&Unpaced).unwrap();
    let expected = missing(&before, &store.visible());
    // Every second operation: the kind of crash changes with it, and each moment reads the part four times.
    for count in (0..).step_by(2) {
        let store = Store::open(whole.kill()).unwrap();
        let start = store.disk.operations();
        store.disk.fail_after(count);
        let done = store.days.check(&Unpaced).is_ok();
        store.disk.repair();
        assert!(store.disk.operations() > start);
        // One of three for each moment: each check reads the whole part.
        let disk = match count % 3 {
            0 => store.disk.kill(),
            1 => store.disk.power_loss(),
            _ => store.disk.power_loss_seeded(count),
        };
        {
            let store = Store::open(disk).unwrap();
            store.days.check(&Unpaced).unwrap();
            assert_eq!(missing(&before, &store.visible()), expected, "{count}");
            assert_eq!(store.days.damage().len(), 1, "{count}");
        }
        if done {
            assert!(count > 20, "{count}");
            break;
        }
    }
}

#[test]
fn a_part_is_not_repaired_without_space() {
    let store = large_part();
    let path = store.part_path(0);
    store.disk.flip_bit(&path, bits(&store, &path) / 2).unwrap();
    store.disk.set_free_bytes(1000);
    assert!(matches!(
        &store.days.check(&Unpaced).unwrap().damaged[..],
        [PointStoreError::Damaged { .. }]
    ));
    assert_eq!(store.days.damage(), []);
    store.disk.set_free_bytes(1 << 30);
    store.days.check(&Unpaced).unwrap();
    assert_eq!(store.days.damage().len(), 1);
}
