//! Queries of OpenTSDB and OxTSDB on one HBase, over the rows that each of them stored.
//!
//! HBase, its gateway and OpenTSDB compile what they run often: the first queries through a gateway take up to four
//! times as long as later ones. So all queries run on all servers in turn before the first one is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use comfy_table::Table;

use super::Subject;
use crate::process::Server;
use crate::queries;
use crate::report::ms;
use crate::workload::Shape;

/// The servers that are compared.
#[derive(Debug)]
pub(super) struct Servers<'a> {
    pub(super) opentsdb: SocketAddr,
    pub(super) oxtsdb: &'a Server,
    /// It uses `tsdb-meta` as an index.
    pub(super) indexed: &'a Server,
}

/// Indexes the series in `tsdb-meta`, as `server` finds them, and starts a server that trusts this index.
pub(super) fn start_indexed(
    program: &Path,
    folder: &Path,
    server: &Server,
    flags: &[String],
) -> anyhow::Result<Server> {
    let [uid, data] = [server.uid, server.data].map(|address| format!("http://{address}"));
    let status = Command::new(program)
        .args(["uid", "metasync", "--uid-target", &uid, "--target", &data])
        .status()
        .context("run `tsdb uid metasync`")?;
    ensure!(status.success(), "`tsdb uid metasync` ended with {status}");
    let trusting = ["--enable-tsuid-tracking", "--trust-tsuid-tracking"].map(str::to_owned);
    Server::start_with(
        program,
        &folder.join("serve-indexed"),
        &[flags, &trusting].concat(),
    )
}

impl Servers<'_> {
    /// Runs the queries and returns their table.
    pub(super) async fn compare(
        &self,
        written: &[(Subject, Shape)],
        warm_up: Duration,
        runs: usize,
    ) -> anyhow::Result<Table> {
        let servers = [self.opentsdb, self.oxtsdb.http, self.indexed.http];
        let until = Instant::now() + warm_up;
        while Instant::now() < until {
            for query in written.iter().flat_map(|(_, shape)| queries::all(*shape)) {
                for server in servers {
                    query.time_http(server, 1).await?;
                }
            }
        }
        let mut table = Table::new();
        table.set_header([
            "rows by",
            "query",
            "points",
            "OpenTSDB median / p99",
            "OxTSDB median / p99",
            "ratio",
            "OxTSDB, gRPC",
            "OxTSDB, trusted index",
            "ratio",
        ]);
        for (by, shape) in written {
            for query in queries::all(*shape) {
                let [opentsdb, oxtsdb, indexed] = [
                    query.time_http(servers[0], runs).await?,
                    query.time_http(servers[1], runs).await?,
                    query.time_http(servers[2], runs).await?,
                ];
                let grpc = query.time_grpc(self.oxtsdb.data, runs).await?;
                for (server, timing) in [
                    ("OpenTSDB", opentsdb),
                    ("OxTSDB", oxtsdb),
                    ("OxTSDB with an index", indexed),
                    ("OxTSDB, gRPC", grpc),
                ] {
                    ensure!(
                        timing.points == query.expected,
                        "{}: {server} returned {} points, expected {}",
                        query.name,
                        timing.points,
                        query.expected
                    );
                }
                let times = |timing: queries::Timing| format!("{} / {}", ms(timing.median), ms(timing.p99));
                let ratio = |timing: queries::Timing| {
                    let ratio = opentsdb.median.as_secs_f64() / timing.median.as_secs_f64();
                    format!("{ratio:.1}")
                };
                table.add_row([
                    format!("{by:?}"),
                    query.name.to_owned(),
                    oxtsdb.points.to_string(),
                    times(opentsdb),
                    times(oxtsdb),
                    ratio(oxtsdb),
                    times(grpc),
                    times(indexed),
                    ratio(indexed),
                ]);
            }
        }
        Ok(table)
    }
}
