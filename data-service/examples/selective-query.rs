//! Measures a query whose filter selects few of many series, with and without the series index, on an embedded
//! store in a temporary folder.
//!
//! `cargo run --release -p data-service --example selective-query`

use std::sync::Arc;
use std::time::{Duration, Instant};

use data_service::{DataService, DataSettings, assemble, store_part};
use oxtsdb_client::UidClient;
use oxtsdb_ingest::NewPoint;
use oxtsdb_query::RequestContext;
use oxtsdb_query::{Aggregator, Engine, QuerySpec, Quirks, SeriesFilter, Source, SubQuery, TagFilter};
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{RowStore, Writers};
use oxtsdb_schema::{DuplicatePolicy, Timestamp, Value};
use oxtsdb_server::Shutdown;
use oxtsdb_server::store::StoreKind;
use uid_service::UidSettings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SERIES: u32 = 20_000;
const HOURS: u32 = 24;
const POINTS_AN_HOUR: u32 = 6;
/// An exact hour.
const START: u32 = 1_356_998_400;
const RUNS: usize = 6;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let embedded = Arc::new(CellStore::open(CellConfig::new(folder.path().join("data")))?);
    let store = Arc::clone(&embedded) as Arc<dyn RowStore>;
    uid_service::store_part(&UidSettings::default())?
        .make_tables(&*store)
        .await?;
    store_part(&DataSettings::default(), 0)?
        .make_tables(&*store)
        .await?;
    let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
    let (uid_store, settings) = (Arc::clone(&store), UidSettings::default());
    let uids = uid_service::assemble(uid_store, Writers::Single, &settings, shutdown.clone()).await?;
    let client = UidClient::in_process(uids.routes());
    let service = assemble(
        (Arc::clone(&store), StoreKind::Embedded),
        None,
        client,
        DataSettings::default(),
        &MemoryAccount::unlimited(),
        shutdown,
    )
    .await?;
    let began = Instant::now();
    load(&service).await?;
    let points = SERIES * HOURS * POINTS_AN_HOUR;
    println!(
        "{SERIES} series, {points} points in {HOURS} h, loaded in {:.1?}",
        began.elapsed()
    );

    let with = service.engine.clone();
    let without = with.clone().with_series_index(None);
    for (what, filter) in [
        ("10 by a regular expression", "regexp(^host0123[0-9]$)"),
        ("1 by its name", "host01234"),
        ("1,000 by a glob", "host01*"),
        ("10,000 by a glob", "host0*"),
    ] {
        for (engine, how) in [(&without, "without index"), (&with, "with index")] {
            let (first, median, series) = measure(engine, filter).await?;
            println!("{what:28} {how:14} first {first:9.2?}  median {median:9.2?}  {series} series");
        }
    }
    Ok(())
}

async fn load(service: &DataService) -> anyhow::Result<()> {
    let hosts: Vec<String> = (0..SERIES).map(|host| format!("host{host:05}")).collect();
    for number in 0..HOURS * POINTS_AN_HOUR {
        let timestamp = Timestamp::from_seconds(START + number * 3600 / POINTS_AN_HOUR);
        for hosts in hosts.chunks(5000) {
            let tags: Vec<_> = hosts.iter().map(|host| [("host", host.as_str())]).collect();
            let points: Vec<_> = tags
                .iter()
                .map(|tags| NewPoint {
                    metric: "m",
                    tags,
                    timestamp,
                    value: Value::Int(i64::from(number)),
                })
                .collect();
            service.writer.write(&points, None).await?;
        }
    }
    Ok(())
}

/// The time of the first query, the median of the others, and the number of series.
async fn measure(engine: &Engine, filter: &str) -> anyhow::Result<(Duration, Duration, usize)> {
    let start_ms = i64::from(START) * 1000;
    let query = QuerySpec {
        start_ms,
        end_ms: start_ms + i64::from(HOURS) * 3_600_000 - 1_000_000,
        sub_queries: vec![SubQuery {
            source: Source::Metric("m".to_owned()),
            filter: SeriesFilter {
                tags: vec![TagFilter::of_tag("host", filter)?],
                explicit_tags: false,
            },
            aggregator: Aggregator::NONE,
            downsample: None,
            rate: None,
            histogram: None,
            rollup: oxtsdb_query::RollupRequest::default(),
        }],
        duplicates: DuplicatePolicy::KeepNewest,
        max_scanned_points: None,
        quirks: Quirks::NONE,
        skip_damaged_rows: false,
        with_surroundings: false,
        annotations: oxtsdb_query::AnnotationSelection::default(),
    };
    let (mut times, mut series) = (Vec::new(), 0);
    for _ in 0..RUNS {
        let began = Instant::now();
        series = engine
            .collect(query.clone(), RequestContext::default())
            .await?
            .groups
            .len();
        times.push(began.elapsed());
    }
    let first = times.remove(0);
    times.sort_unstable();
    Ok((first, times[times.len() / 2], series))
}
