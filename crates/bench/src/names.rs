//! Names: assignments, look-ups, and the start on a folder with millions of names.

use std::net::SocketAddr;
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
    /// Names that are looked up repeatedly; the cache of the server holds some 300,000 by default.
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
    let mut measure = |label: &str, names: u64, seconds: f64, cpu: f64, peak: u64| {
        #[expect(clippy::cast_precision_loss, reason = "millions")]
        let count = names as f64;
        table.add_row([
            label.to_owned(),
            thousands(count),
            thousands(count / seconds),
            format!("{:.2}", cpu * 1e6 / count),
            (peak >> 20).to_string(),
        ]);
    };

    let names = u64::from(arguments.names);
    let assign = (0..arguments.names)
        .step_by(arguments.assign_batch as usize)
        .map(|first| {
            let names = first..(first + arguments.assign_batch).min(arguments.names);
            encoded(&GetOrCreateUidsRequest {
                names: names.map(name).collect(),
                explicit: false,
            })
        });
    let assign: Vec<Bytes> = assign.collect();
    let before = server.usage()?;
    let started = Instant::now();
    let method = "/oxtsdb.uid.v1.UidService/GetOrCreateUids";
    let path = PathAndQuery::from_static(method);
    let assigned = send(
        server.uid,
        path,
        assign,
        arguments.in_flight,
        1,
        |response: &GetOrCreateUidsResponse| {
            use get_or_create_uids_response::result::Outcome;
            let is_uid = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Uid(_)));
            response
                .results
                .iter()
                .filter(|result| is_uid(&result.outcome))
                .count()
        },
    );
    ensure!(assigned.await? == names, "names were rejected");
    let used = server.usage()?;
    let cpu = used.cpu_seconds - before.cpu_seconds;
    measure(
        "assign",
        names,
        started.elapsed().as_secs_f64(),
        cpu,
        used.peak_memory,
    );

    let server = server.crash_and_restart()?;
    println!(
        "ready after kill -9 with {} names: {}",
        thousands(f64::from(arguments.names)),
        ms(server.start_time)
    );

    let warm = arguments.warm.min(arguments.names);
    let batches = (0..warm).step_by(arguments.lookup_batch as usize);
    let batches = batches.map(|first| first..(first + arguments.lookup_batch).min(warm));
    let lookup: Vec<Bytes> = batches
        .clone()
        .map(|names| {
            encoded(&LookupUidsRequest {
                names: names.map(name).collect(),
                bypass_cache: false,
            })
        })
        .collect();
    let rounds = usize::try_from(arguments.lookups / u64::from(warm.max(1)))?.max(1);
    let path = PathAndQuery::from_static("/oxtsdb.uid.v1.UidService/LookupUids");
    let count = |response: &LookupUidsResponse| {
        use lookup_uids_response::result::Outcome;
        let is_uid = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Uid(_)));
        response
            .results
            .iter()
            .filter(|result| is_uid(&result.outcome))
            .count()
    };
    for (label, rounds) in [
        ("look up names, first time", 1),
        ("look up names, cached", rounds),
    ] {
        let before = server.usage()?;
        let started = Instant::now();
        let found = send(
            server.uid,
            path.clone(),
            lookup.clone(),
            arguments.in_flight,
            rounds,
            count,
        )
        .await?;
        ensure!(found == u64::from(warm) * rounds as u64, "names were not found");
        let used = server.usage()?;
        let cpu = used.cpu_seconds - before.cpu_seconds;
        measure(
            label,
            found,
            started.elapsed().as_secs_f64(),
            cpu,
            used.peak_memory,
        );
    }

    let lookup: Vec<Bytes> = batches
        .map(|numbers| {
            let uids = numbers.map(|number| UidValue {
                kind: UidKind::TagValue.into(),
                // Sequential: the first name has number 1, in the order of the batches.
                uid: Bytes::copy_from_slice(&(number + 1).to_be_bytes()[1..]),
            });
            encoded(&LookupNamesRequest {
                uids: uids.collect(),
                bypass_cache: false,
            })
        })
        .collect();
    let path = PathAndQuery::from_static("/oxtsdb.uid.v1.UidService/LookupNames");
    let count = |response: &LookupNamesResponse| {
        use lookup_names_response::result::Outcome;
        let is_name = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Name(_)));
        response
            .results
            .iter()
            .filter(|result| is_name(&result.outcome))
            .count()
    };
    for (label, rounds) in [("look up UIDs, first time", 1), ("look up UIDs, cached", rounds)] {
        let before = server.usage()?;
        let started = Instant::now();
        let found = send(
            server.uid,
            path.clone(),
            lookup.clone(),
            arguments.in_flight,
            rounds,
            count,
        )
        .await?;
        ensure!(found == u64::from(warm) * rounds as u64, "UIDs were not found");
        let used = server.usage()?;
        let cpu = used.cpu_seconds - before.cpu_seconds;
        measure(
            label,
            found,
            started.elapsed().as_secs_f64(),
            cpu,
            used.peak_memory,
        );
    }
    server.stop()?;
    println!("{table}");
    Ok(())
}

fn name(number: u32) -> UidName {
    UidName {
        kind: UidKind::TagValue.into(),
        // As long as names of hosts are.
        name: format!("host-{number:07}.example"),
        tag_key: String::new(),
    }
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Sends encoded calls, each `rounds` times, over several connections. Returns the sum of what `count` returns for
/// the responses.
async fn send<R: Message + Default + 'static>(
    server: SocketAddr,
    path: PathAndQuery,
    calls: Vec<Bytes>,
    in_flight: usize,
    rounds: usize,
    count: impl Fn(&R) -> usize + Copy + Send + 'static,
) -> anyhow::Result<u64> {
    let calls: Arc<[Bytes]> = calls.into();
    let next = Arc::new(AtomicUsize::new(0));
    let total = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = channel(server).await?;
        for _ in 0..in_flight {
            let mut client = Grpc::new(channel.clone());
            let (calls, next, total, path) = (calls.clone(), next.clone(), total.clone(), path.clone());
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= calls.len() * rounds {
                        return anyhow::Ok(());
                    }
                    let call = calls[number % calls.len()].clone();
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
