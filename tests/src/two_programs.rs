//! `uid-service` and `data-service` as processes of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use tonic::transport::Channel;

use crate::http::Http;
use crate::process::Process;
use crate::telnet::Telnet;
use crate::tsdb::channel;
use crate::{ports, wait};

/// A running `uid-service`.
#[derive(Debug)]
pub struct UidProgram {
    process: Process,
    launch: Launch,
    address: SocketAddr,
    admin: SocketAddr,
}

impl UidProgram {
    /// Starts it on a folder, at a given address or at a free one.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start(folder: &Path, address: Option<SocketAddr>) -> anyhow::Result<Self> {
        Self::start_with(folder, address, &[]).await
    }

    /// With more flags, each as `--name=value`.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start_with(
        folder: &Path,
        address: Option<SocketAddr>,
        flags: &[String],
    ) -> anyhow::Result<Self> {
        let address = address.map_or_else(ports::free, Ok)?;
        let admin = ports::free()?;
        let mut arguments = vec![
            format!("--data-dir={}", folder.join("uid").display()),
            format!("--uid-listen={address}"),
            format!("--admin-listen={admin}"),
        ];
        arguments.extend_from_slice(flags);
        let launch = Launch::new("uid-service", arguments, folder);
        let mut program = Self {
            process: launch.run()?,
            launch,
            address,
            admin,
        };
        program.wait_until_ready().await?;
        Ok(program)
    }

    /// Waits until it serves.
    ///
    /// # Errors
    ///
    /// If it does not within a minute.
    pub async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        until_ready(&mut self.process, self.admin).await
    }

    /// Starts it again, after it has exited, with the same flags and ports.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = self.launch.run()?;
        self.wait_until_ready().await
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// A client of the admin listener.
    pub fn admin(&self) -> Http {
        Http::new(self.admin)
    }

    /// A client.
    pub fn client(&self) -> UidServiceClient<Channel> {
        UidServiceClient::new(channel(self.address))
    }
}

/// A running `data-service`.
#[derive(Debug)]
pub struct DataProgram {
    process: Process,
    launch: Launch,
    data: SocketAddr,
    http: SocketAddr,
    admin: SocketAddr,
}

impl DataProgram {
    /// Starts it on a folder, with the UID service at an address.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start(folder: &Path, uid_service: SocketAddr) -> anyhow::Result<Self> {
        Self::start_with(folder, uid_service, &[]).await
    }

    /// With more flags, each as `--name=value`.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start_with(
        folder: &Path,
        uid_service: SocketAddr,
        flags: &[String],
    ) -> anyhow::Result<Self> {
        let mut program = Self::launch(folder, uid_service, flags)?;
        program.wait_until_ready().await?;
        Ok(program)
    }

    /// Starts it without waiting until it serves.
    ///
    /// # Errors
    ///
    /// If it cannot be run.
    pub fn launch(folder: &Path, uid_service: SocketAddr, flags: &[String]) -> anyhow::Result<Self> {
        let [data, http, admin] = [ports::free()?, ports::free()?, ports::free()?];
        let mut arguments = vec![
            format!("--data-dir={}", folder.join("data").display()),
            format!("--data-listen={data}"),
            format!("--http-listen={http}"),
            format!("--admin-listen={admin}"),
        ];
        if !flags.iter().any(|flag| flag.starts_with("--uid-endpoint=")) {
            arguments.push(format!("--uid-endpoint=http://{uid_service}"));
        }
        arguments.extend_from_slice(flags);
        let launch = Launch::new("data-service", arguments, folder);
        Ok(Self {
            process: launch.run()?,
            launch,
            data,
            http,
            admin,
        })
    }

    /// Waits until it serves.
    ///
    /// # Errors
    ///
    /// If it does not within a minute.
    pub async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        until_ready(&mut self.process, self.admin).await
    }

    /// Starts it again, after it has exited, with the same flags and ports.
    ///
    /// # Errors
    ///
    /// If it does not serve within a minute.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = self.launch.run()?;
        self.wait_until_ready().await
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// Address of gRPC.
    pub fn data_address(&self) -> SocketAddr {
        self.data
    }

    /// Address of HTTP and telnet.
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// A client.
    pub fn client(&self) -> DataServiceClient<Channel> {
        DataServiceClient::new(channel(self.data))
    }

    /// A client of the admin listener.
    pub fn admin(&self) -> Http {
        Http::new(self.admin)
    }

    /// A client of HTTP.
    pub fn http(&self) -> Http {
        Http::new(self.http)
    }

    /// A new telnet connection.
    ///
    /// # Errors
    ///
    /// If the program does not accept.
    pub async fn telnet(&self) -> anyhow::Result<Telnet> {
        Telnet::connect(self.http).await
    }
}

/// How a program is started.
#[derive(Debug)]
struct Launch {
    name: &'static str,
    arguments: Vec<String>,
    log: PathBuf,
}

impl Launch {
    fn new(name: &'static str, arguments: Vec<String>, folder: &Path) -> Self {
        Self {
            name,
            arguments,
            log: folder.join(format!("{name}.log")),
        }
    }

    fn run(&self) -> anyhow::Result<Process> {
        Process::run(self.name, &self.arguments, &self.log)
    }
}

/// Waits until the admin listener reports readiness; it has neither TLS nor rights.
async fn until_ready(process: &mut Process, admin: SocketAddr) -> anyhow::Result<()> {
    let admin = Http::new(admin);
    let waited = wait::until("the service is ready", || {
        let running = process.check_running();
        let admin = admin.clone();
        async move {
            running?;
            let response = admin.get("/readyz").await?;
            ensure!(response.status == 200, "{}", response.body);
            Ok(())
        }
    })
    .await;
    waited.with_context(|| process.log())
}
