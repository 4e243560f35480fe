//! Queries on the embedded store beside OpenTSDB on HBase: the same points, in one run.
//!
//! OxTSDB fills OpenTSDB's tables, which is faster and leaves each row as one compacted
//! cell, the form that OpenTSDB reads fastest.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use comfy_table::Table;

use crate::ingest;
use crate::process::{Server, cpu_seconds_of};
use crate::queries::{self, Query};
use crate::report::{ms, thousands};
use crate::rig::Rig;
use crate::workload::{Order, START_SECONDS, STEP_SECONDS, Shape, Workload};

/// Queries on the embedded store, beside OpenTSDB on HBase; `tests/hbase/bench.sh queries` starts the servers.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rig: Rig,
    /// Hosts.
    #[arg(long, default_value_t = 1000)]
    hosts: u32,
    /// Hours of the long range.
    #[arg(long, default_value_t = 24)]
    hours: u32,
    /// Runs of each query; of the long range a fifth.
    #[arg(long, default_value_t = 20)]
    query_runs: usize,
}

/// Fills both and queries both.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let fleet = Shape {
        hosts: arguments.hosts,
        metrics: 10,
        steps: 360,
        step_seconds: STEP_SECONDS,
        start_seconds: START_SECONDS,
    };
    // A metric of its own day.
    let range = Shape {
        metrics: 1,
        steps: arguments.hours * 360,
        start_seconds: START_SECONDS + 10 * 86_400,
        ..fleet
    };
    let embedded = Server::start(&program, &folder.path().join("embedded"))?;
    let flags = arguments.rig.store_flags();
    let on_hbase = Server::start_with(&program, &folder.path().join("hbase"), &flags)?;
    for server in [&on_hbase, &embedded] {
        // New names in small batches: on HBase each takes several round trips.
        for shape in [fleet, range] {
            let first = Workload::new(Shape { steps: 1, ..shape });
            let calls = ingest::write::encode(&first, Order::Time { points: 100 });
            ingest::write::send(server.data, &calls).await?;
        }
        write(server, fleet).await?;
        for hour in 0..arguments.hours {
            let start_seconds = range.start_seconds + hour * 3600;
            write(
                server,
                Shape {
                    steps: 360,
                    start_seconds,
                    ..range
                },
            )
            .await?;
        }
    }
    on_hbase.stop()?;
    println!(
        "{} and {} points of {} hosts",
        thousands(fleet.points() as f64),
        thousands(range.points() as f64),
        arguments.hosts
    );

    let mut table = Table::new();
    table.set_header([
        "query",
        "points read",
        "points returned",
        "OpenTSDB median / p99",
        "OxTSDB median / p99",
        "OxTSDB, gRPC",
        "ratio",
        "points read / CPU s, OpenTSDB with HBase",
        "OxTSDB",
    ]);
    let rig = format!("-Doxtsdb.rig={}", arguments.rig.folder.display());
    let cases = queries::all(fleet)
        .into_iter()
        .map(|query| (query, arguments.query_runs))
        .chain([(queries::range(range), arguments.query_runs.div_ceil(5))]);
    for (query, runs) in cases {
        let before = cpu_seconds_of(&rig)?;
        let opentsdb = query.time_http(arguments.rig.opentsdb, runs).await?;
        let its_cpu = cpu_seconds_of(&rig)? - before;
        let before = embedded.usage()?.cpu_seconds;
        let oxtsdb = query.time_http(embedded.http, runs).await?;
        let our_cpu = embedded.usage()?.cpu_seconds - before;
        let grpc = query.time_grpc(embedded.data, runs).await?;
        for (server, timing) in [("OpenTSDB", opentsdb), ("OxTSDB", oxtsdb), ("OxTSDB, gRPC", grpc)] {
            ensure!(
                timing.points == query.expected,
                "{}: {server} returned {} points, expected {}",
                query.name,
                timing.points,
                query.expected
            );
        }
        // The warm-up run costs processor time too.
        let per_second = |query: &Query, cpu: f64| {
            let read = (query.read * (runs + 1)) as f64;
            thousands(read / cpu.max(0.01))
        };
        table.add_row([
            query.name.to_owned(),
            thousands(query.read as f64),
            oxtsdb.points.to_string(),
            format!("{} / {}", ms(opentsdb.median), ms(opentsdb.p99)),
            format!("{} / {}", ms(oxtsdb.median), ms(oxtsdb.p99)),
            format!("{} / {}", ms(grpc.median), ms(grpc.p99)),
            format!(
                "{:.1}",
                opentsdb.median.as_secs_f64() / oxtsdb.median.as_secs_f64()
            ),
            per_second(&query, its_cpu),
            per_second(&query, our_cpu),
        ]);
    }
    println!("{table}");
    println!(
        "peak memory of the embedded server, writes included: {} MiB",
        embedded.usage()?.peak_memory >> 20
    );
    embedded.stop()
}

async fn write(server: &Server, shape: Shape) -> anyhow::Result<()> {
    let streams = ingest::stream::encode(&Workload::new(shape), Order::Time { points: 1000 });
    ingest::stream::send(server.data, &streams).await?;
    Ok(())
}
