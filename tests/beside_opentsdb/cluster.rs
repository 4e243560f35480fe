//! HBase as processes of their own, as operators have it: region servers die, hang and lose regions under load, and nothing
//! acknowledged is lost.
//!
//! Run by `tests/hbase/cluster.sh`; `OXTSDB_CLUSTER_FAULTS` (20) is the number of faults.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::random::seeded;
use oxtsdb_tests::rig::{Part, Rig};
use oxtsdb_tests::sample::Number;
use oxtsdb_tests::sizes;
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::traffic::{Traffic, check_stored};
use oxtsdb_tests::{Options, Tsdb, read_back, until};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// Metrics, one of each server; their UIDs begin at 1, and the table is split between their hours.
const METRICS: [&str; 2] = ["cluster.one", "cluster.two"];
const WRITERS: usize = 4;
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
    /// A region server hangs until it is given up, and ends itself.
    Freeze,
    /// The master dies.
    KillMaster,
}

const FAULTS: [Fault; 7] = [
    Fault::Move,
    Fault::Split,
    Fault::Merge,
    Fault::Kill,
    Fault::Pause,
    Fault::Freeze,
    Fault::KillMaster,
];

impl Fault {
    /// Lets it happen; returns when HBase is complete again.
    async fn happen(self, rig: &Rig, tables: &Tables, random: &mut StdRng) -> anyhow::Result<()> {
        let servers = rig.region_servers()?;
        let server = servers.choose(random).context("no region server")?;
        match self {
            Self::Move => drop(rig.change_regions(&["move", &tables.data]).await?),
            Self::Split => {
                // Metric UID, base time: an hour of a metric, so that each region has some of the rows.
                let hour = 1_500_000_000 / 3600 + random.random_range(0..20_u32);
                let key = format!("{:06x}{:08x}", random.random_range(1..=2_u32), hour * 3600);
                rig.change_regions(&["split", &tables.data, &key]).await.ok();
            }
            Self::Merge => drop(rig.change_regions(&["merge", &tables.data]).await.ok()),
            Self::Kill => {
                server.kill9().await?;
                server.again().await?;
            }
            Self::Pause => paused(server, SHORT_PAUSE).await?,
            Self::Freeze => {
                paused(server, LONG_PAUSE).await?;
                until("the region server ends itself", || server.again()).await?;
            }
            Self::KillMaster => {
                let master = rig.hbase();
                master.kill9().await?;
                master.again().await?;
            }
        }
        Ok(())
    }
}

async fn paused(server: &Part, time: Duration) -> anyhow::Result<()> {
    server.pause().await?;
    tokio::time::sleep(time).await;
    server.resume().await
}

/// Reads a metric: every point is one that was sent, and all that were acknowledged before are there. A read that fails says
/// nothing.
async fn check_read(tsdb: &Tsdb, metric: &str, traffic: &Traffic) -> anyhow::Result<()> {
    let acknowledged = traffic.acknowledged();
    let Ok(stored) = read_back::series_of(&mut tsdb.data(), metric).await else {
        return Ok(());
    };
    let mut numbers = HashSet::new();
    for (instant, value) in stored.values().flatten() {
        let Number::Int(number) = value else {
            anyhow::bail!("{value:?} was never written");
        };
        ensure!(
            *instant == 1_500_000_000_000 + number * 1000 && numbers.insert(*number),
            "{number} at {instant} was never written there, or is there twice"
        );
    }
    ensure!(
        numbers.len() >= acknowledged,
        "{} points of {metric} are read, {acknowledged} were acknowledged before",
        numbers.len()
    );
    Ok(())
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
    let options = || Options::default().flags(rig.flags(&tables));
    let servers = [
        Tsdb::start_with(options()).await?,
        Tsdb::start_with(options()).await?,
    ];
    let start = |place: usize| Traffic::start(servers[place].data_address(), METRICS[place], WRITERS);
    let traffics = [start(0), start(1)];
    until_writes_go_on(&traffics, &AtomicBool::new(true)).await?;

    let mut pauses: BTreeMap<Fault, Vec<Duration>> = BTreeMap::new();
    for number in 0..sizes::from_environment("OXTSDB_CLUSTER_FAULTS", 20)? {
        let fault = FAULTS[number % FAULTS.len()];
        let done = AtomicBool::new(false);
        let happens = async {
            let happened = fault.happen(&rig, &tables, &mut random).await;
            done.store(true, Ordering::Relaxed);
            happened.with_context(|| format!("fault {number}, {fault:?}"))
        };
        let writes = until_writes_go_on(&traffics, &done);
        let reads = async {
            while !done.load(Ordering::Relaxed) {
                // Each server also reads the metric that the other one writes.
                check_read(&servers[number % 2], METRICS[0], &traffics[0]).await?;
                check_read(&servers[number % 2], METRICS[1], &traffics[1]).await?;
            }
            anyhow::Ok(())
        };
        let ((), pause, ()) = tokio::try_join!(happens, writes, reads)?;
        pauses.entry(fault).or_default().push(pause);
    }

    for (fault, mut pauses) in pauses {
        pauses.sort_unstable();
        println!(
            "{fault:?}: the longest time without an acknowledgement: median {:?}, most {:?}, of {}",
            pauses[pauses.len() / 2],
            pauses[pauses.len() - 1],
            pauses.len()
        );
    }
    for (traffic, metric) in traffics.into_iter().zip(METRICS) {
        let failures = traffic.failures();
        let (acknowledged, _) = traffic.end().await?;
        println!(
            "{metric}: {} points acknowledged, {failures} calls failed",
            acknowledged.len()
        );
        for server in &servers {
            check_stored(&mut server.data(), metric, &acknowledged).await?;
        }
    }
    Ok(())
}
