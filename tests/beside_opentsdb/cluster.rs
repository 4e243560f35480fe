//! HBase as processes of their own, as operators have it: region servers die, hang and lose regions and connections under load, and
//! nothing acknowledged is lost.
//!
//! Run by `tests/hbase/cluster.sh`; `OXTSDB_CLUSTER_FAULTS` (24) is the number of faults, `OXTSDB_CLUSTER_POINTS` (5,000 for each
//! fault) the least number of points in [linked lists](oxtsdb_tests::linked_lists).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_tests::linked_lists::BEGIN_MS;
use oxtsdb_tests::random::seeded;
use oxtsdb_tests::rig::{Part, Rig};
use oxtsdb_tests::sizes;
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::traffic::{Traffic, check_stored};
use oxtsdb_tests::{Options, Tsdb, read_back};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tonic::transport::Channel;

/// Metrics, one of each server; their UIDs begin at 1, and the table is split between their hours.
const METRICS: [&str; 2] = ["cluster.one", "cluster.two"];
const WRITERS: usize = 4;
/// Time from a response to a writer's next call: points of an hour do not exceed what a debug build can read back.
const PACE: Duration = Duration::from_millis(50);
/// Longest range of a read while faults happen, hours.
const READ_HOURS: i64 = 20;
/// Times at which connections are cut, and the time between them.
const CUTS: u32 = 10;
const CUT_PAUSE: Duration = Duration::from_millis(200);
/// Longer than ZooKeeper's session: a region server that hangs is given up.
const LONG_PAUSE: Duration = Duration::from_secs(8);
const SHORT_PAUSE: Duration = Duration::from_secs(2);
/// Writes that have not gone on by then do not go on.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disturbance of HBase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// All regions of the table move.
    Move,
    /// A region is split.
    Split,
    /// Two regions become one.
    Merge,
    /// A region server dies.
    Kill,
    /// A region server hangs for a moment.
    Pause,
    /// A region server hangs until it is given up, and dies. It must not go on: the rig's HBase keeps its log in local files, where
    /// nothing corresponds to HDFS's recovery of leases, so that it would acknowledge writes to a log that has been read already.
    Freeze,
    /// The master dies.
    KillMaster,
    /// All connections of the servers to HBase are cut, several times.
    Cut,
}

const FAULTS: [Fault; 8] = [
    Fault::Move,
    Fault::Split,
    Fault::Merge,
    Fault::Kill,
    Fault::Pause,
    Fault::Freeze,
    Fault::KillMaster,
    Fault::Cut,
];

impl Fault {
    /// Lets it happen; returns when HBase's processes run again, and whether HBase did it: it splits no region that has just been split.
    async fn happen(
        self,
        rig: &Rig,
        tables: &Tables,
        servers: &[Tsdb; 2],
        hours: i64,
        random: &mut StdRng,
    ) -> anyhow::Result<bool> {
        let region_servers = rig.region_servers()?;
        let region_server = region_servers.choose(random).context("no region server")?;
        match self {
            Self::Move => drop(rig.change_regions(&["move", &tables.data]).await?),
            Self::Split => {
                // Metric UID, base time: an hour of a metric, so that each region has some of the rows.
                let hour = BEGIN_MS / 3_600_000 + random.random_range(0..hours);
                let key = format!("{:06x}{:08x}", random.random_range(1..=2_u32), hour * 3600);
                return Ok(rig.change_regions(&["split", &tables.data, &key]).await.is_ok());
            }
            Self::Merge => return Ok(rig.change_regions(&["merge", &tables.data]).await.is_ok()),
            Self::Kill => {
                region_server.kill9().await?;
                region_server.again().await?;
            }
            Self::Pause => paused(region_server, SHORT_PAUSE).await?,
            Self::Freeze => {
                region_server.pause().await?;
                tokio::time::sleep(LONG_PAUSE).await;
                region_server.kill9().await?;
                region_server.again().await?;
            }
            Self::KillMaster => {
                let master = rig.hbase();
                master.kill9().await?;
                master.again().await?;
            }
            Self::Cut => {
                let mut cut = 0;
                for _ in 0..CUTS {
                    for server in servers {
                        cut += server.cut_outgoing_connections()?;
                    }
                    tokio::time::sleep(CUT_PAUSE).await;
                }
                ensure!(cut > 0, "no server had a connection to HBase");
            }
        }
        Ok(true)
    }
}

async fn paused(server: &Part, time: Duration) -> anyhow::Result<()> {
    server.pause().await?;
    tokio::time::sleep(time).await;
    server.resume().await
}

/// Reads some hours of a metric: every point is one that was sent, and all that were acknowledged before are there. Returns the time
/// that the read took; nothing if it failed.
async fn check_read(
    mut client: DataServiceClient<Channel>,
    metric: &str,
    traffic: &Traffic,
    random: &mut StdRng,
) -> anyhow::Result<Option<Duration>> {
    let (range, completed) = {
        let lists = traffic.lists();
        let start = random.random_range(BEGIN_MS..lists.end_ms());
        let end = start + random.random_range(1..=READ_HOURS) * 3_600_000;
        (start..end, lists.completed())
    };
    let began = Instant::now();
    let read = read_back::series_in(&mut client, metric, read_back::range(range.start, range.end));
    let Ok(stored) = read.await else {
        return Ok(None);
    };
    let time = began.elapsed();
    let findings = traffic.lists().compare(&stored, &range, &completed);
    findings
        .check()
        .with_context(|| format!("{metric} in {range:?}"))?;
    Ok(Some(time))
}

/// Times and failures that clients noticed during faults of one kind.
#[derive(Debug, Default)]
struct Effect {
    /// How often it happened.
    happened: usize,
    /// How often HBase rejected it.
    rejected: usize,
    /// Of each time it happened, the longest time without an acknowledgement.
    pauses: Vec<Duration>,
    /// Times of all writes meanwhile.
    writes: Vec<Duration>,
    /// Times of all reads meanwhile.
    reads: Vec<Duration>,
}

impl Effect {
    fn print(&mut self, name: &str) {
        println!(
            "{name}: {} times, {} rejected; the longest time without an acknowledgement: median {:.0?}, most {:.0?}; \
             {} writes: median {:.0?}, p99 {:.0?}, most {:.0?}; {} reads: median {:.0?}, p99 {:.0?}",
            self.happened,
            self.rejected,
            percentile(&mut self.pauses, 50),
            percentile(&mut self.pauses, 100),
            self.writes.len(),
            percentile(&mut self.writes, 50),
            percentile(&mut self.writes, 99),
            percentile(&mut self.writes, 100),
            self.reads.len(),
            percentile(&mut self.reads, 50),
            percentile(&mut self.reads, 99),
        );
    }
}

/// A percentile; nothing of no times.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let place = (times.len().saturating_sub(1) * percent).div_ceil(100);
    times.get(place).copied().unwrap_or_default()
}

/// Waits until both traffics go on; returns the longest time without an acknowledgement of either, from `began`.
async fn until_writes_go_on(traffics: &[Traffic; 2], done: &AtomicBool) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut last = traffics
        .each_ref()
        .map(|traffic| (traffic.acknowledged(), Instant::now()));
    let mut after = None;
    loop {
        for (traffic, (count, since)) in traffics.iter().zip(&mut last) {
            let now = traffic.acknowledged();
            longest = longest.max(since.elapsed());
            if now > *count {
                (*count, *since) = (now, Instant::now());
            }
        }
        if done.load(Ordering::Relaxed) {
            let before = *after.get_or_insert_with(|| traffics.each_ref().map(Traffic::acknowledged));
            let went_on = traffics
                .iter()
                .zip(before)
                .map(|(traffic, before)| traffic.check_goes_on(before));
            match went_on.collect::<anyhow::Result<()>>() {
                Ok(()) => return Ok(longest),
                Err(error) => ensure!(longest < PATIENCE, error),
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_lose_nothing_that_was_acknowledged() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = seeded("cluster")?;
    let tables = rig.create_tables("cluster").await?;
    // The writers keep one connection.
    let options = || {
        Options::default()
            .flags(rig.flags(&tables))
            .flag("--grpc-connection-age-seconds", "0")
    };
    let servers = [
        Tsdb::start_with(options()).await?,
        Tsdb::start_with(options()).await?,
    ];
    let start =
        |place: usize| Traffic::start_paced(servers[place].data_address(), METRICS[place], WRITERS, PACE);
    let traffics = [start(0), start(1)];
    until_writes_go_on(&traffics, &AtomicBool::new(true)).await?;

    let faults = sizes::from_environment("OXTSDB_CLUSTER_FAULTS", 24)?;
    let points = sizes::from_environment("OXTSDB_CLUSTER_POINTS", 5_000 * faults)?;
    let acknowledged = || traffics.iter().map(Traffic::acknowledged).sum::<usize>();
    let mut effects: BTreeMap<Fault, Effect> = BTreeMap::new();
    for number in 0..faults {
        let fault = FAULTS[number % FAULTS.len()];
        let done = AtomicBool::new(false);
        let clients = servers.each_ref().map(Tsdb::data);
        let hours = (traffics[0].lists().end_ms() - BEGIN_MS) / 3_600_000 + 1;
        let mut random_reads = StdRng::from_rng(&mut random);
        let happens = async {
            let happened = fault.happen(&rig, &tables, &servers, hours, &mut random).await;
            done.store(true, Ordering::Relaxed);
            happened.with_context(|| format!("fault {number}, {fault:?}"))
        };
        let writes = until_writes_go_on(&traffics, &done);
        let reads = async {
            let mut times = Vec::new();
            while !done.load(Ordering::Relaxed) {
                for (metric, traffic) in METRICS.iter().zip(&traffics) {
                    // Each server also reads the metric that the other one writes.
                    let client = clients[number % 2].clone();
                    times.extend(check_read(client, metric, traffic, &mut random_reads).await?);
                }
            }
            anyhow::Ok(times)
        };
        traffics.iter().for_each(|traffic| drop(traffic.take_times()));
        let (happened, pause, reads) = tokio::try_join!(happens, writes, reads)?;
        let effect = effects.entry(fault).or_default();
        effect.happened += usize::from(happened);
        effect.rejected += usize::from(!happened);
        effect.pauses.push(pause);
        effect.reads.extend(reads);
        effect
            .writes
            .extend(traffics.iter().flat_map(Traffic::take_times));
        println!(
            "{number} {fault:?}: {pause:?}; {} points acknowledged",
            acknowledged()
        );
    }
    for (fault, mut effect) in effects {
        effect.print(&format!("{fault:?}"));
    }

    // Beside no fault.
    let mut calm = Effect::default();
    loop {
        traffics.iter().for_each(|traffic| drop(traffic.take_times()));
        calm.pauses
            .push(until_writes_go_on(&traffics, &AtomicBool::new(true)).await?);
        calm.writes.extend(traffics.iter().flat_map(Traffic::take_times));
        if acknowledged() >= points && calm.writes.len() >= 1_000 {
            break;
        }
    }
    calm.print("No fault");
    for (traffic, metric) in traffics.into_iter().zip(METRICS) {
        let failures = traffic.failures();
        let lists = traffic.end().await?;
        for server in &servers {
            // Regions without current rows may be opening still.
            let began = Instant::now();
            while let Err(error) = read_back::series_of(&mut server.data(), metric).await {
                ensure!(began.elapsed() < PATIENCE, error);
            }
            let stored = check_stored(&mut server.data(), metric, &lists).await?;
            println!(
                "{metric}: {stored} points acknowledged and in linked lists, 0 lost, 0 wrong; {failures} calls failed"
            );
        }
    }
    Ok(())
}
