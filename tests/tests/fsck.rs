//! `tsdb fsck` finds planted corruptions of a stored table, repairs them by its plan without a change to a healthy cell, and
//! makes them back.
//!
//! On the embedded store the rows of table `tsdb` hold any cells, as HBase's do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use futures::TryStreamExt as _;
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::data::v1::fsck_rows_response::Event;
use oxtsdb_proto::data::v1::{FsckRowsRequest, RowFindingType};
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{Row, RowStore as _, Scan, TableName, WriteBatch};
use oxtsdb_tests::memory::MemoryWatch;
use oxtsdb_tests::{Options, Tsdb, program_path, random, sizes};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use tempfile::TempDir;

/// Cells by row and qualifier: timestamp, value.
type Cells = BTreeMap<(Vec<u8>, Vec<u8>), (i64, Vec<u8>)>;

/// Flags of a check while nothing writes, of all that it can repair.
const ALL: &[&str] = &[
    "--grace-seconds",
    "0",
    "--also",
    "UNKNOWN_UID",
    "--also",
    "TAG_ORDER",
    "--also",
    "FUTURE_CELL",
    "--also",
    "META_BYTE_MISMATCH",
    "--also",
    "LONG_INTEGER",
];

const HOUR: u32 = 1_356_998_400;
const WRITTEN_MS: i64 = 1_357_100_000_000;

/// Corruptions of a row that has a point at the start of its hour and an annotation: cells, as hex, of which later ones are newer.
const CELLS: &[(RowFindingType, &[(&str, &str)])] = &[
    (RowFindingType::UnknownCell, &[("00", "01")]),
    (RowFindingType::UnknownCell, &[("f000", "01")]),
    (RowFindingType::FutureCell, &[("020000", "01")]),
    (RowFindingType::ValueLength, &[("0012", "010203")]),
    (RowFindingType::ValueLength, &[("001b", "0100000041200000")]),
    (RowFindingType::WrongFlags, &[("0017", "05")]),
    (RowFindingType::WrongFlags, &[("001f", "41200000")]),
    (RowFindingType::FloatLength, &[("001b", "0000000041200000")]),
    (RowFindingType::CompactedLength, &[("00100020", "06")]),
    (RowFindingType::MetaByte, &[("00100020", "060707")]),
    (RowFindingType::MetaByteMismatch, &[("00100020", "060701")]),
    (RowFindingType::CompactedOrder, &[("00200010", "060700")]),
    (RowFindingType::AppendedCutOff, &[("050000", "0010060020")]),
    (RowFindingType::BeyondHour, &[("e100", "01")]),
    (
        RowFindingType::Duplicate,
        &[("0010", "05"), ("00100020", "060700")],
    ),
    (RowFindingType::Duplicate, &[("0010", "05"), ("f000fa00", "06")]),
    (
        RowFindingType::Redundant,
        &[("0010", "06"), ("00100020", "060700")],
    ),
    (RowFindingType::LongInteger, &[("0017", "0000000000000005")]),
    (RowFindingType::UnreadableAnnotation, &[("010010", "7b22")]),
    (RowFindingType::UnreadableHistogram, &[("060010", "")]),
];

/// Corruptions of row keys.
const KEYS: &[RowFindingType] = &[
    RowFindingType::BadKey,
    RowFindingType::NoTags,
    RowFindingType::BaseTime,
    RowFindingType::TagOrder,
    RowFindingType::UnknownUid,
];

/// What all rows have: a point, compacted ones, and an annotation.
fn healthy() -> [(Vec<u8>, Vec<u8>); 3] {
    let annotation = br#"{"startTime":1356998400,"description":"d"}"#.to_vec();
    [
        (vec![0, 0], vec![42]),
        (vec![0x10, 0, 0x10, 0x10], vec![1, 2, 0]),
        (vec![1, 0, 0], annotation),
    ]
}

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

fn row_key(metric: u32, seconds: u32, tags: &[(u32, u32)]) -> Vec<u8> {
    let uid = |uid: u32| uid.to_be_bytes()[1..].to_vec();
    let mut key = [uid(metric), seconds.to_be_bytes().to_vec()].concat();
    for (tag_key, value) in tags {
        key.extend(uid(*tag_key));
        key.extend(uid(*value));
    }
    key
}

/// A table with corruptions.
struct Planted {
    cells: Cells,
    /// Cells that no repair may change.
    healthy: Cells,
    /// The type of the corruption of each corrupted row.
    corrupted: BTreeMap<Vec<u8>, RowFindingType>,
}

/// Of twice as many rows nearly half are corrupted.
fn planted(corruptions: usize, random: &mut StdRng) -> anyhow::Result<Planted> {
    let mut planted = Planted {
        cells: Cells::new(),
        healthy: Cells::new(),
        corrupted: BTreeMap::new(),
    };
    for number in 0..u32::try_from(2 * corruptions)? {
        // A thousand hours of each metric.
        let (metric, nth) = (1 + number / 1000, number % 1000);
        let hour = HOUR + nth * 3600;
        let tags = [(1, 1 + number % 7), (2, 1 + number % 3)];
        let mut key = row_key(metric, hour, &tags);
        let mut damage: &[(&str, &str)] = &[];
        let mut is_kept = true;
        // A server does not start on a table whose metrics begin and end with keys of other widths.
        if number % 2 == 0 && nth > 1 {
            let finding = if random.random_bool(0.2) {
                let finding = *KEYS.choose(random).context("a type")?;
                is_kept = false;
                key = match finding {
                    RowFindingType::BadKey => [&key[..13], &number.to_be_bytes()[..]].concat(),
                    RowFindingType::NoTags => row_key(metric, hour, &[]),
                    RowFindingType::BaseTime => row_key(metric, hour + 1, &tags),
                    RowFindingType::TagOrder => row_key(metric, hour, &[tags[1], tags[0]]),
                    _ => row_key(0x00ff_0000 + metric, hour, &tags),
                };
                finding
            } else {
                let (finding, cells) = *CELLS.choose(random).context("a corruption")?;
                damage = cells;
                finding
            };
            planted.corrupted.insert(key.clone(), finding);
        }
        for (qualifier, value) in healthy() {
            let cell = ((key.clone(), qualifier), (WRITTEN_MS, value));
            planted.cells.extend([cell.clone()]);
            if is_kept {
                planted.healthy.extend([cell]);
            }
        }
        for ((qualifier, value), newer) in damage.iter().zip(1..) {
            let address = (key.clone(), hex::decode(qualifier)?);
            let stored = (WRITTEN_MS + newer, hex::decode(value)?);
            planted.cells.insert(address, stored);
        }
    }
    Ok(planted)
}

async fn start(folder: &Path) -> anyhow::Result<Tsdb> {
    Tsdb::start_with(Options::default().data_dir(folder)).await
}

async fn assign(server: &Tsdb, kind: UidKind, prefix: &str, count: usize) -> anyhow::Result<()> {
    let names: Vec<UidName> = (0..count)
        .map(|number| UidName {
            kind: kind.into(),
            name: format!("{prefix}{number}"),
            tag_key: String::new(),
        })
        .collect();
    for names in names.chunks(1000) {
        let request = GetOrCreateUidsRequest {
            names: names.to_vec(),
            explicit: true,
        };
        server.uids().get_or_create_uids(request).await?;
    }
    Ok(())
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
    let (mut found, mut is_complete) = (BTreeMap::new(), false);
    while let Some(message) = messages.message().await? {
        match message.event.context("an event")? {
            Event::Findings(findings) => found.extend(findings.rows.into_iter().map(|row| {
                let types = row.findings.iter().map(|finding| finding.r#type());
                (row.row_key.to_vec(), types.collect())
            })),
            Event::Progress(_) => {}
            Event::Summary(_) => is_complete = true,
        }
    }
    ensure!(is_complete, "no summary");
    Ok(found)
}

/// A server with names for the series, ended; its folder.
async fn with_names(metrics: usize) -> anyhow::Result<TempDir> {
    let folder = TempDir::new()?;
    let mut server = start(folder.path()).await?;
    assign(&server, UidKind::Metric, "m", metrics).await?;
    assign(&server, UidKind::TagKey, "k", 2).await?;
    assign(&server, UidKind::TagValue, "v", 7).await?;
    server.terminate().await?;
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_and_repairs_all_and_changes_no_healthy_cell() -> anyhow::Result<()> {
    let corruptions = sizes::of("OXTSDB_FSCK_CORRUPTIONS", 10_000)?;
    let mut random = random::seeded("fsck")?;
    let planted = planted(corruptions, &mut random)?;
    let folder = with_names(corruptions / 500 + 1).await?;
    plant(folder.path(), &planted.cells).await?;
    ensure!(cells(folder.path()).await? == planted.cells);

    let mut server = start(folder.path()).await?;
    let watch = MemoryWatch::start(server.process().id())?;
    let found = findings(&server).await?;
    for (row, finding) in &planted.corrupted {
        let types = found.get(row);
        ensure!(
            types.is_some_and(|types| types.contains(finding)),
            "{finding:?} in {}: found {types:?}",
            hex::encode(row)
        );
    }
    for (row, types) in &found {
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
