//! OpenTSDB and OxTSDB on the same tables: each reads the points of both, and both write the same cells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::data::v1::{CompactRowsRequest, stored_point};
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_schema::row::decode_row;
use oxtsdb_schema::{CellRef, DuplicatePolicy, Points};
use oxtsdb_tests::comparison::{check_opentsdb, check_oxtsdb};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::random_points::{Expected, RandomPoints, Sent};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::sample::Number;
use oxtsdb_tests::stored::{Column, Stored};
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::{Options, Tsdb, random, read_back, sizes, until, writers};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

/// OpenTSDB only writes what a request contains.
const NO_COMPACTION: &str = "tsd.storage.enable_compaction=false";
/// Of several values for one instant OpenTSDB takes the last one instead of failing.
const FIX_DUPLICATES: &str = "tsd.storage.fix_duplicates=true";

fn random_points(random: &mut StdRng, count: usize) -> anyhow::Result<RandomPoints> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let mut points = RandomPoints::new(random, "interop", count, i64::try_from(now.as_millis())?);
    points.points.shuffle(random);
    Ok(points)
}

/// Writes half of the points through each, concurrently.
async fn write_by_both(
    opentsdb: &OpenTsdb,
    oxtsdb: &Tsdb,
    random: &mut StdRng,
    points: Vec<Sent>,
) -> anyhow::Result<()> {
    let (ours, theirs) = writers::halves(random, points);
    let mut other = random::seeded("the other half")?;
    tokio::try_join!(
        writers::write_to_opentsdb(opentsdb, random, &theirs),
        writers::write_to_oxtsdb(oxtsdb, &mut other, &ours),
    )?;
    Ok(())
}

/// OxTSDB's scan returns the type of every point.
async fn check_types(oxtsdb: &Tsdb, expected: &Expected, metrics: &[String]) -> anyhow::Result<()> {
    for metric in metrics {
        let of_metric = expected.iter().filter(|((of, _), _)| of == metric);
        let sent: BTreeSet<(i64, String)> = of_metric
            .flat_map(|(_, points)| points)
            .map(|(instant, value)| (*instant, value.to_string()))
            .collect();
        let rows = read_back::rows_of(&mut oxtsdb.data(), metric).await?;
        let cells = rows.into_iter().flat_map(|row| row.cells);
        let stored = cells
            .flat_map(|cell| cell.points)
            .map(|point| {
                let value = match point.value.context("a point without a value")? {
                    stored_point::Value::IntValue(value) => Number::Int(value),
                    stored_point::Value::DoubleValue(value) => Number::Double(value),
                };
                Ok((point.timestamp_ms, value.to_string()))
            })
            .collect::<anyhow::Result<BTreeSet<_>>>()?;
        let mut differences = sent.symmetric_difference(&stored);
        if let Some(point) = differences.next() {
            bail!("`{metric}`: {point:?} was sent or is stored, not both");
        }
    }
    Ok(())
}

/// Both write and overwrite points, then both read them: as they were written, and after
/// OpenTSDB's compaction.
async fn each_reads_what_both_wrote(
    test: &str,
    count: usize,
    settings: &[&str],
    flags: &[&str],
) -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded(test)?;
    let points = random_points(&mut random, count)?;
    let tables = rig.create_tables(test).await?;
    let opentsdb = rig
        .opentsdb(&tables, &[settings, &[NO_COMPACTION]].concat())
        .await?;
    let flags = flags.iter().map(|flag| (*flag).to_owned());
    let oxtsdb = Tsdb::start_with(Options::default().flags(rig.flags(&tables)).flags(flags)).await?;
    let expected = points.expected();
    let all: Vec<String> = points.plain.iter().chain(&points.overwritten).cloned().collect();

    write_by_both(&opentsdb, &oxtsdb, &mut random, points.points.clone()).await?;
    // OpenTSDB stores points from telnet after up to a second.
    until("OpenTSDB reads what both wrote", || {
        check_opentsdb(&opentsdb, &expected, &all)
    })
    .await?;
    check_oxtsdb(&oxtsdb, &expected, &all).await?;
    check_types(&oxtsdb, &expected, &all).await?;

    let at_last = points.expected_at_last();
    write_by_both(&opentsdb, &oxtsdb, &mut random, points.overwrites.clone()).await?;
    let compacting = rig
        .opentsdb(&tables, &[settings, &[FIX_DUPLICATES]].concat())
        .await?;
    until("OxTSDB reads what both overwrote", || {
        check_oxtsdb(&oxtsdb, &at_last, &all)
    })
    .await?;
    // These queries make OpenTSDB compact the rows; the second time it reads some compacted ones.
    for _ in 0..2 {
        check_opentsdb(&compacting, &at_last, &all).await?;
        check_oxtsdb(&oxtsdb, &at_last, &all).await?;
        check_types(&oxtsdb, &at_last, &points.plain).await?;
    }
    // Without overwrites OpenTSDB reads them with default settings.
    check_opentsdb(&opentsdb, &at_last, &points.plain).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reads_what_both_wrote_with_default_settings() -> anyhow::Result<()> {
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)?;
    each_reads_what_both_wrote("both", count, &[], &[]).await
}

/// Salt, other widths of UIDs, and a cell to which points are appended.
#[tokio::test(flavor = "multi_thread")]
async fn each_reads_what_both_wrote_with_other_layouts() -> anyhow::Result<()> {
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 10;
    let settings = [
        "tsd.storage.salt.width=1",
        "tsd.storage.salt.buckets=7",
        "tsd.storage.uid.width.metric=4",
        "tsd.storage.uid.width.tagk=2",
        "tsd.storage.uid.width.tagv=5",
        "tsd.storage.enable_appends=true",
    ];
    let flags = [
        "--salt-width=1",
        "--salt-buckets=7",
        "--uid-width-metric=4",
        "--uid-width-tagk=2",
        "--uid-width-tagv=5",
        "--write-form=appends",
    ];
    each_reads_what_both_wrote("layouts", count, &settings, &flags).await
}

/// One of the two servers, on tables of its own, with the names assigned in the same order.
struct Alone {
    opentsdb: OpenTsdb,
    opentsdb_tables: Tables,
    oxtsdb: Tsdb,
    oxtsdb_tables: Tables,
}

impl Alone {
    async fn start(rig: &Rig, settings: &[&str], form: &str, points: &[Sent]) -> anyhow::Result<Self> {
        let opentsdb_tables = rig.create_tables("opentsdb-alone").await?;
        let oxtsdb_tables = rig.create_tables("oxtsdb-alone").await?;
        let opentsdb = rig.opentsdb(&opentsdb_tables, settings).await?;
        let options = Options::default()
            .flags(rig.flags(&oxtsdb_tables))
            .flag("--write-form", form);
        let oxtsdb = Tsdb::start_with(options).await?;
        let alone = Self {
            opentsdb,
            opentsdb_tables,
            oxtsdb,
            oxtsdb_tables,
        };
        alone.assign(points).await?;
        Ok(alone)
    }

    /// Assigns every name once, in the order of the points.
    async fn assign(&self, points: &[Sent]) -> anyhow::Result<()> {
        let mut names: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
        let mut add = |kind: UidKind, name| {
            let names = names.entry(kind.into()).or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for sent in points {
            add(UidKind::Metric, sent.sample.metric.as_str());
            for (key, value) in &sent.sample.tags {
                add(UidKind::TagKey, key);
                add(UidKind::TagValue, value);
            }
        }
        for (kind, names) in names {
            self.opentsdb.assign(UidKind::try_from(kind)?, &names).await?;
            let request = GetOrCreateUidsRequest {
                names: names
                    .iter()
                    .map(|name| UidName {
                        kind,
                        name: (*name).to_owned(),
                        tag_key: String::new(),
                    })
                    .collect(),
                explicit: true,
                ..Default::default()
            };
            let results = self.oxtsdb.uids().get_or_create_uids(request).await?;
            let created = results.into_inner().results.iter().all(|result| result.created);
            ensure!(created, "a name had a UID already");
        }
        Ok(())
    }

    /// Writes the points, through the same protocol for each server.
    async fn write(&self, points: &[Sent]) -> anyhow::Result<()> {
        let (mut telnet, mut http) = (vec![], vec![]);
        for (number, sent) in points.iter().enumerate() {
            if number % 2 == 0 && sent.fits_telnet() {
                telnet.push(sent);
            } else {
                http.push(sent);
            }
        }
        for server in [self.opentsdb.http(), self.oxtsdb.http()] {
            for batch in http.chunks(500) {
                writers::put(server.clone(), batch).await?;
            }
        }
        for server in [self.opentsdb.telnet().await?, self.oxtsdb.telnet().await?] {
            writers::put_lines(server, &telnet).await?;
        }
        Ok(())
    }
}

/// Fails with the first cell that differs.
fn ensure_same<V: PartialEq + std::fmt::Debug>(
    what: &str,
    opentsdb: &BTreeMap<Column, V>,
    oxtsdb: &BTreeMap<Column, V>,
) -> anyhow::Result<()> {
    for (column, theirs) in opentsdb {
        let ours = oxtsdb.get(column);
        ensure!(
            ours == Some(theirs),
            "{what}, {column:02x?}: OpenTSDB has {theirs:02x?}, OxTSDB {ours:02x?}"
        );
    }
    match oxtsdb.iter().find(|(column, _)| !opentsdb.contains_key(column)) {
        None => Ok(()),
        Some((column, ours)) => {
            bail!("{what}, {column:02x?}: OpenTSDB has nothing, OxTSDB {ours:02x?}")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_cells_are_identical_byte_for_byte() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("single_cells")?;
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 5;
    let points = random_points(&mut random, count)?;
    let alone = Alone::start(&rig, &[NO_COMPACTION], "cells", &points.points).await?;
    alone.write(&points.points).await?;
    let stored = Stored::connect(&rig).await?;
    until("the tables are the same", || async {
        let theirs = stored.cells(&alone.opentsdb_tables.data).await?;
        let ours = stored.cells(&alone.oxtsdb_tables.data).await?;
        ensure!(ours.len() > count / 2, "{} cells", ours.len());
        ensure_same("tsdb", &theirs, &ours)
    })
    .await?;
    let theirs = stored.cells(&alone.opentsdb_tables.uid).await?;
    let ours = stored.cells(&alone.oxtsdb_tables.uid).await?;
    ensure_same("tsdb-uid", &theirs, &ours)
}

/// Points of a row by their place in the hour.
type Rows = BTreeMap<Vec<u8>, Vec<(u32, oxtsdb_schema::Value)>>;

fn decoded(cells: &BTreeMap<Column, Vec<u8>>) -> anyhow::Result<Rows> {
    let mut rows: BTreeMap<Vec<u8>, Vec<CellRef<'_>>> = BTreeMap::new();
    for ((row, _, qualifier), value) in cells {
        rows.entry(row.clone()).or_default().push(CellRef {
            qualifier,
            timestamp_ms: 0,
            value,
        });
    }
    let decode = |(row, cells): (Vec<u8>, Vec<CellRef<'_>>)| {
        let mut points = Points::default();
        decode_row(cells.iter().copied(), DuplicatePolicy::Error, &mut points)
            .with_context(|| format!("{row:02x?}"))?;
        Ok((row, points.iter().collect()))
    };
    rows.into_iter().map(decode).collect()
}

/// Counts rows with more than one cell, of hours that ended at least an hour ago: OpenTSDB does not compact later ones.
fn not_compacted(cells: &BTreeMap<Column, Vec<u8>>) -> anyhow::Result<usize> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (row, _, _) in cells.keys() {
        let base_time = row.get(3..7).context("a row key has a base time")?;
        if u64::from(u32::from_be_bytes(base_time.try_into()?)) + 2 * 3600 < now {
            *counts.entry(row).or_default() += 1;
        }
    }
    Ok(counts.into_values().filter(|cells| *cells > 1).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_hold_the_same_points_once_they_are_compacted() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("compacted")?;
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 5;
    let points = random_points(&mut random, count)?;
    let alone = Alone::start(&rig, &[], "auto", &points.points).await?;
    alone.write(&points.points).await?;
    let (expected, all) = (points.expected(), [points.plain, points.overwritten].concat());
    let stored = Stored::connect(&rig).await?;
    until("OpenTSDB has compacted its rows", || async {
        // It compacts rows when it reads them.
        check_opentsdb(&alone.opentsdb, &expected, &all).await?;
        let rows = not_compacted(&stored.cells(&alone.opentsdb_tables.data).await?)?;
        ensure!(rows == 0, "{rows} rows have several cells");
        Ok(())
    })
    .await?;
    let theirs = decoded(&stored.cells(&alone.opentsdb_tables.data).await?)?;
    let ours = decoded(&stored.cells(&alone.oxtsdb_tables.data).await?)?;
    for (row, points) in &theirs {
        ensure!(ours.get(row) == Some(points), "row {row:02x?}");
    }
    ensure!(
        ours.len() == theirs.len(),
        "{} rows and {}",
        ours.len(),
        theirs.len()
    );
    check_oxtsdb(&alone.oxtsdb, &expected, &all).await
}

/// The cells of rows of past hours.
fn keep_ended_hours(cells: BTreeMap<Column, Vec<u8>>) -> anyhow::Result<BTreeMap<Column, Vec<u8>>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut ended = BTreeMap::new();
    for (column, value) in cells {
        let base_time = column.0.get(3..7).context("a row key has a base time")?;
        if u64::from(u32::from_be_bytes(base_time.try_into()?)) + 2 * 3600 < now {
            ended.insert(column, value);
        }
    }
    Ok(ended)
}

/// Leaves out points that are stored in seconds and in milliseconds: the newer cell wins a compaction, and that is another one
/// in each table if their writes are as old to the millisecond.
fn keep_one_form(points: &mut Vec<Sent>) {
    let mut forms = BTreeMap::new();
    points.retain(|sent| {
        let sample = &sent.sample;
        let instant = (sample.metric.clone(), sample.tags.clone(), sample.timestamp_ms);
        *forms.entry(instant).or_insert(sent.is_ms) == sent.is_ms
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_cells_are_identical_byte_for_byte() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("compacted_cells")?;
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 5;
    let mut points = random_points(&mut random, count)?;
    keep_one_form(&mut points.points);
    let alone = Alone::start(&rig, &[], "cells", &points.points).await?;
    alone.write(&points.points).await?;
    let (expected, all) = (points.expected(), [points.plain, points.overwritten].concat());
    let stored = Stored::connect(&rig).await?;
    until("OpenTSDB has compacted its rows", || async {
        check_opentsdb(&alone.opentsdb, &expected, &all).await?;
        let rows = not_compacted(&stored.cells(&alone.opentsdb_tables.data).await?)?;
        ensure!(rows == 0, "{rows} rows have several cells");
        Ok(())
    })
    .await?;
    let request = CompactRowsRequest {
        min_age: Some(std::time::Duration::from_secs(5).try_into()?),
        ..CompactRowsRequest::default()
    };
    until("OxTSDB has compacted its rows", || async {
        let mut admin = alone.oxtsdb.data_admin();
        let mut messages = admin.compact_rows(request.clone()).await?.into_inner();
        while messages.message().await?.is_some() {}
        let theirs = keep_ended_hours(stored.cells(&alone.opentsdb_tables.data).await?)?;
        let ours = keep_ended_hours(stored.cells(&alone.oxtsdb_tables.data).await?)?;
        ensure!(!ours.is_empty(), "no row has ended");
        ensure_same("tsdb", &theirs, &ours)
    })
    .await
}
