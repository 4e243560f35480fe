//! Names: assignments, look-ups, and the start on a folder with millions of names.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use clap::Args;
use comfy_table::Table;
use http::uri::PathAndQuery;
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::{
    GetOrCreateUidsRequest, GetOrCreateUidsResponse, LookupNamesRequest, LookupNamesResponse,
    LookupUidsRequest, LookupUidsResponse, UidName, UidValue, get_or_create_uids_response,
    lookup_names_response, lookup_uids_response,
};
use prost::Message;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;

use crate::disk;
use crate::ingest::{CONNECTIONS, channel, raw_codec::RawCodec};
use crate::process::Server;
use crate::report::{ms, thousands};

/// Names on the embedded store: durable assignments per second, the start after `kill -9`, look-ups per second.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the server's data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Names to assign, tag values.
    #[arg(long, default_value_t = 5_000_000)]
    names: u32,
    /// Names in a call that assigns.
    #[arg(long, default_value_t = 1024)]
    assign_batch: u32,
    /// Names in a call that looks up.
    #[arg(long, default_value_t = 100)]
    lookup_batch: u32,
    /// Names that are looked up repeatedly; the cache of the server holds some 480,000 by default.
    #[arg(long, default_value_t = 100_000)]
    warm: u32,
    /// Look-ups.
    #[arg(long, default_value_t = 20_000_000)]
    lookups: u64,
    /// Calls in flight on each connection.
    #[arg(long, default_value_t = 8)]
    in_flight: usize,
}

/// Runs all measurements on one server.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned())
        .join("names");
    std::fs::create_dir_all(&folder)?;
    let (median, high) = disk::sync_times(&folder)?;
    println!(
        "fdatasync of 4 KiB: median {}, 99th percentile {}",
        ms(median),
        ms(high)
    );
    let mut table = Table::new();
    table.set_header([
        "measurement",
        "names",
        "names/s",
        "server CPU µs per name",
        "peak MiB",
    ]);
    let server = Server::start(&program, &folder)?;
    let names = 0..arguments.names;
    let assign = batches(names.clone(), arguments.assign_batch, |numbers| {
        GetOrCreateUidsRequest {
            names: numbers.map(name).collect(),
            explicit: false,
            ..Default::default()
        }
    });
    let calls = Calls::new("GetOrCreateUids", assign, arguments.names, arguments.in_flight);
    table.add_row(measure(&server, &calls, 1, "assign", assigned).await?);

    let server = server.crash_and_restart()?;
    println!(
        "ready after kill -9 with {} names: {}",
        thousands(f64::from(arguments.names)),
        ms(server.start_time)
    );

    let warm = arguments.warm.min(arguments.names);
    let rounds = usize::try_from(arguments.lookups / u64::from(warm.max(1)))?.max(1);
    let lookup = batches(0..warm, arguments.lookup_batch, |numbers| LookupUidsRequest {
        names: numbers.map(name).collect(),
        bypass_cache: false,
        ..Default::default()
    });
    let calls = Calls::new("LookupUids", lookup, warm, arguments.in_flight);
    let count = |response: &LookupUidsResponse| {
        use lookup_uids_response::result::Outcome;
        let results = response.results.iter();
        results
            .filter(|result| matches!(result.outcome, Some(Outcome::Uid(_))))
            .count()
    };
    table.add_row(measure(&server, &calls, 1, "look up names, first time", count).await?);
    table.add_row(measure(&server, &calls, rounds, "look up names, cached", count).await?);

    let lookup = batches(0..warm, arguments.lookup_batch, |numbers| LookupNamesRequest {
        uids: numbers.map(uid).collect(),
        bypass_cache: false,
        ..Default::default()
    });
    let calls = Calls::new("LookupNames", lookup, warm, arguments.in_flight);
    let count = |response: &LookupNamesResponse| {
        use lookup_names_response::result::Outcome;
        let results = response.results.iter();
        results
            .filter(|result| matches!(result.outcome, Some(Outcome::Name(_))))
            .count()
    };
    table.add_row(measure(&server, &calls, 1, "look up UIDs, first time", count).await?);
    table.add_row(measure(&server, &calls, rounds, "look up UIDs, cached", count).await?);
    server.stop()?;
    println!("{table}");
    Ok(())
}

/// The number of UIDs in a response.
pub(crate) fn assigned(response: &GetOrCreateUidsResponse) -> usize {
    use get_or_create_uids_response::result::Outcome;
    let results = response.results.iter();
    results
        .filter(|result| matches!(result.outcome, Some(Outcome::Uid(_))))
        .count()
}

/// Encoded calls of one method.
pub(crate) struct Calls {
    path: PathAndQuery,
    batches: Arc<[Bytes]>,
    /// Items of all batches.
    items: u32,
    in_flight: usize,
}

impl Calls {
    pub(crate) fn new(method: &str, batches: Arc<[Bytes]>, items: u32, in_flight: usize) -> Self {
        let path = format!("/oxtsdb.uid.v1.UidService/{method}");
        Self {
            path: PathAndQuery::from_maybe_shared(path).expect("a path"),
            batches,
            items,
            in_flight,
        }
    }
}

/// Encodes a request for each batch of some numbers.
pub(crate) fn batches<M: Message>(
    numbers: Range<u32>,
    size: u32,
    request: impl Fn(Range<u32>) -> M,
) -> Arc<[Bytes]> {
    let end = numbers.end;
    let firsts = numbers.step_by(size as usize);
    firsts
        .map(|first| {
            let batch = first..end.min(first + size);
            Bytes::from(request(batch).encode_to_vec())
        })
        .collect()
}

/// Sends all calls `rounds` times; returns their row of the table. `count` counts the successes of a response.
async fn measure<R: Message + Default + 'static>(
    server: &Server,
    calls: &Calls,
    rounds: usize,
    label: &str,
    count: impl Fn(&R) -> usize + Copy + Send + 'static,
) -> anyhow::Result<[String; 5]> {
    let items = u64::from(calls.items) * rounds as u64;
    let before = server.usage()?;
    let started = Instant::now();
    let succeeded = send(server.uid, calls, rounds, count).await?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(succeeded == items, "{label}: {succeeded} of {items} succeeded");
    let used = server.usage()?;
    let cpu = used.cpu_seconds - before.cpu_seconds;
    #[expect(clippy::cast_precision_loss, reason = "millions")]
    let items = items as f64;
    Ok([
        label.to_owned(),
        thousands(items),
        thousands(items / seconds),
        format!("{:.2}", cpu * 1e6 / items),
        (used.peak_memory >> 20).to_string(),
    ])
}

fn name(number: u32) -> UidName {
    UidName {
        kind: UidKind::TagValue.into(),
        // As long as names of hosts are.
        name: format!("host-{number:07}.example"),
        tag_key: String::new(),
    }
}

/// The UID of a name: sequential from 1, in the order of the batches.
fn uid(number: u32) -> UidValue {
    UidValue {
        kind: UidKind::TagValue.into(),
        uid: Bytes::copy_from_slice(&(number + 1).to_be_bytes()[1..]),
    }
}

/// Sends calls `rounds` times, over several connections. Returns the sum of what `count` returns for the responses.
pub(crate) async fn send<R: Message + Default + 'static>(
    server: SocketAddr,
    calls: &Calls,
    rounds: usize,
    count: impl Fn(&R) -> usize + Copy + Send + 'static,
) -> anyhow::Result<u64> {
    let next = Arc::new(AtomicUsize::new(0));
    let total = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = channel(server).await?;
        for _ in 0..calls.in_flight {
            let mut client = Grpc::new(channel.clone());
            let (batches, path) = (Arc::clone(&calls.batches), calls.path.clone());
            let (next, total) = (Arc::clone(&next), Arc::clone(&total));
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= batches.len() * rounds {
                        return anyhow::Ok(());
                    }
                    let call = batches[number % batches.len()].clone();
                    client
                        .ready()
                        .await
                        .map_err(|error| anyhow!("not ready: {error}"))?;
                    let response = client
                        .unary(Request::new(call), path.clone(), RawCodec::<R>::default())
                        .await?;
                    total.fetch_add(count(response.get_ref()) as u64, Ordering::Relaxed);
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(total.load(Ordering::Relaxed))
}
