//! Assignments of OxTSDB beside OpenTSDB's, on one HBase and in one run.
//!
//! All names are new, and each load is complete when its last response has arrived: both servers answer after
//! HBase has stored the mappings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use tokio::task::JoinSet;

use crate::ingest::CONNECTIONS;
use crate::ingest::http::Connection;
use crate::names::{Calls, assigned, batches, send};
use crate::process::{Server, cpu_seconds_of};
use crate::report::thousands;
use crate::rig::Rig;

/// Assignments beside OpenTSDB's, both on one HBase; `tests/hbase/bench.sh` starts the servers.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rig: Rig,
    /// Repetitions of each load.
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// New names of a load, tag values.
    #[arg(long, default_value_t = 20_000)]
    names: u32,
    /// Names in a call.
    #[arg(long, default_value_t = 1000)]
    batch: u32,
    /// Calls in flight on each gRPC connection; HTTP has one connection for each.
    #[arg(long, default_value_t = 4)]
    in_flight: usize,
}

/// Runs the loads in turn and prints a table.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let flags = arguments.rig.store_flags();
    let server = Server::start_with(&program, &folder.path().join("serve"), &flags)?;
    let rig = format!("-Doxtsdb.rig={}", arguments.rig.folder.display());
    let opentsdb = arguments.rig.opentsdb;
    let cpu_seconds = || anyhow::Ok(cpu_seconds_of(&rig)? + server.usage()?.cpu_seconds);
    let mut table = Table::new();
    table.set_header(["round", "server", "names/s", "ratio", "CPU µs per name"]);
    let count = f64::from(arguments.names);
    for round in 1..=arguments.rounds {
        let mut of_opentsdb = None;
        for load in ["OpenTSDB, HTTP", "OxTSDB, HTTP", "OxTSDB, gRPC"] {
            let prefix = load.replace(", ", "-");
            let name = |number: u32| format!("{prefix}-{round}-{number:07}");
            let (before, started) = (cpu_seconds()?, Instant::now());
            match load {
                "OpenTSDB, HTTP" => over_http(opentsdb, &arguments, name).await?,
                "OxTSDB, HTTP" => over_http(server.http, &arguments, name).await?,
                _ => over_grpc(server.uid, &arguments, name).await?,
            }
            let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds()? - before);
            let rate = count / seconds;
            table.add_row([
                round.to_string(),
                load.to_owned(),
                thousands(rate),
                format!("{:.1}", rate / *of_opentsdb.get_or_insert(rate)),
                thousands(cpu * 1e6 / count),
            ]);
        }
    }
    server.stop()?;
    println!("{table}");
    Ok(())
}

/// `POST /api/uid/assign`.
async fn over_http(
    server: SocketAddr,
    arguments: &Arguments,
    name: impl Fn(u32) -> String,
) -> anyhow::Result<()> {
    let requests: Arc<[String]> = (0..arguments.names)
        .step_by(arguments.batch as usize)
        .map(|first| {
            let names: Vec<String> = (first..arguments.names.min(first + arguments.batch))
                .map(&name)
                .collect();
            let body = serde_json::json!({ "tagv": names }).to_string();
            let head = "POST /api/uid/assign HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json";
            format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        })
        .collect();
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS * arguments.in_flight {
        let (requests, next) = (Arc::clone(&requests), Arc::clone(&next));
        tasks.spawn(async move {
            let mut connection = Connection::open(server).await?;
            let mut assigned = 0;
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (status, body) = connection.exchange(request.as_bytes()).await?;
                let text = String::from_utf8_lossy(&body);
                ensure!(status == 200, "status {status}: {text}");
                let body: serde_json::Value = serde_json::from_slice(&body)?;
                assigned += body["tagv"].as_object().context("UIDs by name")?.len();
            }
            Ok(assigned)
        });
    }
    let mut assigned = 0;
    while let Some(task) = tasks.join_next().await {
        assigned += task??;
    }
    ensure!(
        assigned == arguments.names as usize,
        "{assigned} names were assigned"
    );
    Ok(())
}

/// `GetOrCreateUids`.
async fn over_grpc(
    server: SocketAddr,
    arguments: &Arguments,
    name: impl Fn(u32) -> String,
) -> anyhow::Result<()> {
    let requests = batches(0..arguments.names, arguments.batch, |numbers| {
        let names = numbers.map(|number| UidName {
            kind: UidKind::TagValue.into(),
            name: name(number),
            tag_key: String::new(),
        });
        GetOrCreateUidsRequest {
            names: names.collect(),
            explicit: true,
            ..Default::default()
        }
    });
    let calls = Calls::new("GetOrCreateUids", requests, arguments.names, arguments.in_flight);
    let count = send(server, &calls, 1, assigned).await?;
    ensure!(count == u64::from(arguments.names), "{count} names were assigned");
    Ok(())
}
