//! Look-ups over many series, and annotations of the largest size.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::refusal;
use tokio::time::timeout;

use crate::support::{BESIDE_QUERIES, MOST_BYTES, RESPONSE_TIMEOUT, Target, is_full};

/// Bytes of a body: a little less than the limit of 16 MiB.
const BYTES: usize = (16 << 20) - 1024;
/// Annotations of a request that is accepted.
const ANNOTATIONS: usize = 1000;
/// The first start of an annotation.
const START: u64 = 1_500_000_000;

/// Sends the same request `count` times at once; returns the count of each status. Each gets a whole response or a
/// typed rejection.
async fn at_once(
    target: &Target,
    count: usize,
    path: &str,
    body: Option<String>,
) -> anyhow::Result<BTreeMap<u16, usize>> {
    let begun = Instant::now();
    let body: Option<Arc<str>> = body.map(Into::into);
    let exchanges = (0..count).map(|_| {
        let body = body.clone();
        async move {
            let mut connection = RawHttp::connect(target.tsdb.http_address()).await?;
            match body {
                Some(body) => connection.post(path, body.as_bytes()).await,
                None => connection.get(path).await,
            }
        }
    });
    let responses = timeout(RESPONSE_TIMEOUT, try_join_all(exchanges))
        .await
        .with_context(|| format!("no response to {path} within {RESPONSE_TIMEOUT:?}"))??;
    let mut statuses = BTreeMap::new();
    for response in &responses {
        check(response).with_context(|| path.to_owned())?;
        *statuses.entry(response.status).or_default() += 1;
    }
    println!(
        "  {count} × {path}: {statuses:?} in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    target
        .memory
        .check_below(MOST_BYTES)
        .with_context(|| path.to_owned())?;
    Ok(statuses)
}

fn check(response: &RawResponse) -> anyhow::Result<()> {
    match response.status {
        200 => ensure!(
            matches!(response.body.last(), Some(b'}' | b']')),
            "a broken response: {response:?}"
        ),
        204 | 304 => {}
        // A document that is wrong: OpenTSDB's words have no figure.
        400 => ensure!(response.json()?["error"]["code"] == 400, "{response:?}"),
        _ => refusal::check_response(response)?,
    }
    Ok(())
}

/// `OXTSDB_LIMITS_FULL=1` does it over a million series.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_over_many_series_stay_within_the_memory_limit() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let load = Load::new("many.series", if is_full() { 1_000_000 } else { 10_000 }, 1);
    load.write(&target.tsdb).await?;
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    for path in [
        "/api/search/lookup?m=*&limit=0",
        "/api/search/lookup?m=%7Bhost=*%7D&limit=2000000",
        "/api/search/lookup?m=%7B*=host00001%7D&limit=0",
        "/api/search/lookup?m=many.series&limit=1000",
    ] {
        at_once(&target, if is_full() { 16 } else { 8 }, path, None).await?;
    }
    let rows = r#"{"tags":[{"key":"host","value":"*"}],"useMeta":false,"limit":0}"#;
    at_once(&target, 8, "/api/search/lookup", Some(rows.to_owned())).await?;
    at_once(&target, 16, "/api/suggest?type=tagv&max=100000", None).await?;
    target.check_with(bystander).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn annotations_in_bulk_stay_within_the_memory_limit() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let many = |element: &dyn Fn(u64) -> String| {
        let mut body = "[".to_owned();
        for number in 0.. {
            let element = element(number);
            if body.len() + element.len() + 2 > BYTES {
                break;
            }
            let separator = if number == 0 { "" } else { "," };
            let _ = write!(body, "{separator}{element}");
        }
        body + "]"
    };
    let large = "x".repeat(BYTES - 100);
    let bodies = [
        (
            "large notes",
            format!(r#"[{{"startTime":{START},"notes":"{large}"}}]"#),
        ),
        (
            "large custom value",
            format!(r#"[{{"startTime":{START},"custom":{{"k":"{large}"}}}}]"#),
        ),
        ("without start", many(&|_| "{}".to_owned())),
        ("nulls", many(&|_| "null".to_owned())),
        ("brackets", "[".repeat(BYTES)),
        (
            "of one instant",
            many(&|number| format!(r#"{{"startTime":{START},"notes":"{number}"}}"#)),
        ),
        (
            "of an instant each",
            many(&|number| format!(r#"{{"startTime":{},"notes":"n"}}"#, START + number)),
        ),
    ];
    for (what, body) in bodies {
        println!("  {what}: {} MiB", body.len() >> 20);
        at_once(&target, 1, "/api/annotation/bulk", Some(body.clone())).await?;
        at_once(&target, 4, "/api/annotation/bulk", Some(body)).await?;
    }
    let custom: String = (0..1_000_000)
        .map(|number| format!(r#""k{number}":"","#))
        .collect();
    let custom = format!(r#"{{"startTime":{START},"custom":{{{custom}"k":""}}}}"#);
    at_once(&target, 4, "/api/annotation", Some(custom)).await?;
    // 80 MB are stored, and read by all.
    let notes = "x".repeat(BYTES / ANNOTATIONS - 80);
    for request in 0..5 {
        let first = START + request * ANNOTATIONS as u64 * 3600;
        let annotations: Vec<String> = (0..ANNOTATIONS as u64)
            .map(|number| format!(r#"{{"startTime":{},"notes":"{notes}"}}"#, first + number * 3600))
            .collect();
        let body = format!("[{}]", annotations.join(","));
        let statuses = at_once(&target, 1, "/api/annotation/bulk", Some(body)).await?;
        ensure!(statuses.contains_key(&200), "{statuses:?}");
    }
    let all = format!("/api/annotations?start_time=1&end_time={}", START * 2);
    at_once(&target, 1, &all, None).await?;
    at_once(&target, 16, &all, None).await?;
    target.check_with(bystander).await
}
