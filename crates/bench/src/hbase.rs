//! OxTSDB beside OpenTSDB, on one HBase and in one run: alternating writes, then queries through both.
//!
//! Each load has an hour of its own, so that all rows are new. A load ends when a query of its server
//! returns all of it, because OpenTSDB acknowledges points that it only has in memory.

mod compare;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;

use crate::ingest;
use crate::ingest::http::Connection;
use crate::process::{Server, cpu_seconds_of, own_usage};
use crate::report::thousands;
use crate::rig::Rig;
use crate::workload::{Order, START_SECONDS, STEP_SECONDS, Shape, Workload};

/// Beside OpenTSDB, both on one HBase; `tests/hbase/bench.sh` starts the servers.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    rig: Rig,
    /// Repetitions of each load.
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Hosts, each with 10 series.
    #[arg(long, default_value_t = 1000)]
    hosts: u32,
    /// Points of each series, 10 s apart, at most 360.
    #[arg(long, default_value_t = 360)]
    steps: u32,
    /// Runs of each query.
    #[arg(long, default_value_t = 20)]
    query_runs: usize,
    /// Seconds of queries before those that are measured.
    #[arg(long, default_value_t = 20)]
    warm_up_seconds: u64,
}

/// The server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    OpenTsdb,
    OxTsdb,
}

/// The front end of a load.
#[derive(Clone, Copy, Debug)]
enum FrontEnd {
    Telnet,
    Http,
    Write,
    Stream,
}

/// The loads of a round, in turn.
const TURNS: [(Subject, FrontEnd); 6] = [
    (Subject::OpenTsdb, FrontEnd::Telnet),
    (Subject::OxTsdb, FrontEnd::Telnet),
    (Subject::OpenTsdb, FrontEnd::Http),
    (Subject::OxTsdb, FrontEnd::Http),
    (Subject::OxTsdb, FrontEnd::Write),
    (Subject::OxTsdb, FrontEnd::Stream),
];

/// Time order: 1,000 points a batch. Series by series: 60.
const ORDERS: [(&str, Order); 2] = [
    ("time", Order::Time { points: 1000 }),
    ("series", Order::Series { points: 60 }),
];

/// Time until a load is visible after it was sent.
const PATIENCE: Duration = Duration::from_secs(300);

/// Cost of a load until all of it is visible.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Accepted points.
    points: usize,
    wall: Duration,
    /// Processor seconds of the server and of HBase with its gateways.
    cpu: f64,
    /// Those of HBase with its gateways; also of the idle OpenTSDB while OxTSDB has the load.
    hbase_cpu: f64,
    generator: f64,
}

/// The servers and their addresses.
struct Bench {
    server: Server,
    opentsdb: SocketAddr,
    rig: String,
}

/// Runs the benchmark and prints its tables.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    ensure!(
        (1..=360).contains(&arguments.steps),
        "--steps {}: expected 1 to 360",
        arguments.steps
    );
    let folder = tempfile::tempdir()?;
    let flags = arguments.rig.store_flags();
    let server = Server::start_with(&program, &folder.path().join("serve"), &flags)?;
    let bench = Bench {
        server,
        opentsdb: arguments.rig.opentsdb,
        rig: format!("-Doxtsdb.rig={}", arguments.rig.folder.display()),
    };
    let mut hour = 0;
    let mut next_shape = || {
        hour += 1;
        Shape {
            hosts: arguments.hosts,
            metrics: 10,
            steps: arguments.steps,
            step_seconds: STEP_SECONDS,
            start_seconds: START_SECONDS + hour * 3600,
        }
    };
    // The names are assigned before the clock starts.
    let first = Workload::new(Shape {
        steps: 1,
        ..next_shape()
    });
    bench
        .take(Subject::OpenTsdb, FrontEnd::Http, &first, ORDERS[0].1)
        .await?;
    println!(
        "a load: {} series, {} points",
        first.shape.series(),
        first.shape.series() * arguments.steps as usize
    );

    let mut loads = Table::new();
    loads.set_header([
        "order",
        "front end",
        "round",
        "server",
        "points/s",
        "CPU s/Mpt",
        "HBase s/Mpt",
        "generator s/Mpt",
        "rate ratio",
        "CPU ratio",
    ]);
    // The loads that are queried at the end: in order of time, with OpenTSDB's single cells and with
    // the compacted cells of OxTSDB's stream.
    let mut written: Vec<(Subject, Shape)> = Vec::new();
    for (order_name, order) in ORDERS {
        for round in 1..=arguments.rounds {
            let mut of_opentsdb: Option<(f64, f64)> = None;
            for (subject, front_end) in TURNS {
                let workload = Workload::new(next_shape());
                let taken = bench.take(subject, front_end, &workload, order).await?;
                let points = taken.points as f64;
                let rate = points / taken.wall.as_secs_f64();
                let cpu = taken.cpu / points * 1e6;
                let (mut times, mut part) = (String::new(), String::new());
                match (subject, of_opentsdb) {
                    (Subject::OxTsdb, Some((its_rate, its_cpu))) => {
                        times = format!("{:.1}", rate / its_rate);
                        part = format!("{:.2}", cpu / its_cpu);
                    }
                    // OxTSDB's other front ends are compared with the faster one of OpenTSDB's two.
                    (Subject::OxTsdb, None) => {}
                    (Subject::OpenTsdb, before) => {
                        if before.is_none_or(|(its_rate, _)| rate > its_rate) {
                            of_opentsdb = Some((rate, cpu));
                        }
                    }
                }
                let row = [
                    order_name.to_owned(),
                    format!("{front_end:?}"),
                    round.to_string(),
                    format!("{subject:?}"),
                    thousands(rate),
                    format!("{cpu:.2}"),
                    format!("{:.2}", taken.hbase_cpu / points * 1e6),
                    format!("{:.2}", taken.generator / points * 1e6),
                    times,
                    part,
                ];
                eprintln!("{}", row.join("  "));
                let rejected = workload.shape.points() - taken.points;
                if rejected > 0 {
                    println!(
                        "{order_name} {front_end:?}: {subject:?} rejected {rejected} points, which are lost"
                    );
                }
                loads.add_row(row);
                let is_queried = match subject {
                    Subject::OpenTsdb => true,
                    Subject::OxTsdb => matches!(front_end, FrontEnd::Stream),
                };
                if is_queried && rejected == 0 && !written.iter().any(|(by, _)| *by == subject) {
                    written.push((subject, workload.shape));
                }
            }
        }
    }
    println!("{loads}");
    println!(
        "CPU: the server, HBase and its Thrift server together, HBase: without the server; ratios: to OpenTSDB's faster front end so far\n"
    );
    let indexed = compare::start_indexed(&program, folder.path(), &bench.server, &flags)?;
    let servers = compare::Servers {
        opentsdb: bench.opentsdb,
        oxtsdb: &bench.server,
        indexed: &indexed,
    };
    let warm_up = Duration::from_secs(arguments.warm_up_seconds);
    println!(
        "{}",
        servers.compare(&written, warm_up, arguments.query_runs).await?
    );
    indexed.stop()?;
    bench.server.stop()
}

impl Bench {
    fn http(&self, subject: Subject) -> SocketAddr {
        match subject {
            Subject::OpenTsdb => self.opentsdb,
            Subject::OxTsdb => self.server.http,
        }
    }

    /// Processor seconds of a server and HBase with its gateways, and of these without the server.
    fn cpu_seconds(&self, subject: Subject) -> anyhow::Result<[f64; 2]> {
        let rig = cpu_seconds_of(&self.rig)?;
        Ok(match subject {
            Subject::OxTsdb => [rig + self.server.usage()?.cpu_seconds, rig],
            Subject::OpenTsdb => [rig, rig - cpu_seconds_of(&format!("{}/opentsdb", self.rig))?],
        })
    }

    /// Sends a load and waits until all of it is visible.
    async fn take(
        &self,
        subject: Subject,
        front_end: FrontEnd,
        workload: &Workload,
        order: Order,
    ) -> anyhow::Result<Taken> {
        let http = self.http(subject);
        enum Encoded {
            Telnet(ingest::telnet::Lines),
            Http(ingest::http::Requests),
            Write(ingest::write::Calls),
            Stream(ingest::stream::Streams),
        }
        let encoded = match front_end {
            FrontEnd::Telnet => Encoded::Telnet(ingest::telnet::encode(workload, order)),
            FrontEnd::Http => Encoded::Http(ingest::http::encode(workload, order)),
            FrontEnd::Write => Encoded::Write(ingest::write::encode(workload, order)),
            FrontEnd::Stream => Encoded::Stream(ingest::stream::encode(workload, order)),
        };
        let (before, own, started) = (self.cpu_seconds(subject)?, own_usage()?, Instant::now());
        let mut rejected = 0;
        match &encoded {
            Encoded::Telnet(lines) => rejected = ingest::telnet::send(http, lines).await?.rejected,
            Encoded::Http(requests) => {
                ingest::http::send(http, requests).await?;
            }
            Encoded::Write(calls) => {
                ingest::write::send(self.server.data, calls).await?;
            }
            Encoded::Stream(streams) => {
                ingest::stream::send(self.server.data, streams).await?;
            }
        }
        ensure!(
            rejected == 0 || subject == Subject::OpenTsdb,
            "OxTSDB rejected {rejected} lines"
        );
        let points = workload.shape.points() - rejected;
        let generator = own_usage()?.cpu_seconds - own.cpu_seconds;
        loop {
            // The time of the query itself does not count: the points that it returns were stored before it.
            let (wall, [cpu, hbase_cpu]) = (started.elapsed(), self.cpu_seconds(subject)?);
            let returned_points = count(http, workload.shape).await?;
            if returned_points == points {
                return Ok(Taken {
                    points,
                    wall,
                    cpu: cpu - before[0],
                    hbase_cpu: hbase_cpu - before[1],
                    generator,
                });
            }
            ensure!(
                started.elapsed() < wall + PATIENCE && returned_points < points,
                "{subject:?} returns {returned_points} of {points} points"
            );
        }
    }
}

/// Counts the points of a load that a server returns.
async fn count(server: SocketAddr, shape: Shape) -> anyhow::Result<usize> {
    let mut connection = Connection::open(server).await?;
    let mut points = 0;
    for metric in 0..shape.metrics {
        let path = format!(
            "/api/query?start={}&end={}&m=sum:1h-count:bench.metric{metric:02}",
            shape.start_seconds,
            shape.start_seconds + 3599
        );
        let (status, body) = connection.get(&path).await?;
        ensure!(
            status == 200,
            "{path}: status {status}: {}",
            String::from_utf8_lossy(&body)
        );
        let results: serde_json::Value = serde_json::from_slice(&body)?;
        let groups = results.as_array().context("results are an array")?;
        let counts = groups
            .iter()
            .filter_map(|group| group["dps"].as_object())
            .flat_map(serde_json::Map::values)
            .filter_map(serde_json::Value::as_f64);
        let sum: f64 = counts.sum();
        // A whole number of points, exact in a double.
        points += format!("{sum:.0}").parse::<usize>()?;
    }
    Ok(points)
}
