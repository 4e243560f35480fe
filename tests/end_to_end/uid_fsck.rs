//! `tsdb uid fsck` finds planted corruptions of a stored table, repairs them by its plan, and makes them back.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::ensure;
use futures::TryStreamExt as _;
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{Row, RowStore as _, Scan, StoreControl as _, TableName, WriteBatch};
use oxtsdb_tests::memory::MemoryWatch;
use oxtsdb_tests::{Options, Tsdb, program_path, sizes};
use tempfile::TempDir;

/// A cell: row, family, qualifier, value.
type Cell = (Vec<u8>, String, Vec<u8>, Vec<u8>);

/// Flags of a check while nothing writes.
const NOW: &[&str] = &["--grace-seconds", "0"];

fn table() -> TableName {
    "tsdb-uid".parse().expect("a name of a table")
}

/// The store of UIDs below a data folder; only while no server has it.
fn open(folder: &Path) -> anyhow::Result<CellStore> {
    Ok(CellStore::open(CellConfig::new(folder.join("uid")))?)
}

async fn cells(folder: &Path) -> anyhow::Result<Vec<Cell>> {
    let store = open(folder)?;
    let rows = store.scan(&table(), Scan::range([], [])).await?;
    let rows: Vec<Vec<Row>> = rows.try_collect().await?;
    store.close().await?;
    let cells = rows.iter().flatten().flat_map(|row| {
        row.cells().map(|cell| {
            let family = cell.family.to_owned();
            (
                row.key().to_vec(),
                family,
                cell.qualifier.to_vec(),
                cell.value.to_vec(),
            )
        })
    });
    Ok(cells.collect())
}

/// Cells of one row and family, with an old timestamp.
async fn plant(folder: &Path, cells: &[(&[u8], &str, &str, &[u8])]) -> anyhow::Result<()> {
    let store = open(folder)?;
    let mut batch = WriteBatch::new(table());
    for (row, family, qualifier, value) in cells {
        let family = batch.family(family);
        batch
            .row(row)
            .put_at(family, qualifier.as_bytes(), 1_356_998_400_000, value);
    }
    store.write(batch).await?;
    Ok(store.close().await?)
}

async fn start(folder: &Path) -> anyhow::Result<Tsdb> {
    Tsdb::start_with(Options::default().data_dir(folder)).await
}

/// Runs `tsdb uid fsck`.
fn fsck(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program_path("tsdb")?)
        .args(["uid", "fsck", "--uid-target"])
        .arg(format!("http://{}", server.uid_address()))
        .args(arguments)
        .output()?;
    let output = String::from_utf8(stdout)? + &String::from_utf8(stderr)?;
    Ok((status.code(), output))
}

async fn assign(server: &Tsdb, kind: UidKind, names: Vec<String>) -> anyhow::Result<()> {
    let names = names.into_iter().map(|name| UidName {
        kind: kind.into(),
        name,
        tag_key: String::new(),
    });
    let request = GetOrCreateUidsRequest {
        names: names.collect(),
        explicit: true,
        ..Default::default()
    };
    let response = server.uids().get_or_create_uids(request).await?.into_inner();
    ensure!(
        response.results.iter().all(|result| result.created),
        "{response:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_repairs_and_makes_them_back() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let mut server = start(folder.path()).await?;
    assign(&server, UidKind::Metric, vec!["a".to_owned(), "b".to_owned()]).await?;
    let (status, clean) = fsck(&server, NOW)?;
    assert_eq!(status, Some(0), "{clean}");
    assert!(clean.contains("2 names, 5 rows read: 0 errors"), "{clean}");
    server.terminate().await?;
    drop(server);

    plant(
        folder.path(),
        &[
            // Both have UID 1, which has the name `a`.
            (b"other", "id", "metrics", &[0, 0, 1]),
            (b"lost", "id", "tagk", &[0, 0, 9]),
            (&[0, 0, 7], "name", "tagv", b"leaked"),
            (&[0, 0, 7], "name", "tagv_meta", b"{}"),
            (b"odd", "id", "metric", b"\xff"),
            (b"wide", "id", "tagv", &[0, 0, 0, 1]),
        ],
    )
    .await?;
    let before = cells(folder.path()).await?;

    let server = start(folder.path()).await?;
    // The mapping of `a` may be about to change.
    let (_, young) = fsck(&server, &[])?;
    assert!(young.contains("3 errors, 1 too young to tell"), "{young}");
    let (status, report) = fsck(&server, NOW)?;
    assert_eq!(status, Some(1), "{report}");
    for line in [
        "ERROR DUPLICATE_UID: metrics 000001 is the UID of 2 names: `a` and `other`",
        "ERROR MISSING_REVERSE: tagk `lost` has the UID 000009, which has no name",
        "WARNING MISSING_FORWARD: tagv 000007 has the name `leaked`",
        "WARNING UNKNOWN_CELL: row `odd`",
        "ERROR WRONG_WIDTH: tagv `wide` has a UID of 4 bytes",
        "ERROR COUNTER_MISSING: tagk has 1 names but no counter",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
    let files = TempDir::new()?;
    let file = |name: &str| files.path().join(name).display().to_string();
    let (plan, undo, again) = (file("plan"), file("undo"), file("again"));
    let (_, planned) = fsck(&server, &[NOW, &["--plan", &plan, "--delete-unknown"]].concat())?;
    assert!(
        planned.contains("plan: 6 repairs, 0 findings without one"),
        "{planned}"
    );
    let (status, refused) = fsck(&server, &["--plan", &plan])?;
    assert!(status == Some(1) && refused.contains("File exists"), "{refused}");
    let (status, refused) = fsck(&server, &["--apply", &plan])?;
    assert!(
        status == Some(1) && refused.contains("missing --undo"),
        "{refused}"
    );

    let (status, applied) = fsck(&server, &["--apply", &plan, "--undo", &undo])?;
    assert_eq!(
        (status, applied.as_str()),
        (Some(0), "6 repairs applied, 0 unchanged, 0 rejected\n")
    );
    let (status, clean) = fsck(&server, NOW)?;
    assert!(status == Some(0) && clean.contains("0 errors"), "{clean}");
    assert!(!clean.contains("WARNING"), "{clean}");

    // Cells that have changed since the plan are left as they are.
    let (status, undone) = fsck(&server, &["--apply", &undo])?;
    assert_eq!(
        (status, undone.as_str()),
        (Some(0), "6 repairs applied, 0 unchanged, 0 rejected\n")
    );
    assign(&server, UidKind::TagKey, vec!["new".to_owned()]).await?;
    let (status, applied) = fsck(&server, &["--apply", &plan, "--undo", &again])?;
    assert_eq!(status, Some(1), "{applied}");
    assert!(applied.contains("another value than the plan saw"), "{applied}");
    assert!(
        applied.contains("5 repairs applied, 0 unchanged, 1 rejected"),
        "{applied}"
    );
    let (status, undone) = fsck(&server, &["--apply", &again])?;
    assert_eq!(
        (status, undone.as_str()),
        (Some(0), "5 repairs applied, 0 unchanged, 0 rejected\n")
    );
    drop(server);

    let mut after = cells(folder.path()).await?;
    after.retain(|(row, _, qualifier, value)| {
        // The tag key that was assigned meanwhile.
        !(qualifier == b"tagk" && (row == b"new" || value == b"new" || row == &[0]))
    });
    assert!(after == before, "{after:?}\n{before:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_takes_little_memory() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let mut server = start(folder.path()).await?;
    let names = sizes::from_environment("OXTSDB_FSCK_NAMES", 20_000)?;
    for first in (0..names).step_by(4096) {
        let batch = first..names.min(first + 4096);
        let names = batch.map(|number| format!("host-{number:08}.example.org"));
        assign(&server, UidKind::TagValue, names.collect()).await?;
    }
    // Warm: the caches of the store are full.
    let (status, clean) = fsck(&server, NOW)?;
    assert!(status == Some(0) && clean.contains("0 errors"), "{clean}");
    let watch = MemoryWatch::start(server.process().id())?;
    let before = watch.current();
    let started = std::time::Instant::now();
    let (status, clean) = fsck(&server, NOW)?;
    let (elapsed, peak) = (started.elapsed(), watch.peak());
    assert!(status == Some(0) && clean.contains("0 errors"), "{clean}");
    let growth = peak.saturating_sub(before) >> 20;
    println!(
        "{names} names checked in {elapsed:?}, {growth} MiB more than the {} MiB before",
        before >> 20
    );
    ensure!(growth <= 256, "{growth} MiB");
    drop(server);
    Ok(())
}
