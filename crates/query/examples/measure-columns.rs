//! Measures queries of columns: medians from the head, then from parts.
//!
//! `cargo run --release -p oxtsdb-query --example measure-columns -- [HOSTS [STEPS [SECONDS]]]`: HOSTS (1000) of 5 data
//! centres have 10 metrics, STEPS (1000) points each, SECONDS (10) apart. The store is created in the working directory
//! and removed.
#![allow(clippy::unwrap_used, reason = "a program for measurements")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{Point, PointBatch, PointKind, PointStore, Resolution, ValueKind};
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    AnnotationSelection, Engine, Limits, NameDirectory, NameError, PointStorage, QueryResources, QuerySpec,
    Quirks, RequestContext,
};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, TableDef, TableName};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout, Uid, UidKind, UidWidth};
use oxtsdb_storage_file::disk::real::RealDisk;

/// An exact hour.
const START_MS: i64 = 1_699_999_200_000;
const ROUNDS: usize = 30;

/// The name of a UID ends with its number.
#[derive(Debug)]
struct Numbers;

#[async_trait]
impl NameDirectory for Numbers {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        _: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError> {
        let uid = |(_, name): &(UidKind, &str)| {
            let number = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            Uid::from_number(number.parse().ok()?, UidWidth::DEFAULT).ok()
        };
        Ok(names.iter().map(uid).collect())
    }

    async fn names(
        &self,
        _: UidKind,
        uids: &[Uid],
        _: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        let name = |uid: &Uid| Some(Arc::from(format!("v{}", uid.number())));
        Ok(uids.iter().map(name).collect())
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().unwrap());
    let hosts = arguments.next().unwrap_or(1000);
    let steps = arguments.next().unwrap_or(1000);
    let step_ms = i64::from(arguments.next().unwrap_or(10)) * 1000;
    let folder = tempfile::tempdir_in(".").unwrap();
    let config = PartsConfig {
        head_bytes: 512 << 20,
        ..PartsConfig::new(folder.path().join("points"), Arc::new(RealDisk))
    };
    let store = Arc::new(PartsStore::open(config).unwrap());
    fill(&store, hosts, steps, step_ms).await;
    let engine = engine(Arc::clone(&store) as Arc<dyn PointStore>).await;
    measure("head", &engine).await;
    store.flush().await.unwrap();
    measure("parts", &engine).await;
    store.close().await.unwrap();
}

async fn fill(store: &PartsStore, hosts: u32, steps: u32, step_ms: i64) {
    let uid = |number: u32| number.to_be_bytes()[1..].to_vec();
    let key = |host: u32, metric: u32| {
        let (host, dc) = (host + 1, 100_000 + host % 5 + 1);
        [uid(metric + 1), uid(1), uid(dc), uid(2), uid(host)].concat()
    };
    let keys: Vec<Vec<u8>> = (0..hosts)
        .flat_map(|host| (0..10).map(move |metric| (host, metric)))
        .map(|(host, metric)| key(host, metric))
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let numbers = store.numbers(&keys).unwrap();
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Double);
    let mut values = vec![5000_i64; numbers.len()];
    let mut random = 88_172_645_463_325_252_u64;
    let begin = Instant::now();
    for step in 0..steps {
        let mut batch = PointBatch::with_capacity(numbers.len());
        for (series, value) in numbers.iter().zip(&mut values) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *value += i64::try_from(random % 101).unwrap() - 50;
            let point = Point {
                time_ms: START_MS + i64::from(step) * step_ms,
                kind,
                bits: (f64::from(i32::try_from(*value).unwrap()) / 100.0).to_bits(),
            };
            batch.push(*series, point);
        }
        store.append(batch).await.unwrap();
    }
    println!("filled in {:.1?}", begin.elapsed());
}

async fn engine(columns: Arc<dyn PointStore>) -> Engine {
    let cells: Arc<dyn RowStore> = Arc::new(MemoryStore::default());
    let table: TableName = "tsdb".parse().unwrap();
    cells
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    Engine::new(
        Arc::clone(&cells),
        (table.clone(), table),
        RowKeyLayout::default(),
        Arc::new(Numbers),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    )
    .with_points(Some(PointStorage {
        columns,
        cells,
        rollups: Arc::default(),
    }))
}

async fn measure(place: &str, engine: &Engine) {
    for (name, text, range_ms) in [
        ("one series, 1 h", "sum:m1{k2=v1}", 3_599_000),
        ("sum of 1 m averages, 1 h", "sum:1m-avg:m1", 3_599_000),
        ("5 m maxima by dc, 1 h", "max:5m-max:m1{k1=*}", 3_599_000),
        ("a fifth of the series, 1 h", "sum:m1{k1=v100001,k2=*}", 3_599_000),
        ("one series, all", "sum:m1{k2=v1}", 100 * 86_400_000),
    ] {
        let query = QuerySpec {
            start_ms: START_MS,
            end_ms: START_MS + range_ms,
            sub_queries: vec![parse_metric_query(text, &jiff::tz::TimeZone::UTC).unwrap()],
            duplicates: DuplicatePolicy::Error,
            max_scanned_points: None,
            quirks: Quirks::OPENTSDB,
            skip_damaged_rows: false,
            with_surroundings: false,
            annotations: AnnotationSelection {
                of_series: true,
                global: false,
            },
        };
        let mut times: Vec<Duration> = Vec::with_capacity(ROUNDS);
        let mut read = (0, 0);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let result = engine.collect(query.clone(), RequestContext::default());
            let result = result.await.unwrap();
            times.push(begin.elapsed());
            read = (result.statistics.points, result.statistics.points_sent);
        }
        times.sort_unstable();
        println!(
            "{place:6} {name:28} {:>9.2?} (least {:.2?}), {} points read, {} returned",
            times[ROUNDS / 2],
            times[0],
            read.0,
            read.1
        );
    }
}
