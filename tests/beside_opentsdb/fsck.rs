//! `tsdb fsck` on a table that OpenTSDB writes too: OpenTSDB's own fsck complains before the repair and
//! finds nothing after it.

use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::RowFindingType;
use oxtsdb_schema::CellRef;
use oxtsdb_schema::row::{CellKind, decode_cell};
use oxtsdb_tests::corruptions::{ALL, KEYS, assign_names, planted};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::stored::{Column, Stored};
use oxtsdb_tests::{Options, Tsdb, program_path, random, sizes};
use serde_json::json;
use tempfile::TempDir;

/// Runs `tsdb fsck`.
async fn fsck(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new(program_path("tsdb")?);
    command
        .args(["fsck", "--target"])
        .arg(format!("http://{}", server.data_address()))
        .args(arguments);
    let Output {
        status,
        stdout,
        stderr,
    } = tokio::task::spawn_blocking(move || command.output()).await??;
    let output = String::from_utf8(stdout)? + &String::from_utf8(stderr)?;
    Ok((status.code(), output))
}

/// Points in single and compacted cells; OpenTSDB's fsck checks appended points, but does not count them.
fn counted_points<'a>(cells: impl Iterator<Item = (&'a Column, &'a Vec<u8>)>) -> anyhow::Result<u64> {
    let mut points = Vec::new();
    for ((_, _, qualifier), value) in cells {
        let cell = CellRef {
            qualifier,
            value,
            timestamp_ms: 0,
        };
        if matches!(
            CellKind::from_qualifier(qualifier),
            CellKind::Point | CellKind::Compacted
        ) {
            decode_cell(cell, &mut points)?;
        }
    }
    Ok(points.len() as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn opentsdbs_fsck_finds_nothing_after_our_repairs() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let corruptions = sizes::from_environment("OXTSDB_INTEROP_FSCK_CORRUPTIONS", 2_000)?;
    let mut random = random::seeded("fsck")?;
    let tables = rig.create_tables("fsck").await?;
    let opentsdb = rig
        .opentsdb(&tables, &["tsd.storage.enable_compaction=false"])
        .await?;
    let oxtsdb = Tsdb::start_with(Options::default().flags(rig.flags(&tables))).await?;
    assign_names(&oxtsdb, corruptions).await?;
    // OpenTSDB's fsck ends at a row key without tags.
    let keys: Vec<RowFindingType> = KEYS
        .iter()
        .copied()
        .filter(|key| *key != RowFindingType::NoTags)
        .collect();
    let planted = planted(corruptions, &keys, &mut random)?;
    let stored = Stored::connect(&rig).await?;
    let damaged: Vec<(Column, Option<Vec<u8>>)> = planted
        .cells
        .iter()
        .map(|((row, qualifier), (_, value))| {
            (
                (row.clone(), "t".to_owned(), qualifier.clone()),
                Some(value.clone()),
            )
        })
        .collect();
    for portion in damaged.chunks(10_000) {
        stored.change(&tables.data, portion).await?;
    }
    let point = json!({"metric": "written.by.opentsdb", "timestamp": 1_356_998_400, "value": 1, "tags": {"k0": "v0"}});
    let response = opentsdb.http().post("/api/put?details&sync", &point).await?;
    ensure!(response.status == 200, "{}: {}", response.status, response.body);
    let before = stored.cells(&tables.data).await?;
    let theirs = rig.data_fsck(&opentsdb).await?;
    // It ends early at some corruptions.
    ensure!(theirs.errors > 0 || !theirs.complaints.is_empty(), "{theirs:?}");
    println!(
        "OpenTSDB finds {} errors in {corruptions} corrupted rows",
        theirs.errors
    );

    let files = TempDir::new()?;
    let file = |name: &str| files.path().join(name).display().to_string();
    let (plan, undo) = (file("plan"), file("undo"));
    let (status, text) = fsck(&oxtsdb, &[ALL, &["--plan", &plan]].concat()).await?;
    let corrupted = planted.corrupted.len();
    let expected = format!("plan: repairs of {corrupted} rows, 0 rows without one");
    ensure!(
        status == Some(1) && text.contains(&expected),
        "{expected}: {text}"
    );
    ensure!(
        stored.cells(&tables.data).await? == before,
        "a check changed the table"
    );
    let (status, text) = fsck(&oxtsdb, &["--apply", &plan, "--undo", &undo]).await?;
    ensure!(
        status == Some(0) && text.ends_with(" repairs applied, 0 unchanged, 0 rejected\n"),
        "{text}"
    );
    let repaired = stored.cells(&tables.data).await?;
    for ((row, qualifier), (_, value)) in &planted.healthy {
        let column = (row.clone(), "t".to_owned(), qualifier.clone());
        ensure!(
            repaired.get(&column) == Some(value),
            "the healthy cell {} of row {} was {value:?}, is {:?}",
            hex::encode(qualifier),
            hex::encode(row),
            repaired.get(&column)
        );
    }
    let points = counted_points(repaired.iter()).context("a cell that is left")?;
    rig.data_fsck(&opentsdb).await?.check(points)?;

    let (status, text) = fsck(&oxtsdb, &["--apply", &undo]).await?;
    ensure!(
        status == Some(0) && text.ends_with(" 0 unchanged, 0 rejected\n"),
        "{text}"
    );
    ensure!(
        stored.cells(&tables.data).await? == before,
        "the record does not restore all cells"
    );
    Ok(())
}
