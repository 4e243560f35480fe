//! Unusable folders, full disks, and permissions.

use std::fs;
use std::path::{Path, PathBuf};

use futures::TryStreamExt as _;
use std::process::Command;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{
    ColumnSelection, RowStore, Scan, StoreControl as _, StoreError, TableDef, TableName, WriteBatch,
};

use crate::support::files::noise;

fn table() -> TableName {
    "t".parse().unwrap()
}

/// A row with a value that does not compress.
fn batch(number: u32, bytes: usize) -> WriteBatch {
    let value: Vec<u8> = noise(number).take(bytes).collect();
    let mut batch = WriteBatch::new(table());
    let family = batch.family("f");
    batch.row(&number.to_be_bytes()).put(family, b"q", &value);
    batch
}

async fn new_store(folder: &Path) -> CellStore {
    let store = CellStore::open(CellConfig::new(folder)).unwrap();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    store
}

#[tokio::test]
async fn rejects_a_locked_folder_with_the_pid() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path()).await;
    let error = CellStore::open(CellConfig::new(folder.path())).unwrap_err();
    let expected = format!(
        "folder {} is in use by process {}",
        folder.path().display(),
        std::process::id()
    );
    assert!(
        matches!(&error, StoreError::Unavailable { detail } if *detail == expected),
        "{error}"
    );
    store.close().await.unwrap();
    let error = store.write(batch(1, 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    drop(CellStore::open(CellConfig::new(folder.path())).unwrap());
}

#[tokio::test]
async fn rejects_other_formats() {
    let folder = tempfile::tempdir().unwrap();
    drop(new_store(folder.path()).await);
    for (version, expected) in [
        (4, "has format `4`, this version reads format 3"),
        (
            2,
            "has format 2, this program reads format 3: export the data folder",
        ),
    ] {
        let text = format!("oxtsdb row store, format {version}\n");
        fs::write(folder.path().join("STORE"), text).unwrap();
        let error = CellStore::open(CellConfig::new(folder.path())).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    fs::write(folder.path().join("STORE"), "something else").unwrap();
    let error = CellStore::open(CellConfig::new(folder.path())).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn journal_size_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CellConfig::new(folder.path());
    config.memory_bytes = 4 << 20;
    let store = CellStore::open(config).unwrap();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    let batch = batch(1, 4_000_000);
    for _ in 0..60 {
        store.write(batch.clone()).await.unwrap();
    }
    store.flush().await.unwrap();
    let journal_bytes = store.stats().unwrap().journal_bytes;
    assert!(journal_bytes < 16 << 20, "{journal_bytes} of 240 MB");
}

#[tokio::test]
async fn drops_with_queued_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path()).await;
    for _ in 0..8 {
        // It stays queued without a caller waiting for it.
        drop(futures::FutureExt::now_or_never(store.flush()));
    }
    let (dropped, is_dropped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        dropped.send(()).unwrap();
    });
    is_dropped
        .recv_timeout(std::time::Duration::from_secs(60))
        .unwrap();
}

/// The files under a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}

/// Reads all rows; the number of rows.
async fn read_all(folder: &Path) -> Result<usize, StoreError> {
    let store = CellStore::open(CellConfig::new(folder))?;
    let scan = store.scan(&table(), Scan::prefix(b"")).await?;
    let rows: Vec<_> = scan.try_collect().await?;
    Ok(rows.iter().map(Vec::len).sum())
}

#[tokio::test]
async fn completes_a_partially_created_store() {
    let left = tempfile::tempdir().unwrap();
    fs::write(
        left.path().join("STORE"),
        "oxtsdb row store, format 3, incomplete\n",
    )
    .unwrap();
    fs::create_dir(left.path().join("tables")).unwrap();
    drop(new_store(left.path()).await);
    assert_eq!(read_all(left.path()).await.unwrap(), 0);
    let text = fs::read_to_string(left.path().join("STORE")).unwrap();
    assert_eq!(text, "oxtsdb row store, format 3\n");
}

fn copy(files: &[PathBuf], from: &Path, to: &Path) {
    for file in files {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

#[tokio::test]
async fn detects_or_tolerates_damage_in_every_file() {
    const ROWS: usize = 100;
    let whole = tempfile::tempdir().unwrap();
    let store = new_store(whole.path()).await;
    for number in 0..ROWS {
        store
            .write(batch(u32::try_from(number).unwrap(), 100))
            .await
            .unwrap();
    }
    store.flush().await.unwrap();
    store.close().await.unwrap();
    let files = files(whole.path());
    for (index, file) in files.iter().enumerate() {
        let file = file.strip_prefix(whole.path()).unwrap();
        let content = fs::read(whole.path().join(file)).unwrap();
        for part in 0..4 {
            let folder = tempfile::tempdir().unwrap();
            copy(&files, whole.path(), folder.path());
            let offset = content.len() * part / 4;
            let mut damaged = content.clone();
            if let Some(byte) = damaged.get_mut(offset) {
                *byte ^= 0xc1;
            }
            fs::write(folder.path().join(file), damaged).unwrap();
            let read = read_all(folder.path()).await;
            let place = folder.path().display().to_string();
            assert!(
                matches!(&read, Ok(ROWS))
                    || matches!(&read, Err(StoreError::Corrupt { place: path, .. }) if path.contains(&place)),
                "{} with another byte at {offset}: {read:?}",
                file.display()
            );
        }

        let folder = tempfile::tempdir().unwrap();
        copy(
            &[&files[..index], &files[index + 1..]].concat(),
            whole.path(),
            folder.path(),
        );
        let read = read_all(folder.path()).await;
        assert!(
            matches!(&read, Ok(ROWS) | Err(StoreError::Corrupt { .. })),
            "without {}: {read:?}",
            file.display()
        );
    }
}

/// A small file system, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` if this process is not allowed to mount.
    fn mount(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

#[tokio::test]
async fn full_disk_rejects_writes_serves_reads_and_recovers() {
    let Some(disk) = SmallDisk::mount(160) else {
        eprintln!("SKIPPED full_disk_rejects_writes_serves_reads_and_recovers: cannot mount a tmpfs here");
        return;
    };
    let folder = disk.0.path();
    let mut config = CellConfig::new(folder.join("store"));
    config.memory_bytes = 8 << 20;
    let store = CellStore::open(config.clone()).unwrap();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    store.write(batch(0, 1_000)).await.unwrap();

    let ballast = folder.join("ballast");
    let free = fs4::available_space(folder).unwrap();
    fs::write(&ballast, vec![1; usize::try_from(free).unwrap() - (6 << 20)]).unwrap();
    let mut acknowledged = vec![0_u32];
    let error = loop {
        let number = u32::try_from(acknowledged.len()).unwrap();
        match store.write(batch(number, 100_000)).await {
            Ok(()) => acknowledged.push(number),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 1_000, "the disk is too small for that");
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    let rejected = u32::try_from(acknowledged.len()).unwrap();
    let read = |store: &CellStore, number: u32| {
        let key = number.to_be_bytes();
        let row = futures::executor::block_on(store.get(&table(), &key, &ColumnSelection::All)).unwrap();
        row.map(|row| row.get("f", b"q").unwrap().value.len())
    };
    assert_eq!(read(&store, rejected), None, "a rejected write has no effect");
    assert_eq!(read(&store, rejected - 1), Some(100_000), "reads continue");

    fs::remove_file(&ballast).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = store.check_health().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not healthy without a write: {error}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    while let Err(error) = store.write(batch(rejected, 100_000)).await {
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(tokio::time::Instant::now() < deadline, "space is available again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    acknowledged.push(rejected);
    drop(store);
    let store = CellStore::open(config).unwrap();
    for number in acknowledged {
        assert_eq!(
            read(&store, number),
            Some(if number == 0 { 1_000 } else { 100_000 }),
            "row {number}"
        );
    }
    drop(store.scan(&table(), Scan::prefix(b"")).await.unwrap());
}

/// Folders and files, and whether other users have permissions on them.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;

    let mut paths = files(folder);
    paths.push(folder.to_owned());
    paths.retain(|path| fs::metadata(path).unwrap().permissions().mode() & 0o077 != 0);
    paths
}

#[tokio::test]
async fn denies_access_to_other_users() {
    use std::os::unix::fs::PermissionsExt as _;

    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deep/store");
    let store = new_store(&folder).await;
    store.write(batch(1, 100)).await.unwrap();
    let open = open_to_others(&folder);
    assert!(open.is_empty(), "{open:?}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("tables")), 0o700);
    store.close().await.unwrap();

    // A folder that existed before.
    for path in [&folder, &folder.join("tables")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    drop(new_store(&folder).await);
    for path in [&folder, &folder.join("tables")] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
}

#[tokio::test]
async fn a_snapshot_is_a_store_with_the_cells_of_one_instant() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(&folder.path().join("store")).await;
    let mut old = WriteBatch::new(table());
    let family = old.family("f");
    old.row(b"1").put_at(family, b"q", 7, b"old");
    store.write(old).await.unwrap();
    // Two rows that are always written together.
    let pair = |number: u32| {
        let mut batch = WriteBatch::new(table());
        let family = batch.family("f");
        for row in [&b"0 first"[..], b"9 last"] {
            batch.row(row).put(family, b"q", &number.to_be_bytes());
        }
        for filler in 0..100_u32 {
            let key = [&b"5 "[..], &number.to_be_bytes(), &filler.to_be_bytes()].concat();
            batch.row(&key).put(family, b"q", &[7; 200]);
        }
        batch
    };
    store.write(pair(0)).await.unwrap();
    let target = folder.path().join("copy");
    let writes = async {
        for number in 1..200 {
            store.write(pair(number)).await.unwrap();
        }
    };
    let (copied, ()) = tokio::join!(store.snapshot(&target), writes);
    copied.unwrap();

    let copy = CellStore::open(CellConfig::new(&target)).unwrap();
    assert_eq!(copy.tables().await.unwrap(), store.tables().await.unwrap());
    let value = async |row: &[u8]| {
        let row = copy.get(&table(), row, &ColumnSelection::All).await.unwrap();
        let row = row.unwrap();
        let cell = row.get("f", b"q").unwrap();
        (cell.timestamp_ms, cell.value.to_vec())
    };
    assert_eq!(value(b"1").await, (7, b"old".to_vec()));
    assert_eq!(value(b"0 first").await.1, value(b"9 last").await.1);
    let again = store.snapshot(&target).await;
    assert!(matches!(again, Err(StoreError::Invalid { .. })), "{again:?}");

    // Later writes go before what was copied, also after a flush and a reopening.
    copy.write(pair(1_000)).await.unwrap();
    copy.flush().await.unwrap();
    copy.write(pair(1_001)).await.unwrap();
    copy.close().await.unwrap();
    let copy = CellStore::open(CellConfig::new(&target)).unwrap();
    let row = copy
        .get(&table(), b"0 first", &ColumnSelection::All)
        .await
        .unwrap();
    assert_eq!(
        row.unwrap().get("f", b"q").unwrap().value,
        1_001_u32.to_be_bytes()
    );
}

/// A folder of format 3, as the first version wrote it: later versions open it, or reject it by its number.
///
/// Made by `make_the_fixture`: three tables, one of them merged, and a journal.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cells-format-3")
}

#[tokio::test]
async fn opens_a_folder_of_the_first_version() {
    let folder = tempfile::tempdir().unwrap();
    copy(&files(&fixture()), &fixture(), folder.path());
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    let (table, scan) = (table(), Scan::prefix(b""));
    let rows: Vec<_> = store
        .scan(&table, scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let rows: Vec<_> = rows.iter().flatten().collect();
    let expected: Vec<u32> = (0..60).filter(|number| number % 7 != 3).collect();
    let numbers = rows
        .iter()
        .map(|row| u32::from_be_bytes(row.key().try_into().unwrap()));
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
    for (row, number) in rows.iter().zip(expected) {
        let cell = row.get("f", b"q").unwrap();
        assert_eq!((cell.value.len(), cell.value[0]), (40, number.to_be_bytes()[3]));
    }
    assert_eq!(store.damage(), []);
}

/// Writes the fixture anew, for another format: `cargo test -p oxtsdb-row-store --test folder make_the_fixture -- --ignored`.
#[tokio::test]
#[ignore = "writes into the source folder"]
async fn make_the_fixture() {
    fs::remove_dir_all(fixture()).ok();
    let store = new_store(&fixture()).await;
    let put = async |number: u32| {
        let mut batch = WriteBatch::new(table());
        let family = batch.family("f");
        let key = number.to_be_bytes();
        batch.row(&key).put(family, b"q", &[key[3]; 40]);
        store.write(batch).await.unwrap();
    };
    for number in 0..60 {
        put(number).await;
        if number % 10 == 9 && number < 50 {
            store.flush().await.unwrap();
        }
    }
    for number in (0..60_u32).filter(|number| number % 7 == 3) {
        let mut batch = WriteBatch::new(table());
        batch.row(&number.to_be_bytes()).delete_row();
        store.write(batch).await.unwrap();
    }
    // Four of the five tables are merged.
    while files(&fixture().join("tables")).len() > 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    store.close().await.unwrap();
    fs::remove_file(fixture().join("LOCK")).unwrap();
}
