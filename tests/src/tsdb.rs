//! `tsdb serve`, both services in one process.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_admin_service_client::DataAdminServiceClient;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::health::{DATA_SERVICE, UID_SERVICE, check_serving};
use crate::http::Http;
use crate::process::Process;
use crate::telnet::Telnet;
use crate::{ports, program, wait};

/// Largest message that the clients accept: responses may exceed gRPC's default of 4 MiB.
const MAX_RESPONSE: usize = 64 << 20;

/// How to run a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    data_dir: Option<PathBuf>,
    arguments: Vec<String>,
    descriptors: Option<u64>,
    variables: Vec<(String, String)>,
}

impl Options {
    /// Limits its descriptors, soft and hard.
    #[must_use]
    pub fn descriptors(mut self, limit: u64) -> Self {
        self.descriptors = Some(limit);
        self
    }

    /// Runs it with these variables.
    #[must_use]
    pub fn variables(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Keeps its data in this folder, in place of a temporary one.
    #[must_use]
    pub fn data_dir(mut self, folder: &Path) -> Self {
        self.data_dir = Some(folder.to_owned());
        self
    }

    /// More flags, each as `--name=value`.
    #[must_use]
    pub fn flags(mut self, flags: impl IntoIterator<Item = String>) -> Self {
        self.arguments.extend(flags);
        self
    }

    /// Whether a flag is set.
    fn has(&self, name: &str) -> bool {
        let is_set = |argument: &String| argument.split('=').next() == Some(name);
        self.arguments.iter().any(is_set)
    }

    /// One more flag with its value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.arguments.push(format!("{name}={value}"));
        self
    }
}

/// A running `tsdb serve`; dropping it kills the process.
#[derive(Debug)]
pub struct Tsdb {
    // Killed before its folder is removed: fields are dropped in this order.
    process: Process,
    http: SocketAddr,
    data: SocketAddr,
    uid: SocketAddr,
    admin: SocketAddr,
    options: Options,
    data_dir: PathBuf,
    folder: TempDir,
}

impl Tsdb {
    /// Starts it on an empty store with default settings.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts it with options.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start_with(options: Options) -> anyhow::Result<Self> {
        let mut tsdb = Self::launch(options)?;
        tsdb.wait_until_ready().await?;
        Ok(tsdb)
    }

    /// Starts it without variables and flags of before, on the same folder, after it has exited.
    ///
    /// # Errors
    ///
    /// As [`Tsdb::restart`].
    pub async fn restart_with(&mut self, options: Options) -> anyhow::Result<()> {
        self.options = options;
        self.restart().await
    }

    /// Starts it on a folder that it may reject: it serves, or exits with status 1. Returns the output of one that
    /// exits.
    ///
    /// # Errors
    ///
    /// If it neither serves nor exits within a minute, or exits with another status.
    pub async fn try_start(options: Options) -> anyhow::Result<Result<Self, String>> {
        let mut tsdb = Self::launch(options)?;
        let status = wait::until("tsdb serves or exits", || {
            let ended = tsdb.process.ended();
            let is_ready = prints_ready(&tsdb.process);
            async move {
                let ended = ended?;
                ensure!(is_ready || ended.is_some(), "it starts");
                Ok(ended)
            }
        })
        .await
        .with_context(|| tsdb.process.log())?;
        let Some(status) = status else {
            tsdb.wait_until_ready().await?;
            return Ok(Ok(tsdb));
        };
        let log = tsdb.process.log();
        ensure!(status.code() == Some(1), "{status}:\n{log}");
        Ok(Err(log))
    }

    /// Starts one that must fail: it exits with status 1 and is never ready. Returns its error, a line
    /// without the program's name.
    ///
    /// # Errors
    ///
    /// If it serves, does not exit, exits with another status, or does not print exactly one error.
    pub async fn failed_start(options: Options) -> anyhow::Result<String> {
        let mut tsdb = Self::launch(options)?;
        let (data, uid) = (tsdb.data_channel(), tsdb.uid_channel());
        let status = wait::until("tsdb ends", || {
            let ended = tsdb.process.ended();
            let (data, uid) = (data.clone(), uid.clone());
            async move {
                if let Some(status) = ended? {
                    return Ok(Some(status));
                }
                let data = check_serving(data, DATA_SERVICE).await;
                let uid = check_serving(uid, UID_SERVICE).await;
                ensure!(data.is_ok() || uid.is_ok(), "it still runs");
                Ok(None)
            }
        })
        .await?;
        let log = tsdb.process.log();
        let status = status.with_context(|| format!("it was ready:\n{log}"))?;
        ensure!(status.code() == Some(1), "{status}:\n{log}");
        let mut errors = log.lines().filter_map(|line| line.strip_prefix("tsdb: "));
        let error = errors.next().with_context(|| format!("no error:\n{log}"))?;
        let is_last = log.trim_end().ends_with(error) && errors.next().is_none();
        ensure!(is_last, "the error is not one line at the end:\n{log}");
        Ok(error.to_owned())
    }

    fn launch(options: Options) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let data_dir = options
            .data_dir
            .clone()
            .unwrap_or_else(|| folder.path().join("data"));
        let [http, data, uid, admin] = [ports::free()?, ports::free()?, ports::free()?, ports::free()?];
        let ports = [http, data, uid, admin];
        Ok(Self {
            process: run(&data_dir, ports, &options, folder.path())?,
            http,
            data,
            uid,
            admin,
            options,
            data_dir,
            folder,
        })
    }

    /// `kill -9`, as a crash.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        self.process.kill9()
    }

    /// Sends SIGTERM and waits until it exits.
    ///
    /// # Errors
    ///
    /// If it does not exit.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.process.terminate()?;
        self.process.wait().await
    }

    /// Starts it again with the same folder and ports, after it has exited.
    ///
    /// # Errors
    ///
    /// If it still runs, or does not serve within a minute.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.ended()?.is_some(), "the server still runs");
        self.process = run(
            &self.data_dir,
            [self.http, self.data, self.uid, self.admin],
            &self.options,
            self.folder.path(),
        )?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let (data, uid, http) = (self.data_channel(), self.uid_channel(), self.http());
        let process = &mut self.process;
        // The clients here have no certificates.
        let has_tls = self.options.has("--tls-certificate");
        wait::until("tsdb serves", || {
            let running = process.check_running();
            let is_ready = prints_ready(process);
            let (data, uid, http) = (data.clone(), uid.clone(), http.clone());
            async move {
                running?;
                if has_tls {
                    ensure!(is_ready, "it is not ready");
                    return Ok(());
                }
                check_serving(data, DATA_SERVICE).await?;
                check_serving(uid, UID_SERVICE).await?;
                let version = http.get("/api/version").await?;
                // 401: it serves callers with rights.
                let serves = [200, 401].contains(&version.status);
                ensure!(serves, "/api/version returns {}", version.status);
                Ok(())
            }
        })
        .await
        .with_context(|| self.process.log())
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Cuts the TCP connections that it has opened, such as those to HBase; returns how many.
    ///
    /// # Errors
    ///
    /// As [`Process::cut_connections`].
    pub fn cut_outgoing_connections(&self) -> anyhow::Result<usize> {
        let listens = [self.http, self.data, self.uid, self.admin].map(|address| address.port());
        let is_outgoing = |socket: &TcpStream| {
            let local = socket.local_addr().map(|address| address.port());
            local.is_ok_and(|port| !listens.contains(&port))
        };
        self.process.cut_connections(is_outgoing)
    }

    /// The folder of the data.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A temporary folder that is removed with this value.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Client of the data service.
    pub fn data(&self) -> DataServiceClient<Channel> {
        DataServiceClient::new(self.data_channel()).max_decoding_message_size(MAX_RESPONSE)
    }

    /// Client of the operator calls of the data service.
    pub fn data_admin(&self) -> DataAdminServiceClient<Channel> {
        DataAdminServiceClient::new(self.data_channel()).max_decoding_message_size(MAX_RESPONSE)
    }

    /// Client of the UID service.
    pub fn uids(&self) -> UidServiceClient<Channel> {
        UidServiceClient::new(self.uid_channel()).max_decoding_message_size(MAX_RESPONSE)
    }

    /// A new connection to the data service.
    pub fn data_channel(&self) -> Channel {
        channel(self.data)
    }

    /// A new connection to the UID service.
    pub fn uid_channel(&self) -> Channel {
        channel(self.uid)
    }

    /// Client of HTTP.
    pub fn http(&self) -> Http {
        Http::new(self.http)
    }

    /// Client of the admin listener.
    pub fn admin(&self) -> Http {
        Http::new(self.admin)
    }

    /// A new telnet connection.
    ///
    /// # Errors
    ///
    /// If the server does not accept.
    pub async fn telnet(&self) -> anyhow::Result<Telnet> {
        Telnet::connect(self.http).await
    }

    /// Address of HTTP and telnet.
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Address of the data service.
    pub fn data_address(&self) -> SocketAddr {
        self.data
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Address of the UID service.
    pub fn uid_address(&self) -> SocketAddr {
        self.uid
    }
}

/// Whether the program has printed that it serves. The line may be the first one, as the log is another stream.
fn prints_ready(process: &Process) -> bool {
    process.log().lines().any(|line| line.starts_with("ready http="))
}

fn run(
    data_dir: &Path,
    [http, data, uid, admin]: [SocketAddr; 4],
    options: &Options,
    folder: &Path,
) -> anyhow::Result<Process> {
    let mut arguments = vec![
        "serve".to_owned(),
        format!("--data-dir={}", data_dir.display()),
        format!("--http-listen={http}"),
        format!("--data-listen={data}"),
        format!("--uid-listen={uid}"),
        format!("--admin-listen={admin}"),
    ];
    arguments.extend(options.arguments.iter().cloned());
    let log = folder.join("tsdb.log");
    let program = program::path("tsdb")?;
    Process::run_program(&program, arguments, &log, options.descriptors, &options.variables)
}

/// A connection that is opened by the first call, and reopened when it breaks.
pub(crate) fn channel(address: SocketAddr) -> Channel {
    let uri = http::Uri::builder()
        .scheme("http")
        .authority(address.to_string())
        .path_and_query("/")
        .build()
        .expect("an address and a slash are a URI");
    Endpoint::from(uri).tcp_nodelay(true).connect_lazy()
}
