//! Both disks behave alike.

use super::real::RealDisk;
use super::simulated::SimulatedDisk;
use super::*;

fn names(disk: &dyn Disk, path: &Path) -> Vec<String> {
    let mut entries = disk.list(path).unwrap();
    entries.sort();
    entries.into_iter().map(|entry| entry.name).collect()
}

fn content(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn error<T>(result: io::Result<T>) -> io::ErrorKind {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.kind(),
    }
}

fn behaves_as_documented(disk: &dyn Disk, root: &Path) {
    let [a, b, dir] = ["a.x", "b.x", "dir"].map(|name| root.join(name));
    let deep = dir.join("deep");
    disk.create_dir(&deep).unwrap();
    disk.create_dir(&deep).unwrap();

    let mut file = disk.create(&a).unwrap();
    assert_eq!(error(disk.create(&a)), io::ErrorKind::AlreadyExists);
    assert_eq!(error(disk.create(&root.join("none/a"))), io::ErrorKind::NotFound);
    assert_eq!(error(disk.open(&b)), io::ErrorKind::NotFound);
    assert!(disk.open(&a).unwrap().is_empty().unwrap());
    file.write(b"hello ").unwrap();
    file.write(b"world").unwrap();
    file.sync().unwrap();
    assert_eq!(content(disk, &a), b"hello world");

    let reader = disk.open(&a).unwrap();
    let mut word = [0; 5];
    reader.read_at(&mut word, 6).unwrap();
    assert_eq!(&word, b"world");
    assert_eq!(error(reader.read_at(&mut word, 7)), io::ErrorKind::UnexpectedEof);

    let mut file = disk.append(&a, 5).unwrap();
    assert_eq!(content(disk, &a), b"hello");
    file.write(b"!").unwrap();
    assert_eq!(content(disk, &a), b"hello!");
    assert_eq!(error(disk.append(&a, 7)), io::ErrorKind::UnexpectedEof);
    assert_eq!(error(disk.append(&b, 0)), io::ErrorKind::NotFound);

    disk.link(&a, &deep.join("link")).unwrap();
    assert_eq!(
        error(disk.link(&a, &deep.join("link"))),
        io::ErrorKind::AlreadyExists
    );
    disk.rename(&a, &b).unwrap();
    assert_eq!(names(disk, root), ["b.x", "dir"]);
    disk.remove(&b).unwrap();
    assert_eq!(error(disk.remove(&b)), io::ErrorKind::NotFound);
    assert_eq!(content(disk, &deep.join("link")), b"hello!");

    disk.create(&a).unwrap().write(b"new").unwrap();
    disk.rename(&a, &deep.join("link")).unwrap();
    assert_eq!(content(disk, &deep.join("link")), b"new");
    assert_eq!(
        disk.list(&deep).unwrap(),
        [Entry {
            name: "link".to_owned(),
            is_dir: false,
            len: 3
        }]
    );

    let moved = root.join("moved");
    disk.rename(&dir, &moved).unwrap();
    disk.sync_dir(root).unwrap();
    assert_eq!(error(disk.sync_dir(&dir)), io::ErrorKind::NotFound);
    assert_eq!(names(disk, &moved.join("deep")), ["link"]);
    assert!(disk.remove(&moved).is_err());
    disk.remove_dir(&moved).unwrap();
    assert!(disk.list(root).unwrap().is_empty());
    assert_eq!(error(disk.list(&moved)), io::ErrorKind::NotFound);

    let lock = disk.lock(&root.join("LOCK")).unwrap();
    assert_eq!(
        content(disk, &root.join("LOCK")),
        format!("{}\n", std::process::id()).as_bytes()
    );
    assert_eq!(error(disk.lock(&root.join("LOCK"))), io::ErrorKind::WouldBlock);
    drop(lock);
    drop(disk.lock(&root.join("LOCK")).unwrap());
    assert!(disk.free_bytes(root).unwrap() > 0);
}

#[test]
fn real_disk_behaves_as_documented() {
    let root = tempfile::tempdir().unwrap();
    behaves_as_documented(&RealDisk, root.path());
}

#[test]
fn simulated_disk_behaves_as_documented() {
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new("/root")).unwrap();
    behaves_as_documented(&disk, Path::new("/root"));
}

#[test]
fn directories_and_files_are_private() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let dir = root.path().join("dir");
    RealDisk.create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    RealDisk.create_dir(&dir).unwrap();
    assert_eq!(mode(&dir), 0o700);
    let (file, lock) = (dir.join("file"), dir.join("LOCK"));
    RealDisk.create(&file).unwrap();
    RealDisk.lock(&lock).unwrap();
    assert_eq!([mode(&file), mode(&lock)], [0o600; 2]);
}
