//! Histories of 64 clients of 4 replicas of the UID service are accepted by the checker, and histories of replicas
//! with a planted bug are not.
//!
//! The replicas share one store in memory that looks like HBase's. Each has its own way to it, which delays
//! operations, rejects them, and loses their responses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{bail, ensure};
use async_trait::async_trait;
use oxtsdb_client::UidClient;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation as StoreOperation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, Writers};
use oxtsdb_server::{Shutdown, ShutdownTrigger};
use oxtsdb_tests::uid_histories::{self, Plan, record};
use oxtsdb_tests::{random, sizes};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use uid_service::UidSettings;

const REPLICAS: usize = 4;

/// The contract's bound for caches, and for events of watches.
const STALENESS: Duration = Duration::from_secs(3);

/// A bug of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// It does not see what other replicas have logged, and keeps its cache.
    StaleCache,
    /// Its compare-and-sets succeed always.
    LostCompareAndSet,
    /// Its counters return numbers again, and it does not see that they are taken.
    DoubleAssignment,
}

/// The way of one replica to the store.
#[derive(Debug)]
struct Network {
    random: Mutex<StdRng>,
    bug: Option<Bug>,
}

/// The fate of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Performed,
    /// It has no effect.
    Rejected,
    /// It is performed, and its response lost.
    ResponseLost,
    /// It fails, and is performed later.
    Late(Duration),
}

impl Network {
    fn draw(&self) -> (Duration, Fate) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = match random.random_range(0..100) {
            0..60 => 0,
            60..95 => random.random_range(0..2_000),
            _ => random.random_range(0..30_000),
        };
        let fate = match random.random_range(0..1000) {
            0..5 => Fate::Rejected,
            5..10 => Fate::ResponseLost,
            10..12 => Fate::Late(Duration::from_millis(random.random_range(1..100))),
            _ => Fate::Performed,
        };
        (Duration::from_micros(delay), fate)
    }

    /// The response of a replica with a bug; `None`: the store's.
    async fn bug(
        &self,
        operation: &StoreOperation,
        store: &dyn RowStore,
    ) -> Option<Result<Response, StoreError>> {
        match (self.bug?, operation) {
            (Bug::StaleCache, StoreOperation::Scan { table, .. })
                if table.to_string().ends_with("-state") =>
            {
                Some(Ok(Response::Scan(Box::pin(futures::stream::empty()))))
            }
            // It would append where another replica has, again and again, and suspends its cache while it cannot read.
            (Bug::StaleCache, StoreOperation::CheckAndPut { table, .. })
                if table.to_string().ends_with("-state") =>
            {
                Some(Err(StoreError::Unavailable {
                    detail: "rejected by the test".to_owned(),
                }))
            }
            (
                Bug::LostCompareAndSet,
                StoreOperation::CheckAndPut {
                    table,
                    condition,
                    value,
                },
            ) => {
                let mut batch = oxtsdb_row_store::WriteBatch::new(table.clone());
                let family = batch.family(&condition.cell.family);
                batch
                    .row(&condition.cell.row)
                    .put(family, &condition.cell.qualifier, value);
                Some(store.write(batch).await.map(|()| Response::Held(true)))
            }
            (Bug::DoubleAssignment, StoreOperation::Increment { table, cell, amount }) => {
                // Reads the counter, and writes it after others may have done so.
                let sum = store.increment(table, cell, 0).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                drop(store.increment(table, cell, *amount).await);
                Some(sum.map(|sum| Response::Sum(sum + amount)))
            }
            (
                Bug::DoubleAssignment,
                StoreOperation::CheckAndPut {
                    table,
                    condition,
                    value,
                },
            ) if condition.cell.family == "name" && condition.expected.is_none() => {
                let mut batch = oxtsdb_row_store::WriteBatch::new(table.clone());
                let family = batch.family("name");
                batch
                    .row(&condition.cell.row)
                    .put(family, &condition.cell.qualifier, value);
                Some(store.write(batch).await.map(|()| Response::Held(true)))
            }
            _ => None,
        }
    }
}

/// The shared store, which performs late operations after their failure.
#[derive(Debug)]
struct Way {
    network: Network,
    store: MemoryStore,
}

#[async_trait]
impl Intercept for Way {
    async fn intercept(
        &self,
        operation: StoreOperation,
        store: &dyn RowStore,
    ) -> Result<Response, StoreError> {
        let (delay, fate) = self.network.draw();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(response) = self.network.bug(&operation, store).await {
            return response;
        }
        let lost = || StoreError::TimedOut {
            detail: "lost by the test".to_owned(),
        };
        match fate {
            Fate::Performed => operation.perform(store).await,
            Fate::Rejected => Err(StoreError::Unavailable {
                detail: "rejected by the test".to_owned(),
            }),
            Fate::ResponseLost => operation.perform(store).await.and_then(|_| Err(lost())),
            Fate::Late(pause) => {
                let store = self.store.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    drop(operation.perform(&store).await);
                });
                Err(lost())
            }
        }
    }
}

/// Replicas of the service over one store; the first has the bug.
async fn replicas(
    random: &mut StdRng,
    bug: Option<Bug>,
) -> anyhow::Result<(Vec<UidClient>, ShutdownTrigger)> {
    let store = MemoryStore::new();
    let settings = UidSettings::default();
    uid_service::store_part(&settings)?.make_tables(&store).await?;
    let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
    let mut clients = Vec::new();
    for replica in 0..REPLICAS {
        let way = Way {
            network: Network {
                random: Mutex::new(StdRng::seed_from_u64(random.random())),
                bug: bug.filter(|_| replica == 0),
            },
            store: store.clone(),
        };
        let store = InterceptedStore::new(Arc::new(store.clone()), Arc::new(way)).like_hbase();
        let store: Arc<dyn RowStore> = Arc::new(store);
        // The checks of its start are subject to the same failures.
        let service = loop {
            match uid_service::assemble(Arc::clone(&store), Writers::Multiple, &settings, shutdown.clone())
                .await
            {
                Ok(service) => break service,
                Err(error) if error.downcast_ref::<StoreError>().is_some() => {}
                Err(error) if format!("{error:#}").contains("by the test") => {}
                Err(error) => return Err(error),
            }
        };
        clients.push(UidClient::in_process(service.routes()));
    }
    Ok((clients, trigger))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_of_four_replicas_are_accepted() -> anyhow::Result<()> {
    let mut random = random::seeded("uid histories")?;
    let (replicas, _trigger) = replicas(&mut random, None).await?;
    let plan = Plan {
        operations: sizes::from_environment("OXTSDB_HISTORY_OPERATIONS", 5_000)?,
        settle: STALENESS,
        staleness: STALENESS,
        is_damaged: false,
    };
    let recorded = record(&replicas, &mut random, &plan, pause(Duration::from_secs(8))).await?;
    recorded.print();
    ensure!(
        recorded.history.len() >= plan.operations / 2,
        "too few operations"
    );
    recorded.check()?;
    Ok(())
}

/// Takes a while.
async fn pause(time: Duration) -> anyhow::Result<()> {
    tokio::time::sleep(time).await;
    Ok(())
}

/// Histories that are recorded until a bug shows.
const ATTEMPTS: usize = 10;

/// The violation in a history of replicas with a bug.
async fn violation(bug: Bug, time: Duration) -> anyhow::Result<String> {
    let mut random = random::seeded("uid histories")?;
    for _ in 0..ATTEMPTS {
        let (replicas, _trigger) = replicas(&mut random, Some(bug)).await?;
        let plan = Plan {
            operations: 5_000,
            settle: Duration::ZERO,
            staleness: STALENESS,
            is_damaged: true,
        };
        let recorded = record(&replicas, &mut random, &plan, pause(time)).await?;
        if let Err(violation) = uid_histories::check(&recorded.history, recorded.staleness) {
            println!("{bug:?}: {violation}");
            return Ok(violation.to_string());
        }
    }
    bail!("{bug:?} was not found")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: tests/nightly.sh"]
async fn a_stale_cache_is_found() -> anyhow::Result<()> {
    let violation = violation(Bug::StaleCache, STALENESS * 2).await?;
    ensure!(violation.contains("did not have the name"), "{violation}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: tests/nightly.sh"]
async fn a_lost_compare_and_set_is_found() -> anyhow::Result<()> {
    violation(Bug::LostCompareAndSet, Duration::from_secs(1)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: tests/nightly.sh"]
async fn a_double_assignment_is_found() -> anyhow::Result<()> {
    let violation = violation(Bug::DoubleAssignment, Duration::from_secs(1)).await?;
    ensure!(violation.contains("UID"), "{violation}");
    Ok(())
}
