//! Rows that OxTSDB compacts, beside OpenTSDB on one HBase.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::{CompactRowsRequest, CompactRowsResponse};
use oxtsdb_tests::comparison::{check_opentsdb, check_oxtsdb};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::random_points::{Expected, RandomPoints, Sent};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::stored::{Column, Stored};
use oxtsdb_tests::{Options, Tsdb, random, sizes, until, writers};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use tokio_stream::StreamExt as _;

const NO_COMPACTION: &str = "tsd.storage.enable_compaction=false";

/// The least age of cells that the service compacts.
const MIN_AGE: Duration = Duration::from_secs(5);

/// Points, some stored twice, in seconds and in milliseconds; without instants of several values.
fn points(random: &mut StdRng, count: usize) -> anyhow::Result<(RandomPoints, Vec<Sent>)> {
    let mut points = RandomPoints::new(random, "compact", count, i64::try_from(now()?.as_millis())?);
    points.points.shuffle(random);
    let plain = points.points.iter();
    let plain = plain.filter(|sent| points.plain.contains(&sent.sample.metric));
    let plain = plain.cloned().collect();
    Ok((points, plain))
}

fn now() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// Whether the hour of an instant is over for more than a minute.
fn is_over(timestamp_ms: i64) -> anyhow::Result<bool> {
    let base_seconds = timestamp_ms / 3_600_000 * 3600;
    Ok(base_seconds + 3600 + 60 < i64::try_from(now()?.as_secs())?)
}

async fn write_by_both(
    opentsdb: &OpenTsdb,
    oxtsdb: &Tsdb,
    random: &mut StdRng,
    points: &[Sent],
) -> anyhow::Result<()> {
    let (ours, theirs) = writers::halves(random, points.to_vec());
    let mut other = random::seeded("the other half")?;
    tokio::try_join!(
        writers::write_to_opentsdb(opentsdb, random, &theirs),
        writers::write_to_oxtsdb(oxtsdb, &mut other, &ours),
    )?;
    Ok(())
}

/// Compacts all rows; the sum of all messages.
async fn compact(oxtsdb: &Tsdb) -> anyhow::Result<CompactRowsResponse> {
    let request = CompactRowsRequest {
        min_age: Some(MIN_AGE.try_into()?),
        ..CompactRowsRequest::default()
    };
    let mut messages = oxtsdb.data_admin().compact_rows(request).await?.into_inner();
    let mut sum = CompactRowsResponse::default();
    while let Some(message) = messages.next().await {
        let message = message?;
        sum.rows += message.rows;
        sum.compacted += message.compacted;
        sum.recent += message.recent;
        sum.damaged += message.damaged;
        sum.conflicting += message.conflicting;
        sum.data_timestamps += message.data_timestamps;
        sum.invalid_keys += message.invalid_keys;
        sum.unconfirmed += message.unconfirmed;
        sum.findings.extend(message.findings);
        sum.done = message.done;
    }
    ensure!(sum.done, "the stream ended early");
    Ok(sum)
}

/// Rows of past hours with several cells, by the place of the base time in their keys; but for first points that a
/// compacted cell must not begin with.
fn not_compacted(cells: &BTreeMap<Column, Vec<u8>>, base_time_at: usize) -> anyhow::Result<usize> {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (row, _, qualifier) in cells.keys() {
        let base_time = row
            .get(base_time_at..base_time_at + 4)
            .context("a row key has a base time")?;
        if qualifier.len() == 2 && qualifier.first() == Some(&5) {
            continue;
        }
        if is_over(i64::from(u32::from_be_bytes(base_time.try_into()?)) * 1000)? {
            *counts.entry(row).or_default() += 1;
        }
    }
    Ok(counts.into_values().filter(|cells| *cells > 1).count())
}

fn number_of_points(expected: &Expected) -> u64 {
    expected.values().map(|points| points.len() as u64).sum()
}

/// Both write single cells; OxTSDB compacts them; the results and OpenTSDB's fsck stay the same.
async fn results_stay(
    test: &str,
    count: usize,
    settings: &[&str],
    flags: &[&str],
    base_time_at: usize,
) -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded(test)?;
    let (points, mut plain) = points(&mut random, count)?;
    let mut expected = points.expected();
    expected.retain(|(metric, _), _| points.plain.contains(metric));
    // The rows of the current hour stay as they are.
    let over_ms = i64::try_from(now()?.as_millis())? / 3_600_000 * 3_600_000 - 3_600_000;
    plain.retain(|sent| sent.sample.timestamp_ms < over_ms);
    for points in expected.values_mut() {
        points.retain(|timestamp_ms, _| *timestamp_ms < over_ms);
    }
    expected.retain(|_, points| !points.is_empty());
    let tables = rig.create_tables(test).await?;
    let settings = [settings, &[NO_COMPACTION]].concat();
    let opentsdb = rig.opentsdb(&tables, &settings).await?;
    let flags = flags.iter().map(|flag| (*flag).to_owned());
    let options = Options::default().flags(rig.flags(&tables)).flags(flags);
    let oxtsdb = Tsdb::start_with(options.flag("--write-form", "cells")).await?;
    write_by_both(&opentsdb, &oxtsdb, &mut random, &plain).await?;
    until("OpenTSDB reads what both wrote", || {
        check_opentsdb(&opentsdb, &expected, &points.plain)
    })
    .await?;
    let mut before = Vec::new();
    for metric in &points.plain {
        before.push(opentsdb.series_of(metric).await?);
    }
    tokio::time::sleep(MIN_AGE + Duration::from_secs(2)).await;
    let done = compact(&oxtsdb).await?;
    println!("{test}: {} of {} rows compacted", done.compacted, done.rows);
    ensure!(done.compacted > 0 && done.findings.is_empty(), "{done:?}");
    ensure!(done.recent == 0 && done.data_timestamps == 0, "{done:?}");

    for (metric, before) in points.plain.iter().zip(before) {
        ensure!(
            opentsdb.series_of(metric).await? == before,
            "OpenTSDB's result of `{metric}`"
        );
    }
    check_oxtsdb(&oxtsdb, &expected, &points.plain).await?;
    let stored = Stored::connect(&rig).await?;
    let left = not_compacted(&stored.cells(&tables.data).await?, base_time_at)?;
    ensure!(left == 0, "{left} rows have several cells");
    // Points that were stored in seconds and in milliseconds, which it complains about, are one now.
    rig.data_fsck(&opentsdb)
        .await?
        .check(number_of_points(&expected))?;
    let again = compact(&oxtsdb).await?;
    ensure!(again.compacted == 0, "{again:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn results_stay_when_rows_are_compacted() -> anyhow::Result<()> {
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 4;
    results_stay("compact_rows", count, &[], &[], 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_stay_when_salted_rows_are_compacted() -> anyhow::Result<()> {
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 10;
    let settings = [
        "tsd.storage.salt.width=1",
        "tsd.storage.salt.buckets=7",
        "tsd.storage.uid.width.metric=4",
        "tsd.storage.uid.width.tagv=5",
    ];
    let flags = [
        "--salt-width=1",
        "--salt-buckets=7",
        "--uid-width-metric=4",
        "--uid-width-tagv=5",
    ];
    results_stay("compact_salted", count, &settings, &flags, 5).await
}

/// OpenTSDB compacts the rows that it reads, OxTSDB twice at once all rows of the table, and both write late points to
/// the same rows.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_beside_opentsdbs_compaction() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("compact_beside")?;
    let count = sizes::from_environment("OXTSDB_INTEROP_POINTS", 100_000)? / 4;
    let (points, plain) = points(&mut random, count)?;
    let tables = rig.create_tables("compact_beside").await?;
    let opentsdb = rig
        .opentsdb(
            &tables,
            &[
                "tsd.storage.compaction.flush_interval=1",
                "tsd.storage.compaction.min_flush_threshold=1",
            ],
        )
        .await?;
    let start = || {
        Tsdb::start_with(
            Options::default()
                .flags(rig.flags(&tables))
                .flag("--write-form", "cells"),
        )
    };
    let (oxtsdb, other) = tokio::try_join!(start(), start())?;
    let parts: Vec<&[Sent]> = plain.chunks(plain.len().div_ceil(4)).collect();
    for part in &parts {
        let writes = write_by_both(&opentsdb, &oxtsdb, &mut random, part);
        let reads = async {
            for metric in &points.plain {
                // Before the first points are stored, OpenTSDB does not know the metric.
                drop(opentsdb.series_of(metric).await);
            }
            Ok(())
        };
        let compactions = async {
            for _ in 0..3 {
                let (one, two) = tokio::try_join!(compact(&oxtsdb), compact(&other))?;
                println!("{} and {} rows compacted", one.compacted, two.compacted);
                ensure!(
                    one.damaged + one.conflicting + two.damaged + two.conflicting == 0,
                    "{one:?} {two:?}"
                );
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            Ok(())
        };
        tokio::try_join!(writes, reads, compactions)?;
    }
    let mut expected = points.expected();
    expected.retain(|(metric, _), _| points.plain.contains(metric));
    until("OpenTSDB reads all points", || {
        check_opentsdb(&opentsdb, &expected, &points.plain)
    })
    .await?;
    check_oxtsdb(&oxtsdb, &expected, &points.plain).await?;
    tokio::time::sleep(MIN_AGE + Duration::from_secs(2)).await;
    compact(&oxtsdb).await?;
    check_opentsdb(&opentsdb, &expected, &points.plain).await?;
    check_oxtsdb(&oxtsdb, &expected, &points.plain).await?;
    let fsck = rig.data_fsck(&opentsdb).await?;
    ensure!(fsck.valid_points == number_of_points(&expected), "{fsck:?}");
    Ok(())
}
