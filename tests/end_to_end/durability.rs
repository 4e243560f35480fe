//! An acknowledged point survives `kill -9`, through every front end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_tests::http::Http;
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, random, read_back, sizes, until};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::Value;
use tokio::task::JoinSet;
use tonic::transport::Channel;

const START_S: i64 = 1_500_000_000;
const BATCH: i64 = 50;
const METRIC: &str = "durable.points";

/// Kills at least, unless `OXTSDB_KILLS` says otherwise: as many more as it takes until parts were merged.
const KILLS: usize = 6;

/// The acknowledged points of a writer: its series has the points 0 to `acknowledged` - 1.
#[derive(Debug)]
struct Acknowledged {
    metric: String,
    series: String,
    points: AtomicU64,
}

impl Acknowledged {
    fn new(series: String) -> Arc<Self> {
        Self::with_metric(METRIC, series)
    }

    fn with_metric(metric: &str, series: String) -> Arc<Self> {
        Arc::new(Self {
            metric: metric.to_owned(),
            series,
            points: AtomicU64::new(0),
        })
    }

    fn add(&self, points: u64) {
        self.points.fetch_add(points, Ordering::SeqCst);
    }

    /// The next points in order.
    fn batch(&self, number: i64) -> Vec<Sample> {
        let first = number * BATCH;
        (first..first + BATCH).map(|value| self.sample(value)).collect()
    }

    fn sample(&self, value: i64) -> Sample {
        Sample::int(
            &self.metric,
            &[("series", &self.series)],
            (START_S + value) * 1000,
            value,
        )
    }
}

/// Writes until the server exits.
async fn write(mut client: DataServiceClient<Channel>, ledger: Arc<Acknowledged>) {
    for number in 0.. {
        match client.write(write_request(&ledger.batch(number))).await {
            Ok(response) => ledger.add(response.into_inner().written),
            Err(_killed) => return,
        }
    }
}

/// As [`write`], with several frames in flight.
async fn write_stream(mut client: DataServiceClient<Channel>, ledger: Arc<Acknowledged>) {
    const IN_FLIGHT: u64 = 8;
    let Ok(mut stream) = WriteStream::open(&mut client).await else {
        return;
    };
    let mut acknowledged = 0;
    for number in 0.. {
        let Ok(sent) = stream.send(&ledger.batch(number)).await else {
            return;
        };
        while sent - acknowledged >= IN_FLIGHT {
            let Ok(ack) = stream.ack().await else { return };
            ledger.add(ack.written);
            acknowledged = ack.sequence;
        }
    }
}

/// As [`write`], through /api/put.
async fn put(http: Http, ledger: Arc<Acknowledged>) {
    for number in 0.. {
        let batch: Vec<Value> = ledger.batch(number).iter().map(Sample::to_json).collect();
        let count = batch.len() as u64;
        match http.post("/api/put", &Value::from(batch)).await {
            Ok(response) if response.status == 204 => ledger.add(count),
            Ok(_) | Err(_) => return,
        }
    }
}

/// The metric that a round writes.
fn metric_of(round: usize) -> String {
    format!("{METRIC}.{round}")
}

/// Starts two writers for each front end.
fn start_writers(tsdb: &Tsdb, round: usize) -> (JoinSet<()>, Vec<Arc<Acknowledged>>) {
    let mut writers = JoinSet::new();
    let mut ledgers = Vec::new();
    for writer in 0..2 {
        let mut next = |front_end: &str| {
            let metric = metric_of(round);
            let acknowledged = Acknowledged::with_metric(&metric, format!("{front_end}-{writer}"));
            ledgers.push(acknowledged.clone());
            acknowledged
        };
        writers.spawn(write(tsdb.data(), next("write")));
        writers.spawn(write_stream(tsdb.data(), next("stream")));
        writers.spawn(put(tsdb.http(), next("http")));
    }
    (writers, ledgers)
}

/// Waits until each writer has acknowledged points, a random count, so that the kill comes at
/// other moments each time.
async fn some_acknowledged(ledgers: &[Arc<Acknowledged>], random: &mut StdRng) -> anyhow::Result<()> {
    let enough = random.random_range(100..1500);
    until("every writer has points acknowledged", || async {
        for acknowledged in ledgers {
            let points = acknowledged.points.load(Ordering::SeqCst);
            ensure!(points >= enough, "{}: {points} of {enough}", acknowledged.series);
        }
        Ok(())
    })
    .await
}

/// Checks that every acknowledged point is stored, and that all other stored points were sent.
fn check(
    series: &BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>>,
    ledger: &Acknowledged,
) -> anyhow::Result<u64> {
    let tags = BTreeMap::from([("series".to_owned(), ledger.series.clone())]);
    let points = series.get(&tags).with_context(|| ledger.series.clone())?;
    for (timestamp_ms, value) in points {
        let expected = Number::Int(timestamp_ms / 1000 - START_S);
        ensure!(
            *value == expected,
            "{}: {value:?} at {timestamp_ms}",
            ledger.series
        );
    }
    let there: std::collections::HashSet<i64> = points.iter().map(|(instant, _)| *instant).collect();
    let acknowledged = ledger.points.load(Ordering::SeqCst);
    for value in 0..i64::try_from(acknowledged)? {
        let sample = ledger.sample(value);
        ensure!(
            there.contains(&sample.timestamp_ms),
            "{}: point {value} of {acknowledged} acknowledged ones is lost",
            ledger.series
        );
    }
    Ok(acknowledged)
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_points_survive_kill_9() -> anyhow::Result<()> {
    let kills = sizes::from_environment("OXTSDB_KILLS", KILLS)?;
    let mut random = random::seeded("durability")?;
    // Kills also hit flushes and merges: points stay in the journal and in memory for a second at most.
    let options = Options::default()
        .flag("--flush-after-seconds", "1")
        .flag("--points-memory-mib", "1");
    let mut tsdb = Tsdb::start_with(options).await?;
    let mut rounds = Vec::new();
    let mut points = 0;
    while rounds.len() < kills || !has_merged_part(&tsdb)? {
        let round = rounds.len();
        ensure!(round < 10 * kills, "no merge in {round} rounds");
        let (mut writers, ledgers) = start_writers(&tsdb, round);
        some_acknowledged(&ledgers, &mut random).await?;
        tsdb.kill9()?;
        while let Some(ended) = writers.join_next().await {
            ended?;
        }
        rounds.push(ledgers);

        tsdb.restart().await?;
        points += check_round(&tsdb, &rounds, round).await?;
        // A recovery must not lose what an earlier one saved.
        check_round(&tsdb, &rounds, random.random_range(0..=round)).await?;
    }
    for round in 0..rounds.len() {
        check_round(&tsdb, &rounds, round).await?;
    }
    println!(
        "{} kills: all {points} acknowledged points are there",
        rounds.len()
    );
    Ok(())
}

/// Whether a part was merged from others: the sequence numbers of its name, the first and the last, differ.
fn has_merged_part(tsdb: &Tsdb) -> anyhow::Result<bool> {
    let day = tsdb.data_dir().join("data/points/2017-07-14");
    if !day.exists() {
        // Kills came before the first flush.
        return Ok(false);
    }
    for file in std::fs::read_dir(day)? {
        let name = file?.file_name().into_string().unwrap_or_default();
        if let Some((first, last)) = name.strip_suffix(".part").and_then(|name| name.split_once('-'))
            && first.parse::<u64>()? < last.parse::<u64>()?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks the acknowledged points of a round; returns how many there are.
async fn check_round(tsdb: &Tsdb, rounds: &[Vec<Arc<Acknowledged>>], round: usize) -> anyhow::Result<u64> {
    let series = read_back::series_of(&mut tsdb.data(), &metric_of(round)).await?;
    let mut points = 0;
    for acknowledged in &rounds[round] {
        points +=
            check(&series, acknowledged).with_context(|| format!("round {round}, after {}", rounds.len()))?;
    }
    Ok(points)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_once_after_the_ack_loses_nothing() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    for round in 0..5_i64 {
        let ledger = Acknowledged::new(format!("single-{round}"));
        let request = write_request([&ledger.sample(round)]);
        let written = tsdb.data().write(request).await?.into_inner().written;
        tsdb.kill9()?;
        assert_eq!(written, 1);
        tsdb.restart().await?;
        let series = read_back::series_of(&mut tsdb.data(), METRIC).await?;
        // The names were assigned a moment before the crash too.
        for earlier in 0..=round {
            let tags = BTreeMap::from([("series".to_owned(), format!("single-{earlier}"))]);
            let expected = vec![((START_S + earlier) * 1000, Number::Int(earlier))];
            assert_eq!(
                series.get(&tags),
                Some(&expected),
                "single-{earlier} after {round}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_keeps_what_telnet_sent() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let mut telnet = tsdb.telnet().await?;
    let ledger = Acknowledged::new("telnet".to_owned());
    let count = 5000;
    for value in 0..count {
        telnet
            .send(ledger.sample(value).to_telnet_line().as_bytes())
            .await?;
    }
    // Answered in the order of the lines: everything before it was read.
    telnet.send(b"version\n").await?;
    telnet.line().await?;
    let status = tsdb.terminate().await?;
    assert_eq!(status.code(), Some(0), "{}", tsdb.process().log());
    tsdb.restart().await?;
    ledger.add(u64::try_from(count)?);
    let series = read_back::series_of(&mut tsdb.data(), METRIC).await?;
    check(&series, &ledger)?;
    Ok(())
}
