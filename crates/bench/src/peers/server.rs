//! The servers that are compared, each a process of its own on an empty folder.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::net::TcpStream;

use super::encode::FrontEnd;
use super::load::{End, Target};
use super::queries::Language;
use crate::ingest::http::Connection;
use crate::process::{Process, Server, Usage};

/// Time for a start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// One of the programs, and how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) language: Language,
    pub(crate) path: PathBuf,
    /// Memory that it may use, MiB; 0: its default.
    pub(crate) memory_mib: u64,
}

/// A running server.
#[derive(Debug)]
pub(crate) enum Running {
    OxTsdb(Box<Server>),
    VictoriaMetrics {
        process: Process,
        /// OpenTSDB's protocols.
        points: SocketAddr,
        http: SocketAddr,
    },
}

impl Program {
    pub(crate) fn name(&self) -> &'static str {
        match self.language {
            Language::OpenTsdb => "OxTSDB",
            Language::MetricsQl => "VictoriaMetrics",
        }
    }

    /// Starts it on a folder and waits until it serves.
    pub(crate) async fn start(&self, folder: &Path) -> anyhow::Result<Running> {
        let text = folder.to_str().context("the folder's name is text")?;
        match self.language {
            Language::OpenTsdb => {
                let mut flags = vec!["--data-dir".to_owned(), text.to_owned()];
                if self.memory_mib > 0 {
                    flags.extend(["--memory-limit-mib".to_owned(), self.memory_mib.to_string()]);
                }
                Ok(Running::OxTsdb(Box::new(Server::start_with(
                    &self.path, folder, &flags,
                )?)))
            }
            Language::MetricsQl => self.start_victoria_metrics(folder, text).await,
        }
    }

    async fn start_victoria_metrics(&self, folder: &Path, text: &str) -> anyhow::Result<Running> {
        let log_path = folder.with_extension("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(&log_path)?;
        let (http, points) = (free_address()?, free_address()?);
        let mut command = Command::new(&self.path);
        command
            .arg(format!("-storageDataPath={text}"))
            .arg(format!("-httpListenAddr={http}"))
            .arg(format!("-opentsdbListenAddr={points}"))
            // The same names of metrics from fields as OxTSDB's.
            .arg("-influxMeasurementFieldSeparator=.")
            // The queries are larger than its defaults permit.
            .args(["-retentionPeriod=100y", "-search.maxQueryDuration=10m"])
            .args([
                "-search.maxUniqueTimeseries=20000000",
                "-search.maxSamplesPerQuery=0",
            ])
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.memory_mib > 0 {
            command.arg(format!("-memory.allowedBytes={}MiB", self.memory_mib));
        }
        let mut process = Process::start(&mut command)?;
        let started = Instant::now();
        for address in [http, points] {
            while TcpStream::connect(address).await.is_err() {
                let waits = process.is_running()? && started.elapsed() < START_LIMIT;
                ensure!(waits, "VictoriaMetrics did not start; see {}", log_path.display());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(Running::VictoriaMetrics {
            process,
            points,
            http,
        })
    }
}

/// A port that was free a moment ago: VictoriaMetrics does not report the one that it gets for port 0.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

impl Running {
    /// Where it takes points of a protocol.
    pub(crate) fn target(&self, front_end: FrontEnd) -> Target {
        match self {
            Self::OxTsdb(server) => Target {
                path: match front_end {
                    FrontEnd::Telnet => "",
                    FrontEnd::Http => "/api/put",
                    FrontEnd::Influx => "/write?precision=s",
                    FrontEnd::RemoteWrite => "/api/v1/write",
                    FrontEnd::Otlp => "/v1/metrics?resource=host,dc,rack",
                },
                ..Target::telnet(server.http)
            },
            Self::VictoriaMetrics { points, http, .. } => {
                let (address, path) = match front_end {
                    FrontEnd::Telnet => (*points, ""),
                    FrontEnd::Http => (*points, "/api/put"),
                    FrontEnd::Influx => (*http, "/write?precision=s"),
                    FrontEnd::RemoteWrite => (*http, "/api/v1/write"),
                    FrontEnd::Otlp => (*http, "/opentelemetry/v1/metrics"),
                };
                Target {
                    address,
                    path,
                    end: End::Close,
                }
            }
        }
    }

    /// HTTP of queries.
    pub(crate) fn queries(&self) -> SocketAddr {
        match self {
            Self::OxTsdb(server) => server.http,
            Self::VictoriaMetrics { http, .. } => *http,
        }
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        match self {
            Self::OxTsdb(server) => server.usage(),
            Self::VictoriaMetrics { process, .. } => process.usage(),
        }
    }

    /// Makes all points visible to queries; OxTSDB's are when they are acknowledged.
    pub(crate) async fn publish(&self) -> anyhow::Result<()> {
        if let Self::VictoriaMetrics { http, .. } = self {
            let mut connection = Connection::open(*http).await?;
            let (status, _) = connection.get("/internal/force_flush").await?;
            ensure!(status == 200, "/internal/force_flush: status {status}");
        }
        Ok(())
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::OxTsdb(server) => server.stop(),
            Self::VictoriaMetrics { process, .. } => process.stop(),
        }
    }
}
