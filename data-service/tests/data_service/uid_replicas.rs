//! Two replicas of the UID service on one store, and two data services that use both: caches follow renames and deletes,
//! and the loss of a replica fails no call.
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use data_service::{DataService, DataSettings};
use oxtsdb_client::{
    AggregateFunction, ClientBuilder, DataClient, Point, Query, SeriesName, Timestamp, UidClient, UidKind,
};
use oxtsdb_proto::data::v1::QueryRequest;
use oxtsdb_proto::data::v1::sub_query::Source;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, Writers};
use oxtsdb_server::store::StoreKind;
use oxtsdb_server::{GrpcOptions, GrpcServer, Shutdown};
use tokio::runtime::Runtime;
use uid_service::UidSettings;

/// Performs each operation.
#[derive(Debug)]
struct Pass;

#[async_trait]
impl Intercept for Pass {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        operation.perform(store).await
    }
}

/// A store in memory that other processes may write to.
async fn shared_store() -> Arc<dyn RowStore> {
    let store = MemoryStore::new();
    let uid_part = uid_service::store_part(&UidSettings::default()).unwrap();
    let data_part = data_service::store_part(&DataSettings::default(), 0).unwrap();
    uid_part.make_tables(&store).await.unwrap();
    data_part.make_tables(&store).await.unwrap();
    Arc::new(InterceptedStore::new(Arc::new(store), Arc::new(Pass)).like_hbase())
}

/// A UID service with threads and sockets of its own. Dropping it closes them without a farewell, as a crash does.
struct Replica {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Replica {
    fn start(store: Arc<dyn RowStore>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
            let (writers, settings) = (Writers::Multiple, UidSettings::default());
            let service = uid_service::assemble(store, writers, &settings, shutdown.clone())
                .await
                .unwrap();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let server = service.add_to(GrpcServer::new());
            server
                .serve(listener, GrpcOptions::default(), shutdown)
                .await
                .unwrap();
        });
        Self {
            address: receiver.recv().unwrap(),
            runtime: Some(runtime),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn client(&self) -> UidClient {
        UidClient::connect(&self.url()).unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn data_service(store: &Arc<dyn RowStore>, replicas: &[&Replica]) -> DataService {
    let uids = ClientBuilder::new(replicas.iter().map(|replica| replica.url()))
        .uid()
        .unwrap();
    let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
    let settings = DataSettings::default();
    let memory = MemoryAccount::unlimited();
    let store = (Arc::clone(store), StoreKind::Hbase);
    data_service::assemble(store, None, uids, settings, &memory, shutdown)
        .await
        .unwrap()
}

/// Waits until `done`; returns after how many milliseconds it was.
async fn milliseconds_until(began: Instant, done: impl AsyncFn() -> bool) -> u128 {
    while !done().await {
        assert!(began.elapsed() < Duration::from_secs(20), "never");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed().as_millis()
}

fn distribution(mut times: Vec<u128>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    format!(
        "p50 {} ms, p95 {} ms, p99 {} ms, max {} ms",
        at(50),
        at(95),
        at(99),
        at(100)
    )
}

const NAMES: usize = 120;

/// The stated bound, to which late timers of a busy machine add.
const BOUND_MS: u128 = 3000;

#[tokio::test(flavor = "multi_thread")]
async fn caches_of_other_services_follow_renames_and_deletes() {
    let store = shared_store().await;
    let (one, two) = (
        Replica::start(Arc::clone(&store)),
        Replica::start(Arc::clone(&store)),
    );
    let writer = one.client();
    let services = Arc::new([
        data_service(&store, &[&one, &two]).await,
        data_service(&store, &[&two, &one]).await,
    ]);
    let names: Vec<String> = (0..NAMES).map(|number| format!("name.{number}")).collect();
    let requested: Vec<(UidKind, &str)> = names.iter().map(|name| (UidKind::Tagv, name.as_str())).collect();
    let assigned = writer.get_or_create_uids(&requested, true).await.unwrap();
    let other = two.client();
    let changes = names
        .into_iter()
        .zip(assigned)
        .enumerate()
        .map(|(number, (name, assigned))| {
            let uid = assigned.unwrap().uid;
            let (writer, other, services) = (writer.clone(), other.clone(), Arc::clone(&services));
            async move {
                // Cached everywhere, then changed at some time between two polls.
                tokio::time::sleep(Duration::from_millis(37 * number as u64 % 1500)).await;
                let key = [(UidKind::Tagv, name.as_str())];
                assert_eq!(other.lookup_uids(&key).await.unwrap(), [Ok(uid)]);
                for service in services.iter() {
                    assert_eq!(service.uids.uids(&key, None).await.unwrap(), [Some(uid)]);
                }
                if number % 2 == 0 {
                    let renamed = format!("{name}.renamed");
                    writer.rename(UidKind::Tagv, &name, &renamed, None).await.unwrap();
                } else {
                    writer.delete(UidKind::Tagv, &name, None).await.unwrap();
                }
                let began = Instant::now();
                let at_replica =
                    milliseconds_until(began, async || other.lookup_uids(&key).await.unwrap()[0].is_err());
                let at_services = services.iter().map(|service| {
                    // The last time that a look-up returned the old mapping counts.
                    async move {
                        let mut last = 0;
                        while began.elapsed().as_millis() < BOUND_MS + 500 {
                            if service.uids.uids(&key, None).await.unwrap() != [None] {
                                last = began.elapsed().as_millis();
                            }
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                        last
                    }
                });
                let (at_replica, at_services) =
                    tokio::join!(at_replica, futures::future::join_all(at_services));
                (at_replica, at_services.into_iter().max().unwrap())
            }
        });
    let late = Arc::new(AtomicU64::new(0));
    let clock = tokio::spawn(measure(Arc::clone(&late)));
    let times = futures::future::join_all(changes).await;
    clock.abort();
    // A change passes four timers: of the poll, the watch, the lag and the look-up.
    let bound = BOUND_MS + 4 * u128::from(late.load(Ordering::Relaxed));
    let (replica, services): (Vec<u128>, Vec<u128>) = times.into_iter().unzip();
    println!("another replica: {}", distribution(replica.clone()));
    println!("data services:   {}", distribution(services.clone()));
    assert!(
        replica.iter().chain(&services).all(|time| *time <= bound),
        "later than {bound} ms"
    );
}

/// Measures by how much timers are late at most, in milliseconds.
async fn measure(late: Arc<AtomicU64>) {
    const PAUSE: Duration = Duration::from_millis(50);
    loop {
        let began = Instant::now();
        tokio::time::sleep(PAUSE).await;
        let over = began.elapsed().saturating_sub(PAUSE).as_millis();
        late.fetch_max(u64::try_from(over).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_name_that_is_written_again_is_found() {
    let store = shared_store().await;
    let (one, two) = (
        Replica::start(Arc::clone(&store)),
        Replica::start(Arc::clone(&store)),
    );
    let services = [
        data_service(&store, &[&one, &two]).await,
        data_service(&store, &[&two, &one]).await,
    ];
    let mut clients = Vec::new();
    for service in &services {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = service.add_to(GrpcServer::new());
        let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
        tokio::spawn(server.serve(listener, GrpcOptions::default(), shutdown));
        clients.push(DataClient::connect(&format!("http://{address}")).unwrap());
    }
    let series = SeriesName::new("again", [("host", "a")]);
    let start = Timestamp::now();
    for client in &clients {
        assert!(
            client
                .write([Point::new(&series, start, 1)])
                .await
                .unwrap()
                .is_complete()
        );
    }
    let before = services[0]
        .uids
        .uid(UidKind::Metric, "again", None)
        .await
        .unwrap();
    one.client().delete(UidKind::Metric, "again", None).await.unwrap();
    let began = Instant::now();
    for service in &services {
        milliseconds_until(began, async || {
            service.uids.uid(UidKind::Metric, "again", None).await.unwrap() != before
        })
        .await;
    }
    tokio::time::sleep(Duration::from_millis(u64::try_from(BOUND_MS).unwrap())).await;
    for client in &clients {
        let report = client.write([Point::new(&series, start, 2)]).await.unwrap();
        assert!(report.is_complete());
    }
    let after = services[1]
        .uids
        .uid(UidKind::Metric, "again", None)
        .await
        .unwrap();
    assert!(after.is_some() && after != before, "{before:?}, {after:?}");
    for client in &clients {
        let query = Query::last(Duration::from_secs(3600)).metric("again", AggregateFunction::Sum);
        let result = client.query(query).await.unwrap().into_result().await.unwrap();
        assert_eq!(result.series.len(), 1, "{result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_by_name_follow_renames() {
    let store = shared_store().await;
    let replica = Replica::start(Arc::clone(&store));
    let service = data_service(&store, &[&replica]).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = service.add_to(GrpcServer::new());
    let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
    tokio::spawn(server.serve(listener, GrpcOptions::default(), shutdown));
    let client = DataClient::connect(&format!("http://{address}")).unwrap();
    let start = Timestamp::now();
    let series = ["old.one", "new.two"].map(|host| SeriesName::new("m", [("host", host)]));
    let points = series.iter().map(|series| Point::new(series, start, 1));
    assert!(client.write(points).await.unwrap().is_complete());
    let matching = async |pattern: &str| {
        let query = Query::last(Duration::from_secs(3600)).metric("m", AggregateFunction::None);
        let mut request = QueryRequest::from(query.group_by("host"));
        if let Some(Source::Metric(metric)) = &mut request.queries[0].source {
            pattern.clone_into(&mut metric.filters[0].pattern);
        }
        let result = client.query(request).await.unwrap().into_result().await.unwrap();
        result.series.len()
    };
    assert_eq!((matching("old*").await, matching("new*").await), (1, 1));
    let uids = replica.client();
    uids.rename(UidKind::Tagv, "old.one", "new.one", None)
        .await
        .unwrap();
    let began = Instant::now();
    milliseconds_until(began, async || {
        matching("new*").await == 2 && matching("old*").await == 0
    })
    .await;
    // And stays so when old look-ups have returned.
    tokio::time::sleep(Duration::from_millis(u64::try_from(BOUND_MS).unwrap())).await;
    assert_eq!((matching("old*").await, matching("new*").await), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_replica_fails_no_call() {
    let store = shared_store().await;
    let (one, two) = (
        Replica::start(Arc::clone(&store)),
        Replica::start(Arc::clone(&store)),
    );
    let client = ClientBuilder::new([one.url(), two.url()]).uid().unwrap();
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let (client, stop, calls) = (client.clone(), Arc::clone(&stop), Arc::clone(&calls));
        tasks.spawn(async move {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                let name = format!("name.{task}.{round}");
                let key = [(UidKind::Tagv, name.as_str())];
                let uid = client
                    .get_or_create_uids(&key, false)
                    .await
                    .unwrap()
                    .remove(0)
                    .unwrap()
                    .uid;
                assert_eq!(client.lookup_uids(&key).await.unwrap(), [Ok(uid)]);
                let names = client.lookup_names(&[(UidKind::Tagv, uid)]).await.unwrap();
                assert_eq!(names, [Ok(name)]);
                calls.fetch_add(3, Ordering::Relaxed);
                round += 1;
            }
        });
    }
    let more = async |count| {
        let target = calls.load(Ordering::Relaxed) + count;
        while calls.load(Ordering::Relaxed) < target {
            assert!(!tasks.is_empty());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    more(2000).await;
    drop(one);
    more(2000).await;
    stop.store(true, Ordering::Relaxed);
    // Panics with the first failure of a task.
    tasks.join_all().await;
    println!("{} calls", calls.load(Ordering::Relaxed));
}
