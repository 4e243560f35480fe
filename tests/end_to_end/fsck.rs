//! `tsdb fsck` finds planted corruptions of a stored table, repairs them by its plan without a change to a healthy cell, and
//! makes them back.
//!
//! On the embedded store the rows of table `tsdb` hold any cells, as HBase's do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use futures::TryStreamExt as _;
use oxtsdb_proto::data::v1::fsck_rows_response::Event;
use oxtsdb_proto::data::v1::{FsckRowsRequest, RowFindingType};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{Row, RowStore as _, Scan, StoreControl as _, TableName, WriteBatch};
use oxtsdb_tests::corruptions::{ALL, Cells, HOUR, KEYS, WRITTEN_MS, assign_names, planted, row_key};
use oxtsdb_tests::memory::MemoryWatch;
use oxtsdb_tests::{Options, Tsdb, program_path, random, sizes};
use tempfile::TempDir;

fn table() -> TableName {
    "tsdb".parse().expect("a name of a table")
}

/// The cells of table `tsdb`; only while no server has them.
fn open(folder: &Path) -> anyhow::Result<CellStore> {
    Ok(CellStore::open(CellConfig::new(folder.join("data")))?)
}

async fn cells(folder: &Path) -> anyhow::Result<Cells> {
    let store = open(folder)?;
    let rows = store.scan(&table(), Scan::range([], [])).await?;
    let rows: Vec<Vec<Row>> = rows.try_collect().await?;
    store.close().await?;
    let cells = rows.iter().flatten().flat_map(|row| {
        row.cells().map(|cell| {
            let address = (row.key().to_vec(), cell.qualifier.to_vec());
            (address, (cell.timestamp_ms, cell.value.to_vec()))
        })
    });
    Ok(cells.collect())
}

async fn plant(folder: &Path, cells: &Cells) -> anyhow::Result<()> {
    let store = open(folder)?;
    let cells: Vec<_> = cells.iter().collect();
    for portion in cells.chunks(10_000) {
        let mut batch = WriteBatch::new(table());
        let family = batch.family("t");
        for ((row, qualifier), (timestamp_ms, value)) in portion {
            batch.row(row).put_at(family, qualifier, *timestamp_ms, value);
        }
        store.write(batch).await?;
    }
    Ok(store.close().await?)
}

async fn start(folder: &Path) -> anyhow::Result<Tsdb> {
    Tsdb::start_with(Options::default().data_dir(folder)).await
}

/// Runs `tsdb fsck`.
fn fsck(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program_path("tsdb")?)
        .args(["fsck", "--target"])
        .arg(format!("http://{}", server.data_address()))
        .args(arguments)
        .output()?;
    let output = String::from_utf8(stdout)? + &String::from_utf8(stderr)?;
    Ok((status.code(), output))
}

/// The types that are found in each row.
async fn findings(server: &Tsdb) -> anyhow::Result<BTreeMap<Vec<u8>, BTreeSet<RowFindingType>>> {
    let request = FsckRowsRequest {
        grace_period: Some(prost_types::Duration::default()),
        ..FsckRowsRequest::default()
    };
    let mut messages = server.data_admin().fsck_rows(request).await?.into_inner();
    let (mut rows, mut is_complete) = (BTreeMap::new(), false);
    while let Some(message) = messages.message().await? {
        match message.event.context("an event")? {
            Event::Findings(findings) => rows.extend(findings.rows.into_iter().map(|row| {
                let types = row.findings.iter().map(|finding| finding.r#type());
                (row.row_key.to_vec(), types.collect())
            })),
            Event::Progress(_) => {}
            Event::Summary(_) => is_complete = true,
        }
    }
    ensure!(is_complete, "no summary");
    Ok(rows)
}

/// A server with names for the series, ended; its folder.
async fn with_names(corruptions: usize) -> anyhow::Result<TempDir> {
    let folder = TempDir::new()?;
    let mut server = start(folder.path()).await?;
    assign_names(&server, corruptions).await?;
    server.terminate().await?;
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_and_repairs_all_and_changes_no_healthy_cell() -> anyhow::Result<()> {
    let corruptions = sizes::from_environment("OXTSDB_FSCK_CORRUPTIONS", 1_000)?;
    let mut random = random::seeded("fsck")?;
    let planted = planted(corruptions, KEYS, &mut random)?;
    let folder = with_names(corruptions).await?;
    plant(folder.path(), &planted.cells).await?;
    ensure!(cells(folder.path()).await? == planted.cells);

    let mut server = start(folder.path()).await?;
    let watch = MemoryWatch::start(server.process().id())?;
    let rows = findings(&server).await?;
    for (row, finding) in &planted.corrupted {
        let types = rows.get(row);
        ensure!(
            types.is_some_and(|types| types.contains(finding)),
            "{finding:?} in {}: found {types:?}",
            hex::encode(row)
        );
    }
    for (row, types) in &rows {
        ensure!(
            planted.corrupted.contains_key(row),
            "{types:?} in the healthy row {}",
            hex::encode(row)
        );
    }
    let files = TempDir::new()?;
    let file = |name: &str| files.path().join(name).display().to_string();
    let (plan, undo) = (file("plan"), file("undo"));
    let (status, text) = fsck(&server, &[ALL, &["--plan", &plan]].concat())?;
    let corrupted = planted.corrupted.len();
    let expected = format!("plan: repairs of {corrupted} rows, 0 rows without one");
    ensure!(
        status == Some(1) && text.contains(&expected),
        "{expected}: {status:?}"
    );
    let (status, text) = fsck(&server, &["--apply", &plan, "--undo", &undo])?;
    ensure!(
        status == Some(0) && text.ends_with(" repairs applied, 0 unchanged, 0 rejected\n"),
        "{text}"
    );
    let left = findings(&server).await?;
    ensure!(left.is_empty(), "{left:?}");
    println!("peak memory {} MiB", watch.peak() >> 20);
    server.terminate().await?;
    let repaired = cells(folder.path()).await?;
    for (address, cell) in &planted.healthy {
        ensure!(
            repaired.get(address) == Some(cell),
            "the healthy cell {} of row {} was {cell:?}, is {:?}",
            hex::encode(&address.1),
            hex::encode(&address.0),
            repaired.get(address)
        );
    }

    let mut server = start(folder.path()).await?;
    let (status, text) = fsck(&server, &["--apply", &undo])?;
    ensure!(
        status == Some(0) && text.ends_with(" 0 unchanged, 0 rejected\n"),
        "{text}"
    );
    server.terminate().await?;
    ensure!(
        cells(folder.path()).await? == planted.cells,
        "the record does not restore all cells"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_changes_nothing_that_changed_since() -> anyhow::Result<()> {
    let folder = with_names(1).await?;
    let key = |host| row_key(1, HOUR, &[(1, host)]);
    let odd = |value: u8| (WRITTEN_MS, vec![value]);
    let before = Cells::from([
        ((key(1), vec![0, 0]), odd(1)),
        ((key(1), vec![0, 0x17]), odd(5)),
        ((key(2), vec![0, 0x17]), odd(6)),
    ]);
    plant(folder.path(), &before).await?;
    let mut server = start(folder.path()).await?;
    let (status, text) = fsck(&server, &[])?;
    assert_eq!(status, Some(1), "{text}");
    for line in [
        "ERROR WRONG_FLAGS 00000150E22700000001000001: ",
        "ERROR WRONG_FLAGS 00000150E22700000001000002: ",
        "2 rows, 3 cells read: 2 errors",
        "most points are not in rows: `tsdb store check` checks them",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let files = TempDir::new()?;
    let file = |name: &str| files.path().join(name).display().to_string();
    let (plan, undo) = (file("plan"), file("undo"));
    fsck(&server, &["--plan", &plan])?;
    for (arguments, refusal) in [
        (&["--plan", &plan][..], "File exists"),
        (&["--apply", &plan], "missing --undo"),
        (&["--apply", &undo, "--undo", &plan], "undo"),
        (&["--leave", "NOTHING"], "unknown type"),
        (&["--metric", "other"], "other"),
        (
            &["--start", "2013/01/02", "--end", "2013/01/01"],
            "is before start",
        ),
        (&["--start-after", "0x1"], "start-after"),
    ] {
        let (status, text) = fsck(&server, arguments)?;
        assert!(
            status.is_some_and(|status| status != 0) && text.contains(refusal),
            "{arguments:?}: {text}"
        );
    }
    let edited = file("edited");
    std::fs::write(&edited, std::fs::read_to_string(&plan)? + "{\"row_key\": 5}\n")?;
    let (status, text) = fsck(&server, &["--apply", &edited, "--undo", &undo])?;
    assert!(status == Some(1) && text.contains("edited"), "{text}");
    server.terminate().await?;
    assert_eq!(cells(folder.path()).await?, before, "nothing was applied yet");

    // Another writer was here.
    let changed = Cells::from([((key(2), vec![0, 0x17]), (WRITTEN_MS + 1, vec![7]))]);
    plant(folder.path(), &changed).await?;
    let mut server = start(folder.path()).await?;
    let (status, text) = fsck(&server, &["--apply", &plan, "--undo", &file("second")])?;
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("another value than the plan saw"), "{text}");
    assert!(
        text.contains("1 repairs applied, 0 unchanged, 1 rejected"),
        "{text}"
    );
    server.terminate().await?;
    let expected = Cells::from([
        ((key(1), vec![0, 0]), odd(1)),
        ((key(1), vec![0, 0x10]), odd(5)),
        ((key(2), vec![0, 0x17]), odd(7)),
    ]);
    let stored = cells(folder.path()).await?;
    let values = |cells: &Cells| -> Vec<_> {
        let cells = cells.iter();
        cells
            .map(|(address, (_, value))| (address.clone(), value.clone()))
            .collect()
    };
    assert_eq!(values(&stored), values(&expected));
    Ok(())
}
