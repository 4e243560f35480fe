//! Measures the cost of telnet `put` and HTTP `/api/put` above the store: a client sends prepared requests over a
//! socket to the server, whose store acknowledges every write and drops it. Each point is of the next series.
//!
//! Prints processor time of the server's thread, which other programs on the machine influence little.
//!
//! `cargo run --release -p data-service --example front-end-bench -- [SERIES]`

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_trait::async_trait;
use data_service::{DataSettings, HttpTelnetServer, assemble, store_part};
use oxtsdb_client::UidClient;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, Writers};
use oxtsdb_server::Shutdown;
use oxtsdb_server::store::StoreKind;
use tokio::net::TcpListener;
use uid_service::UidSettings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of each measurement.
const TIME: Duration = Duration::from_secs(3);
/// Timestamp of the first point, in seconds: an exact hour.
const START_SECONDS: usize = 1_356_998_400;
/// Points of an HTTP request.
const REQUEST_POINTS: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let series = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let tables = MemoryStore::new();
    let data = DataSettings {
        memory: data_service::settings::MemorySettings {
            series_cache_mib: 2048,
            ..Default::default()
        },
        ..DataSettings::default()
    };
    let uid = UidSettings::default();
    uid_service::store_part(&uid)?.make_tables(&tables).await?;
    store_part(&data, 0)?.make_tables(&tables).await?;
    let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
    let uids =
        uid_service::assemble(Arc::new(tables.clone()), Writers::Single, &uid, shutdown.clone()).await?;
    let client = UidClient::in_process(uids.routes());
    let store = Arc::new(InterceptedStore::new(Arc::new(tables), Arc::new(NoStore)));
    let memory = MemoryAccount::unlimited();
    let store = (store as _, StoreKind::Embedded);
    let service = assemble(store, None, client, data.clone(), &memory, shutdown.clone()).await?;
    let (writer, engine, uids) = (service.writer, service.engine, service.uids);
    let server = HttpTelnetServer::new(writer, engine, uids, service.trees, None, &data);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(server.serve(listener, shutdown));

    // In two steps of time, so that no two requests in a row are equal.
    let steps: Vec<_> = (0..2).map(|step| lines(series, step)).collect();
    measure("telnet put", series, telnet(address, steps)?).await?;
    let steps: Vec<_> = (0..2).map(|step| requests(series, step)).collect();
    measure("HTTP put", series, http(address, steps)?).await
}

/// Calls `send`, which sends a point of each series, from a thread.
async fn measure(
    name: &str,
    series: usize,
    mut send: impl FnMut(usize) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let (started, first) = tokio::sync::oneshot::channel();
    let thread = tokio::task::spawn_blocking(move || {
        // The series become known.
        send(0)?;
        let _ = started.send(());
        let began = Instant::now();
        let mut rounds = 0;
        while began.elapsed() < TIME {
            rounds += 1;
            send(rounds)?;
        }
        Ok::<_, anyhow::Error>((rounds, began.elapsed()))
    });
    let _ = first.await;
    let before = processor_time()?;
    let (rounds, time) = thread.await??;
    let used = processor_time()?.saturating_sub(before);
    let points = rounds * series;
    #[expect(clippy::cast_precision_loss, reason = "printed with a few digits")]
    let per_point = |time: Duration| time.as_secs_f64() * 1e9 / points as f64;
    println!(
        "{name}, {series} series: {:.0} ns of processor time per point ({:.2} M points/s in this run)",
        per_point(used),
        1e3 / per_point(time)
    );
    Ok(())
}

/// Processor time of this thread.
fn processor_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().context("no processor time")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

fn telnet(
    address: SocketAddr,
    steps: Vec<String>,
) -> anyhow::Result<impl FnMut(usize) -> anyhow::Result<()>> {
    let mut stream = TcpStream::connect(address)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    Ok(move |round: usize| {
        stream.write_all(steps[round % steps.len()].as_bytes())?;
        // All points are stored before this has a reply.
        stream.write_all(b"nothing\n")?;
        let mut reply = String::new();
        replies.read_line(&mut reply)?;
        anyhow::ensure!(reply.starts_with("unknown command: nothing"), "{reply}");
        Ok(())
    })
}

fn http(
    address: SocketAddr,
    steps: Vec<Vec<Vec<u8>>>,
) -> anyhow::Result<impl FnMut(usize) -> anyhow::Result<()>> {
    let mut stream = TcpStream::connect(address)?;
    Ok(move |round: usize| {
        for request in &steps[round % steps.len()] {
            stream.write_all(request)?;
            let mut reply = [0; 1024];
            let read = stream.read(&mut reply)?;
            let reply = String::from_utf8_lossy(&reply[..read]);
            anyhow::ensure!(reply.starts_with("HTTP/1.1 204"), "{reply}");
        }
        Ok(())
    })
}

/// A line for each series: half of them integers, half with two decimals.
fn lines(series: usize, step: usize) -> String {
    let line = |number| {
        let (time, value) = (START_SECONDS + step * 10, value(number));
        let (host, cpu) = (number / 10, number % 10);
        format!("put sys.cpu.user {time} {value} host=web{host:06} dc=lga cpu={cpu}\n")
    };
    (0..series).map(line).collect()
}

/// The same points as requests.
fn requests(series: usize, step: usize) -> Vec<Vec<u8>> {
    let point = |number: usize| {
        let (time, value) = (START_SECONDS + step * 10, value(number));
        let (host, cpu) = (number / 10, number % 10);
        format!(
            r#"{{"metric":"sys.cpu.user","timestamp":{time},"value":{value},"tags":{{"host":"web{host:06}","dc":"lga","cpu":"{cpu}"}}}}"#
        )
    };
    let points: Vec<String> = (0..series).map(point).collect();
    let request = |points: &[String]| {
        let body = format!("[{}]", points.join(","));
        let head = "POST /api/put HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ";
        format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
    };
    points.chunks(REQUEST_POINTS).map(request).collect()
}

fn value(number: usize) -> String {
    match number % 2 {
        0 => (number * 17 % 1000).to_string(),
        _ => format!("{}.{:02}", number % 97, number % 89 + 10),
    }
}

/// Acknowledges every write and drops it.
#[derive(Debug)]
struct NoStore;

#[async_trait]
impl Intercept for NoStore {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        match operation {
            Operation::Write { .. } => Ok(Response::Written),
            Operation::Scan { .. } => operation.perform(store).await,
            _ => Err(StoreError::Unavailable {
                detail: "nothing is kept here".to_owned(),
            }),
        }
    }
}
