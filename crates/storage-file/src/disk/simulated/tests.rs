//! Surviving content, and failing operations.

use std::collections::BTreeSet;

use super::*;

const DIR: &str = "/store";

fn path(name: &str) -> std::path::PathBuf {
    Path::new(DIR).join(name)
}

/// A disk with a durable directory.
fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new(DIR)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

/// Names and contents.
fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let paths = disk.files().into_keys();
    paths
        .map(|path| {
            let file = disk.open(Path::new(&path)).unwrap();
            let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            (path, bytes)
        })
        .collect()
}

/// All outcomes of a power loss.
fn outcomes(disk: &SimulatedDisk) -> BTreeSet<Vec<(String, Vec<u8>)>> {
    (0..2000)
        .map(|seed| files(&disk.power_loss_seeded(seed)))
        .collect()
}

fn file(name: &str, content: &[u8]) -> (String, Vec<u8>) {
    (format!("{DIR}/{name}"), content.to_vec())
}

#[test]
fn power_loss_keeps_synced_names_and_bytes() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    writer.write(b"synced").unwrap();
    writer.sync().unwrap();
    assert_eq!(files(&disk.power_loss()), []);
    disk.sync_dir(Path::new(DIR)).unwrap();
    writer.write(b" and more").unwrap();
    disk.create(&path("b")).unwrap();
    assert_eq!(files(&disk.power_loss()), [file("a", b"synced")]);
    // The new disk is durable as it is.
    assert_eq!(files(&disk.power_loss().power_loss()), [file("a", b"synced")]);
    assert_eq!(files(&disk), [file("a", b"synced and more"), file("b", b"")]);
}

#[test]
fn power_loss_may_keep_any_prefix_and_sectors() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    writer.write(b"ab").unwrap();
    writer.sync().unwrap();
    writer.write(b"cd").unwrap();
    let expected: [&[u8]; 6] = [b"ab", b"abc", b"abcd", b"ab\0", b"ab\0\0", b"abc\0"];
    assert_eq!(
        outcomes(&disk),
        expected.map(|content| vec![file("a", content)]).into()
    );
}

#[test]
fn power_loss_keeps_or_loses_a_rename_as_a_whole() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    writer.write(b"1").unwrap();
    writer.sync().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    disk.rename(&path("a"), &path("b")).unwrap();
    assert_eq!(
        outcomes(&disk),
        [vec![file("a", b"1")], vec![file("b", b"1")]].into()
    );
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk), [vec![file("b", b"1")]].into());
}

#[test]
fn power_loss_may_lose_each_name_that_is_not_synced() {
    let disk = disk();
    let dir = path("day");
    disk.create_dir(&dir).unwrap();
    disk.create(&dir.join("a")).unwrap();
    disk.create(&dir.join("b")).unwrap();
    disk.sync_dir(&dir).unwrap();
    // The name of the directory itself is not durable.
    assert_eq!(outcomes(&disk).len(), 2);
    disk.sync_dir(Path::new(DIR)).unwrap();
    disk.remove(&dir.join("a")).unwrap();
    disk.remove(&dir.join("b")).unwrap();
    assert_eq!(outcomes(&disk).len(), 4);
}

#[test]
fn sync_of_one_directory_commits_a_rename_between_two() {
    let disk = disk();
    let (from, to) = (path("from"), path("to"));
    disk.create_dir(&from).unwrap();
    disk.create_dir(&to).unwrap();
    disk.create(&from.join("a")).unwrap();
    disk.create(&to.join("b")).unwrap();
    for dir in [Path::new(DIR), &from, &to] {
        disk.sync_dir(dir).unwrap();
    }
    disk.remove(&to.join("b")).unwrap();
    disk.rename(&from.join("a"), &to.join("b")).unwrap();
    disk.sync_dir(&from).unwrap();
    assert_eq!(outcomes(&disk), [vec![file("to/b", b"")]].into());
    disk.sync_dir(&to).unwrap();
    assert_eq!(outcomes(&disk), [vec![file("to/b", b"")]].into());
}

#[test]
fn removed_bytes_may_return_until_they_are_synced() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    writer.write(b"abc").unwrap();
    writer.sync().unwrap();
    let mut writer = disk.append(&path("a"), 1).unwrap();
    assert_eq!(files(&disk.power_loss()), [file("a", b"abc")]);
    assert_eq!(
        outcomes(&disk),
        [vec![file("a", b"a")], vec![file("a", b"abc")]].into()
    );
    writer.sync().unwrap();
    assert_eq!(outcomes(&disk), [vec![file("a", b"a")]].into());
}

#[test]
fn bytes_of_a_failed_sync_never_become_durable() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    writer.write(b"a").unwrap();
    writer.sync().unwrap();
    writer.write(b"b").unwrap();
    disk.fail_operation(0, ErrorKind::Other);
    writer.sync().unwrap_err();
    writer.sync().unwrap();
    assert_eq!(files(&disk.power_loss()), [file("a", b"a")]);
    assert_eq!(files(&disk.kill()), [file("a", b"ab")]);
}

#[test]
fn kill_keeps_everything_and_releases_locks() {
    let disk = disk();
    let _lock = disk.lock(&path("LOCK")).unwrap();
    disk.create(&path("a")).unwrap().write(b"1").unwrap();
    let killed = disk.kill();
    assert!(killed.lock(&path("LOCK")).is_ok());
    assert!(disk.lock(&path("LOCK")).is_err());
    assert!(files(&killed).contains(&file("a", b"1")));
    assert!(files(&killed.power_loss()).is_empty());
}

#[test]
fn fails_all_operations_after_a_count() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    let before = disk.operations();
    disk.fail_after(1);
    writer.write(b"1").unwrap();
    writer.write(b"2").unwrap_err();
    disk.list(Path::new(DIR)).unwrap_err();
    assert_eq!(disk.operations(), before + 3);
    assert_eq!(files(&disk.kill()), [file("a", b"1")]);
}

#[test]
fn fails_one_operation_half_written() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    disk.fail_operation(1, ErrorKind::StorageFull);
    writer.write(b"1").unwrap();
    assert_eq!(writer.write(b"2345").unwrap_err().kind(), ErrorKind::StorageFull);
    writer.write(b"6").unwrap();
    assert_eq!(files(&disk), [file("a", b"1236")]);
}

#[test]
fn injected_faults_have_their_effect() {
    let run = |fault: Fault| {
        let disk = disk();
        let mut writer = disk.create(&path("a")).unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        disk.inject(0, fault, ErrorKind::Other);
        writer.write(b"ab").unwrap_err();
        assert_eq!(disk.injected(), Some(("write".to_owned(), "/store/a".to_owned())));
        let written = files(&disk)[0].1.len();
        disk.inject(0, fault, ErrorKind::Other);
        writer.write(b"cd").unwrap_err();
        writer.write(b"e").unwrap();
        disk.inject(0, fault, ErrorKind::Other);
        writer.sync().unwrap_err();
        let after_error = files(&disk.power_loss())[0].1.clone();
        writer.sync().unwrap();
        let after_sync = files(&disk.power_loss())[0].1.clone();
        disk.inject(0, fault, ErrorKind::Other);
        disk.rename(&path("a"), &path("b")).unwrap_err();
        let is_renamed = disk.files().contains_key("/store/b");
        (written, after_error, after_sync, is_renamed)
    };
    assert_eq!(run(Fault::Before), (0, b"".to_vec(), b"e".to_vec(), false));
    assert_eq!(run(Fault::After), (2, b"abcde".to_vec(), b"abcde".to_vec(), true));
    assert_eq!(run(Fault::Torn), (1, b"".to_vec(), b"".to_vec(), false));
    assert_eq!(run(Fault::Dropped), (1, b"".to_vec(), b"".to_vec(), false));
}

#[test]
fn a_dropped_page_reads_as_zeros() {
    let disk = disk();
    let mut writer = disk.create(&path("a")).unwrap();
    writer.write(b"a").unwrap();
    writer.sync().unwrap();
    writer.write(b"b").unwrap();
    disk.inject(0, Fault::Dropped, ErrorKind::Other);
    writer.sync().unwrap_err();
    assert_eq!(files(&disk), [file("a", b"a\0")]);
}

#[test]
fn a_lock_that_failed_is_not_held() {
    let disk = disk();
    disk.inject(0, Fault::After, ErrorKind::Other);
    disk.lock(&path("LOCK")).unwrap_err();
    disk.lock(&path("LOCK")).unwrap();
}

#[test]
fn free_bytes_limit_writes_until_files_are_removed() {
    let disk = disk();
    disk.set_free_bytes(3);
    let mut writer = disk.create(&path("a.part")).unwrap();
    assert_eq!(writer.write(b"12345").unwrap_err().kind(), ErrorKind::StorageFull);
    disk.link(&path("a.part"), &path("b.part")).unwrap();
    disk.remove(&path("a.part")).unwrap();
    assert_eq!(disk.free_bytes(Path::new(DIR)).unwrap(), 0);
    disk.remove(&path("b.part")).unwrap();
    assert_eq!(disk.free_bytes(Path::new(DIR)).unwrap(), 3);
    assert_eq!(disk.written(), [("part".to_owned(), 3)].into());
}

#[test]
fn flips_bits() {
    let disk = disk();
    disk.create(&path("a")).unwrap().write(&[0, 0]).unwrap();
    assert!(disk.flip_bit(&path("a"), 9).unwrap());
    assert!(!disk.flip_bit(&path("a"), 16).unwrap());
    assert_eq!(files(&disk), [file("a", &[0, 2])]);
}
