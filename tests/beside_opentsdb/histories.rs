//! Histories of clients of four replicas of the UID service on a real HBase, while replicas are killed and their way
//! to HBase stalls or breaks.

use std::time::Duration;

use anyhow::ensure;
use oxtsdb_client::{ClientBuilder, UidClient};
use oxtsdb_tests::proxy::{Direction, Flow, Proxy};
use oxtsdb_tests::rig::{Rig, hbase_flags};
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::uid_histories::{Plan, record};
use oxtsdb_tests::{UidProgram, random, sizes};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;

const REPLICAS: usize = 4;

/// The contract's bound for caches of other replicas, 3 s, and what the disturbances add.
const STALENESS: Duration = Duration::from_secs(5);

/// The deadline of a client.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Operations for each disturbance.
const OPERATIONS: usize = 1_000;

/// A replica, with a way of its own to HBase.
struct Replica {
    // Killed before its folder is removed: fields are dropped in this order.
    program: UidProgram,
    folder: TempDir,
    proxy: Proxy,
    flags: Vec<String>,
}

impl Replica {
    async fn start(rig: &Rig, tables: &Tables) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let proxy = Proxy::start(rig.gateways()[0]).await?;
        let mut flags = hbase_flags(&[proxy.address()]);
        flags.push(format!("--uid-table={}", tables.uid));
        Ok(Self {
            program: UidProgram::start_with(folder.path(), None, &flags).await?,
            folder,
            proxy,
            flags,
        })
    }

    fn client(&self) -> anyhow::Result<UidClient> {
        let url = format!("http://{}", self.program.address());
        Ok(ClientBuilder::new([url]).timeout(TIMEOUT).uid()?)
    }

    /// Kills it, and starts it again at its address.
    async fn restart(&mut self) -> anyhow::Result<()> {
        self.program.process().kill9()?;
        let address = self.program.address();
        self.program = UidProgram::start_with(self.folder.path(), Some(address), &self.flags).await?;
        Ok(())
    }

    /// Requests, or responses, do not arrive for a while, or never.
    async fn disturb(&self, direction: Direction, flow: Flow, time: Duration) {
        self.proxy.set(direction, flow);
        tokio::time::sleep(time).await;
        self.proxy.set(direction, Flow::Pass);
        if flow == Flow::Lose {
            // The bytes after a lost one would be read as something else.
            self.proxy.cut();
        }
    }
}

/// Disturbs one replica after the other.
async fn disturb(replicas: &mut [Replica], random: &mut StdRng, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1_000))).await;
        let replica = &mut replicas[random.random_range(0..REPLICAS)];
        let time = Duration::from_millis(random.random_range(10..4_000));
        let direction = match random.random() {
            true => Direction::ToServer,
            false => Direction::ToClient,
        };
        match random.random_range(0..10) {
            0..5 => replica.restart().await?,
            5..8 => replica.disturb(direction, Flow::Stall, time).await,
            8 => replica.disturb(direction, Flow::Lose, time).await,
            _ => replica.proxy.cut(),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_hbase_are_accepted() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("histories")?;
    let tables = rig.create_tables("histories").await?;
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(Replica::start(&rig, &tables).await?);
    }
    let clients: Vec<UidClient> = replicas.iter().map(Replica::client).collect::<Result<_, _>>()?;
    let plan = Plan {
        operations: sizes::from_environment("OXTSDB_HISTORY_OPERATIONS", 15_000)?,
        settle: STALENESS,
        staleness: STALENESS,
        is_damaged: false,
    };
    let mut chance = StdRng::seed_from_u64(random.random());
    let disturbance = disturb(&mut replicas, &mut chance, plan.operations / OPERATIONS);
    let recorded = record(&clients, &mut random, &plan, disturbance).await?;
    recorded.print();
    ensure!(
        recorded.history.len() >= plan.operations / 2,
        "too few operations"
    );
    recorded.check()?;
    Ok(())
}
