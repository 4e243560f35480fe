//! Formats of OpenTSDB's tables beside each other: salt, wide UIDs, appended and compacted points, milliseconds. In each of
//! them both write half of the same data, OpenTSDB's `fsck` finds no error in it, and random queries return the same.

use oxtsdb_tests::differential::comparison::{Kind, check};
use oxtsdb_tests::differential::request::Request;
use oxtsdb_tests::differential::servers::Servers;
use oxtsdb_tests::differential::{Run, known, response};
use oxtsdb_tests::format::{APPENDS, Format, SALTED, SALTED_WIDE, SALTED_WIDE_APPENDS, WIDE};
use oxtsdb_tests::rig::Rig;

/// OXTSDB_INTEROP_FORMAT_QUERIES: queries of a format.
async fn results_equal_opentsdbs(format: &Format) -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let run = Run::from_environment("OXTSDB_INTEROP_FORMAT_QUERIES", 300)?;
    println!("{}: OXTSDB_DIFFERENTIAL_SEED={}", format.name, run.seed);
    let servers = Servers::start(&rig, &run, format.name, format).await?;
    let requests = Kind {
        name: format.name,
        request: &|random| Request::new(random, &servers.tsuids),
        difference: |_, theirs, ours| response::difference(theirs, ours),
        known: &known::KNOWN,
    };
    check(&requests.compare(&servers, &run).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_equal_with_20_buckets_of_salt() -> anyhow::Result<()> {
    results_equal_opentsdbs(&SALTED).await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_equal_with_uids_of_4_bytes() -> anyhow::Result<()> {
    results_equal_opentsdbs(&WIDE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_equal_with_salt_and_uids_of_4_bytes() -> anyhow::Result<()> {
    results_equal_opentsdbs(&SALTED_WIDE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_equal_with_appended_points() -> anyhow::Result<()> {
    results_equal_opentsdbs(&APPENDS).await
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_equal_with_salt_uids_of_4_bytes_and_appended_points() -> anyhow::Result<()> {
    results_equal_opentsdbs(&SALTED_WIDE_APPENDS).await
}
