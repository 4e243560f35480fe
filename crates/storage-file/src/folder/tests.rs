use super::*;
use crate::disk::real::RealDisk;
use crate::disk::simulated::SimulatedDisk;

const PATH: &str = "/data/points";

const FORMAT: Format = Format {
    label: "oxtsdb point store, format ",
    version: 1,
    oldest: 1,
    entries: None,
};

fn open(disk: &SimulatedDisk) -> Result<Folder, StorageError> {
    Folder::open(disk, Path::new(PATH), FORMAT)
}

fn marker() -> PathBuf {
    Path::new(PATH).join("STORE")
}

#[test]
fn opens_again_after_it_was_dropped() {
    let disk = SimulatedDisk::new();
    let folder = open(&disk).unwrap();
    assert!(folder.is_new());
    drop(folder);
    let mut folder = open(&disk).unwrap();
    assert!(folder.is_new(), "it was not completed");
    folder.complete(&disk).unwrap();
    drop(folder);
    assert!(!open(&disk).unwrap().is_new());
    drop(open(&disk).unwrap());
    assert_eq!(
        read_all(&disk, &marker(), 100).unwrap(),
        b"oxtsdb point store, format 1\n"
    );
}

#[test]
fn rejects_a_folder_in_use() {
    let disk = SimulatedDisk::new();
    let _folder = open(&disk).unwrap();
    let expected = format!("folder {PATH} is in use by process {}", std::process::id());
    assert_eq!(
        open(&disk).unwrap_err(),
        StorageError::Unavailable(expected.clone())
    );
    let real = tempfile::tempdir().unwrap();
    let _folder = Folder::open(&RealDisk, real.path(), FORMAT).unwrap();
    assert_eq!(
        Folder::open(&RealDisk, real.path(), FORMAT).unwrap_err(),
        StorageError::Unavailable(expected.replace(PATH, &real.path().display().to_string()))
    );
}

#[test]
fn rejects_other_formats() {
    let disk = SimulatedDisk::new();
    drop(open(&disk).unwrap());
    for (content, format) in [
        ("oxtsdb point store, format 2\n", "`2`"),
        ("oxtsdb point store, format 0\n", "`0`"),
    ] {
        replace(&disk, &marker(), content.as_bytes()).unwrap();
        assert_eq!(
            open(&disk).unwrap_err(),
            StorageError::Format {
                path: PATH.into(),
                found: format.to_owned(),
                supported: 1
            }
        );
    }
}

#[test]
fn rejects_a_damaged_format() {
    let disk = SimulatedDisk::new();
    drop(open(&disk).unwrap());
    for content in [
        "oxtsdb row store, format 1",
        "oxtsdb point s",
        "oxtsdb point store, format ",
        "",
    ] {
        replace(&disk, &marker(), content.as_bytes()).unwrap();
        let text = content.trim_end();
        let detail = format!("expected `oxtsdb point store, format ` and a number, not `{text}`");
        assert_eq!(open(&disk).unwrap_err(), StorageError::damaged(&marker(), detail));
    }
}

#[test]
fn rejects_a_folder_that_lost_its_format() {
    let disk = SimulatedDisk::new();
    let folder = open(&disk).unwrap();
    disk.create_dir(&folder.path().join("journal")).unwrap();
    drop(folder);
    disk.remove(&marker()).unwrap();
    let StorageError::Damaged { path, .. } = open(&disk).unwrap_err() else {
        panic!("expected damage");
    };
    assert_eq!(path, marker());
}

/// After a crash or power loss at each operation the folder opens, and what `open` returned is durable.
#[test]
fn opens_after_any_failure() {
    for step in 0.. {
        let disk = SimulatedDisk::new();
        disk.fail_after(step);
        let opened = open(&disk).is_ok();
        drop(open(&disk.kill()).unwrap());
        for seed in 0..20 {
            let lost = disk.power_loss_seeded(seed);
            assert!(!opened || lost.files().contains_key("/data/points/STORE"));
            drop(open(&lost).unwrap());
        }
        if opened {
            break;
        }
    }
}

#[test]
fn replace_keeps_the_old_or_the_new_content() {
    for step in 0..8 {
        let disk = SimulatedDisk::new();
        drop(open(&disk).unwrap());
        disk.fail_operation(step, ErrorKind::StorageFull);
        let replaced = replace(&disk, &marker(), b"new");
        for seed in 0..20 {
            let content = read_all(&disk.power_loss_seeded(seed), &marker(), 100).unwrap();
            assert!(content == b"new" || replaced.is_err() && content.starts_with(b"oxtsdb"));
        }
        disk.repair();
        replace(&disk, &marker(), b"new").unwrap();
    }
}
