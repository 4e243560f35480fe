//! Damaged, obsolete and foreign files.

use super::super::pace::{Pacer, Stopped};
use super::*;

fn two_parts() -> Store {
    let store = Store::new();
    store.add(&[(0, 1000, 1), (1, 2000, 2)]).unwrap();
    store.add(&[(0, 3000, 3)]).unwrap();
    store
}

fn put(disk: &SimulatedDisk, path: &Path, bytes: &[u8]) {
    let mut file = disk.create(path).unwrap();
    file.write(bytes).unwrap();
    file.sync().unwrap();
}

fn day_path(name: &str) -> PathBuf {
    Path::new("/points/2024-10-04").join(name)
}

#[test]
fn sets_a_part_aside_that_is_damaged_at_open() {
    let store = two_parts();
    let path = store.part_path(0);
    let disk = store.disk.kill();
    let bits = disk.files()[path.to_str().unwrap()] * 8;
    disk.flip_bit(&path, bits - 1).unwrap();
    let store = Store::open(disk).unwrap();
    assert_eq!(store.visible(), Model::from([((0, 3000), 3)]));
    let damage = store.days.damage();
    assert_eq!(damage.len(), 1);
    assert_eq!(damage[0].range, span(1000, 2000));
    assert_eq!(
        damage[0].path,
        Path::new("/points/set-aside/2024-10-04_0000000000-0000000000.part")
    );
    // It is reported until it is removed by hand.
    let store = Store::open(store.disk.power_loss()).unwrap();
    assert_eq!(store.days.damage(), damage);
    store.add(&[(0, 1000, 9)]).unwrap();
    assert_eq!(store.visible().len(), 2);
    let disk = store.disk.kill();
    disk.remove_dir(Path::new("/points/set-aside")).unwrap();
    assert_eq!(Store::open(disk).unwrap().days.damage(), []);
}

#[test]
fn sets_a_part_aside_that_is_not_of_its_day() {
    let store = two_parts();
    let disk = store.disk.kill();
    let other = Path::new("/points/2024-10-05");
    disk.create_dir(other).unwrap();
    let name = "0000000000-0000000000.part";
    disk.rename(&day_path(name), &other.join(name)).unwrap();
    let store = Store::open(disk).unwrap();
    assert_eq!(store.visible(), Model::from([((0, 3000), 3)]));
    let damage = store.days.damage();
    assert!(
        damage.len() == 2
            && damage[0].detail == "the file is missing"
            && damage[1].detail.contains("not of its day"),
        "{damage:?}"
    );
}

#[test]
fn sets_a_part_aside_with_series_that_are_unknown() {
    let Store { disk, days, _folder } = two_parts();
    drop((days, _folder));
    let folder = Folder::open(&disk, Path::new(FOLDER)).unwrap();
    let days = Days::open(Arc::new(disk.clone()), &folder, cache(), policy(), 1, false).unwrap();
    let damage = days.damage();
    assert!(
        damage.len() == 1 && damage[0].detail.contains("series 1 is unknown"),
        "{damage:?}"
    );
    let mut points = Columns::default();
    days.read(key(0), TimeRange::ALL, &mut Decoder::default(), &mut points)
        .unwrap();
    assert_eq!(points.bits, [3]);
}

#[test]
fn a_check_finds_damage_while_the_store_is_in_use() {
    let store = two_parts();
    store.delete(&[1], TimeRange::ALL).unwrap();
    let checked = store.days.check(&Unpaced).unwrap();
    assert_eq!((checked.files, checked.damaged.len()), (3, 0));
    let path = store.part_path(1);
    // In its only page.
    store.disk.flip_bit(&path, 12 * 8).unwrap();
    let checked = store.days.check(&Unpaced).unwrap();
    assert!(matches!(&checked.damaged[..], [PointStoreError::Damaged { path: file, .. }] if *file == path));
    assert_eq!(store.visible(), Model::from([((0, 1000), 1)]));
    assert_eq!(store.days.damage()[0].range, span(3000, 3000));
    assert_eq!(store.days.check(&Unpaced).unwrap().damaged, []);
}

#[test]
fn a_check_can_be_stopped() {
    struct Stop;
    impl Pacer for Stop {
        fn pace(&self, _bytes: u64) -> Result<(), Stopped> {
            Err(Stopped)
        }
    }
    let checked = two_parts().days.check(&Stop).unwrap();
    assert!(checked.was_stopped);
    assert_eq!(checked.files, 0);
}

#[test]
fn the_read_that_finds_damage_fails_and_later_ones_go_on() {
    let store = two_parts();
    let path = store.part_path(0);
    // In its only page.
    store.disk.flip_bit(&path, 12 * 8).unwrap();
    let error = store.read(0, TimeRange::ALL).unwrap_err();
    assert!(matches!(error, PointStoreError::Damaged { path: file, .. } if file == path));
    assert_eq!(store.visible(), Model::from([((0, 3000), 3)]));
    assert_eq!(store.days.damage()[0].range, span(1000, 2000));
}

#[test]
fn the_merge_that_finds_damage_fails_and_the_next_one_goes_on() {
    let store = two_parts();
    store.add(&[(1, 4000, 4)]).unwrap();
    store.disk.flip_bit(&store.part_path(1), 12 * 8).unwrap();
    let job = store.days.next_merge(0, u64::MAX).unwrap();
    assert!(matches!(job.run(&Unpaced), Err(PointStoreError::Damaged { .. })));
    store.merge_all();
    assert_eq!(store.list().parts().len(), 1);
    assert_eq!(store.visible().len(), 3);
    assert_eq!(store.days.damage().len(), 1);
}

#[test]
fn a_missing_part_is_recorded() {
    let store = two_parts();
    store.days.check(&Unpaced).unwrap();
    let path = store.part_path(0);
    // More files than stay open.
    for day in 1..20 {
        store.add(&[(0, day * DAY_MS, 1)]).unwrap();
    }
    store.disk.remove(&path).unwrap();
    let error = store.read(0, span(0, DAY_MS - 1)).unwrap_err();
    let expected = PointStoreError::Damaged {
        path,
        detail: "the file is missing".to_owned(),
    };
    assert_eq!(error, expected);
    let damage = store.days.damage();
    assert_eq!((damage.len(), damage[0].range), (1, span(1000, 2000)));
    assert_eq!(store.visible().len(), 20);
    assert_eq!(Store::open(store.disk.kill()).unwrap().days.damage(), damage);
}

#[test]
fn errors_of_the_disk_do_not_set_parts_aside() {
    let store = two_parts();
    store.disk.fail_operation(0, std::io::ErrorKind::PermissionDenied);
    assert!(matches!(
        store.read(0, TimeRange::ALL),
        Err(PointStoreError::Io { .. })
    ));
    assert_eq!(store.days.damage(), []);
    assert_eq!(store.visible().len(), 3);
}

#[test]
fn a_damaged_tombstone_is_set_aside_and_reported() {
    let store = two_parts();
    store.delete(&[0], TimeRange::ALL).unwrap();
    let disk = store.disk.kill();
    disk.flip_bit(&day_path("0000000002.deleted"), 100).unwrap();
    let store = Store::open(disk).unwrap();
    assert_eq!(store.visible().len(), 3);
    assert_eq!(store.days.damage().len(), 1);
}

#[test]
fn removes_what_is_obsolete_or_was_never_finished() {
    let store = two_parts();
    let before = store.disk.kill();
    store.merge_all();
    let disk = store.disk.kill();
    // As if the sources had not been removed.
    for index in 0..2 {
        let path = day_path(&format!("{index:010}-{index:010}.part"));
        let source = before.open(&path).unwrap();
        let mut bytes = vec![0; usize::try_from(source.len().unwrap()).unwrap()];
        source.read_at(&mut bytes, 0).unwrap();
        put(&disk, &path, &bytes);
    }
    put(&disk, &day_path("0000000007.tmp"), b"part of a part");
    put(&disk, &day_path("notes"), b"not ours");
    let store = Store::open(disk).unwrap();
    assert_eq!(store.visible().len(), 3);
    assert_eq!(
        store.files(),
        ["2024-10-04/0000000000-0000000001.part", "2024-10-04/notes"]
    );
}

#[test]
fn keeps_the_sources_of_a_damaged_part() {
    let store = two_parts();
    let visible = store.visible();
    let disk = store.disk.kill();
    put(&disk, &day_path("0000000000-0000000001.part"), b"damaged");
    let store = Store::open(disk).unwrap();
    assert_eq!(store.visible(), visible);
    assert_eq!(store.days.damage().len(), 1);
}

#[test]
fn sequences_go_on_after_a_start() {
    let store = two_parts();
    let store = Store::open(store.disk.kill()).unwrap();
    store.add(&[(0, 1000, 5)]).unwrap();
    assert_eq!(store.part_path(2), day_path("0000000002-0000000002.part"));
    assert_eq!(store.visible()[&(0, 1000)], 5);
}

#[test]
fn days_without_parts_are_forgotten() {
    let disk = SimulatedDisk::new();
    Folder::open(&disk, Path::new(FOLDER)).unwrap();
    disk.create_dir(&day_path("")).unwrap();
    let store = Store::open(disk).unwrap();
    assert_eq!(store.days.stats().days, []);
    assert!(store.disk.list(&day_path("")).is_err());
}

#[test]
fn each_flipped_bit_is_detected_or_harmless() {
    let store = Store::new();
    store.add(&[(0, 1000, 1), (0, 2000, 5), (1, 2000, 2)]).unwrap();
    store.add(&[(0, 3000, 3)]).unwrap();
    store.delete(&[0], span(2000, 3000)).unwrap();
    store.add(&[(0, 3000, 4)]).unwrap();
    let model = store.visible();
    assert_eq!(
        model,
        Model::from([((0, 1000), 1), ((1, 2000), 2), ((0, 3000), 4)])
    );
    let deleted = Model::from([((0, 2000), 5)]);
    let days = |path: &str| path.starts_with("/points/2024");
    let files = store.disk.files().into_iter().filter(|(path, _)| days(path));
    let mut detected = 0;
    for (path, length) in files {
        for bit in 0..length * 8 {
            let disk = store.disk.kill();
            disk.flip_bit(Path::new(&path), bit).unwrap();
            let store = Store::open(disk).unwrap();
            for series in 0..2 {
                // The read that finds damage fails.
                drop(store.read(series, TimeRange::ALL));
                drop(store.read(series, TimeRange::ALL));
            }
            let points = store.visible();
            for (place, value) in &points {
                let is_known = [&model, &deleted]
                    .iter()
                    .any(|known| known.get(place) == Some(value));
                // Without the newest part, an older point is visible.
                assert!(is_known || *place == (0, 3000), "{path} {bit}: {place:?} {value}");
            }
            let damage = store.days.damage();
            assert!(points == model || damage.len() == 1, "{path} {bit}");
            detected += damage.len();
            store.add(&[(5, 0, 1)]).unwrap();
            store.merge_all();
        }
    }
    assert!(detected > 1000, "{detected}");
}
