//! A real Envoy with the files of `deploy/envoy`, before replicas of both services, with mTLS on all connections.
//!
//! ```text
//!   clients ─► Envoy ─┬► data-service, … ─┬► uid-service, …
//!                     └───────────────────┘
//! ```
//!
//! Only addresses, ports and folders differ from the files as they are deployed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use oxtsdb_client::{ClientBuilder, TlsOptions};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::certificates::{Authority, Issued};
use crate::http::Http;
use crate::process::Process;
use crate::two_programs::{DataProgram, UidProgram};
use crate::{paths, ports, program, wait};

/// Where the deployed files are.
const DEPLOYED: &str = "/etc/envoy";

/// The services serve Envoy, and the UID services also the data services; no other certificate has a right.
const POLICY: &str = r#"
[[rule]]
who = ["san:envoy"]
may = ["read", "write", "administer"]

[[rule]]
who = ["san:data-service"]
may = ["read", "write"]
on = ["oxtsdb.uid.v1.UidService", "oxtsdb.uid.v1.UidMetaService"]
"#;

/// Envoy and the services.
#[derive(Debug)]
pub struct Mesh {
    /// The data services.
    pub data: Vec<DataProgram>,
    /// The UID services.
    pub uids: Vec<UidProgram>,
    /// Envoy.
    pub envoy: Envoy,
    /// The authority of all certificates.
    pub authority: Authority,
    /// A certificate of a client.
    pub client: Issued,
    folder: TempDir,
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: SocketAddr,
    /// Port of the data services' gRPC.
    pub data: u16,
    /// Port of the UID services' gRPC.
    pub uid: u16,
    /// Port of OpenTSDB's HTTP API.
    pub http: u16,
}

/// Returns the program that `OXTSDB_ENVOY` names.
///
/// # Errors
///
/// If the variable is not set.
pub fn find() -> anyhow::Result<PathBuf> {
    let program =
        std::env::var_os("OXTSDB_ENVOY").context("the test needs an Envoy: OXTSDB_ENVOY=PROGRAM")?;
    Ok(program.into())
}

/// Has Envoy check the deployed files; only their folder differs.
///
/// # Errors
///
/// Envoy's.
pub fn validate(program: &Path) -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let authority = Authority::new("mesh")?;
    write_folder(folder.path(), &authority, &authority.issue(&["envoy"])?, Ok)?;
    let ran = Command::new(program)
        .args(["--mode", "validate", "--disable-hot-restart", "-c"])
        .arg(folder.path().join("envoy.yaml"))
        .output()?;
    let printed = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "{printed}");
    let warnings: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("[warning]") || line.contains("[error]"))
        .collect();
    ensure!(warnings.is_empty(), "{warnings:?}");
    Ok(())
}

impl Mesh {
    /// Starts `replicas` of each service, with flags for their stores, and Envoy when they serve.
    ///
    /// # Errors
    ///
    /// If one does not start, or Envoy does not find all of them healthy.
    pub async fn start(
        program: &Path,
        replicas: usize,
        uid_flags: &[String],
        data_flags: &[String],
    ) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let authority = Authority::new("mesh")?;
        fs::write(folder.path().join("ca.pem"), authority.pem())?;
        fs::write(folder.path().join("policy.toml"), POLICY)?;
        for name in ["data-service", "uid-service"] {
            let issued = authority.issue(&[name, "localhost", "127.0.0.1"])?;
            issued.write(folder.path(), name)?;
        }
        let (mut uids, mut data) = (Vec::new(), Vec::new());
        for number in 0..replicas {
            let own = folder.path().join(format!("uid-{number}"));
            fs::create_dir(&own)?;
            let flags = [uid_flags, &server_flags(folder.path(), "uid-service")].concat();
            uids.push(UidProgram::start_with(&own, None, &flags).await?);
        }
        let endpoints: Vec<String> = uids
            .iter()
            .map(|uid| format!("https://localhost:{}", uid.address().port()))
            .collect();
        for number in 0..replicas {
            let own = folder.path().join(format!("data-{number}"));
            fs::create_dir(&own)?;
            let file = |flag: &str, name: &str| format!("--{flag}={}", folder.path().join(name).display());
            let mut flags = [data_flags, &server_flags(folder.path(), "data-service")].concat();
            flags.extend([
                format!("--uid-endpoint={}", endpoints.join(",")),
                file("uid-tls-ca", "ca.pem"),
                file("uid-tls-client-certificate", "data-service.pem"),
                file("uid-tls-client-key", "data-service.key"),
            ]);
            data.push(DataProgram::start_with(&own, uids[0].address(), &flags).await?);
        }
        let envoy_folder = folder.path().join("envoy");
        fs::create_dir(&envoy_folder)?;
        let certificate = authority.issue(&["envoy", "localhost"])?;
        let envoy = Envoy::start(program, &envoy_folder, &authority, &certificate, &data, &uids)?;
        let client = authority.issue(&["client"])?;
        let mut mesh = Self {
            data,
            uids,
            envoy,
            authority,
            client,
            folder,
        };
        for number in 0..replicas {
            mesh.until_data_is_healthy(number).await?;
            mesh.until_uid_is_healthy(number).await?;
        }
        Ok(mesh)
    }

    /// Waits until Envoy regards a data service as healthy, for gRPC and for HTTP.
    ///
    /// # Errors
    ///
    /// If it does not in time.
    pub async fn until_data_is_healthy(&mut self, number: usize) -> anyhow::Result<()> {
        self.until_data_is(number, "healthy").await
    }

    /// Waits until Envoy reports a health of a data service, for gRPC and for HTTP, see [`Envoy::until_health`].
    ///
    /// # Errors
    ///
    /// If it does not in time.
    pub async fn until_data_is(&mut self, number: usize, health: &str) -> anyhow::Result<()> {
        let (grpc, http) = (self.data[number].data_address(), self.data[number].http_address());
        self.envoy.until_health("data", grpc, health).await?;
        self.envoy.until_health("http", http, health).await
    }

    /// As [`Mesh::until_data_is_healthy`], of a UID service.
    ///
    /// # Errors
    ///
    /// If it does not in time.
    pub async fn until_uid_is_healthy(&mut self, number: usize) -> anyhow::Result<()> {
        self.envoy
            .until_health("uid", self.uids[number].address(), "healthy")
            .await
    }

    /// Gives Envoy a certificate of another authority, which becomes the clients' too; servers keep theirs.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn renew(&self, authorities: &str, certificate: &Issued) -> anyhow::Result<()> {
        write_secrets(&self.folder.path().join("envoy"), authorities, certificate)
    }

    /// A channel without retries to a port of this machine.
    ///
    /// # Errors
    ///
    /// If the handshake fails.
    pub async fn channel(&self, port: u16, identity: Option<&Issued>) -> anyhow::Result<Channel> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.authority.pem()));
        if let Some(identity) = identity {
            tls = tls.identity(Identity::from_pem(&identity.certificate, &identity.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}"))?.tls_config(tls)?;
        Ok(endpoint.connect().await?)
    }

    /// A client of the data services, without retries.
    ///
    /// # Errors
    ///
    /// If the handshake fails.
    pub async fn data_client(&self) -> anyhow::Result<DataServiceClient<Channel>> {
        let channel = self.channel(self.envoy.data, Some(&self.client)).await?;
        Ok(DataServiceClient::new(channel))
    }

    /// A client of the UID services, without retries.
    ///
    /// # Errors
    ///
    /// If the handshake fails.
    pub async fn uid_client(&self) -> anyhow::Result<UidServiceClient<Channel>> {
        let channel = self.channel(self.envoy.uid, Some(&self.client)).await?;
        Ok(UidServiceClient::new(channel))
    }

    /// The typed client of the data services.
    pub fn typed_client(&self) -> ClientBuilder {
        let tls = TlsOptions::default()
            .ca_certificates(self.authority.pem())
            .client_certificate(self.client.certificate.clone(), self.client.key.clone());
        ClientBuilder::new([format!("https://localhost:{}", self.envoy.data)]).tls(tls)
    }

    /// A client of HTTP, of a port of Envoy.
    ///
    /// # Errors
    ///
    /// Certificates are not PEM.
    pub fn http(&self, port: u16, identity: Option<&Issued>) -> anyhow::Result<Http> {
        Http::over_tls(port, &self.authority.pem(), identity)
    }
}

impl Envoy {
    fn start(
        program: &Path,
        folder: &Path,
        authority: &Authority,
        certificate: &Issued,
        data: &[DataProgram],
        uids: &[UidProgram],
    ) -> anyhow::Result<Self> {
        let [data_port, uid, http, admin] = [ports::free()?, ports::free()?, ports::free()?, ports::free()?];
        write_folder(folder, authority, certificate, |mut text| {
            for (port, address) in [(4243, data_port), (4244, uid), (4242, http)] {
                let listens = format!("address: 0.0.0.0, port_value: {port} ");
                let here = format!("address: 127.0.0.1, port_value: {} ", address.port());
                text = replace_once(&text, &listens, &here)?;
            }
            let here = format!("port_value: {} ", admin.port());
            text = replace_once(&text, "port_value: 9901 ", &here)?;
            let address =
                |address: SocketAddr| format!("address: 127.0.0.1, port_value: {} ", address.port());
            let each = |of: &dyn Fn(&DataProgram) -> SocketAddr| -> Vec<String> {
                data.iter().map(|program| address(of(program))).collect()
            };
            let grpc = each(&DataProgram::data_address);
            text = replicate(&text, "address: data-service, port_value: 4243 ", &grpc)?;
            let http = each(&DataProgram::http_address);
            text = replicate(&text, "address: data-service, port_value: 4242 ", &http)?;
            for program in data {
                let here = format!("port_value: {} ", program.admin_address().port());
                text = text.replacen("port_value: 4245 ", &here, 1);
            }
            let uids: Vec<String> = uids.iter().map(|program| address(program.address())).collect();
            replicate(&text, "address: uid-service, port_value: 4244 ", &uids)
        })?;
        let config = folder.join("envoy.yaml").display().to_string();
        // A hot restart would share memory with the Envoys of other tests.
        let arguments = [
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "warning",
            "-c",
            &config,
        ];
        let process = Process::run_program(program, arguments, &folder.join("envoy.log"), None, &[])?;
        Ok(Self {
            process,
            admin,
            data: data_port.port(),
            uid: uid.port(),
            http: http.port(),
        })
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    ///
    /// If it has exited.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        self.process.check_running()
    }

    /// Waits until it reports a health of a server: `healthy`, or a flag such as `/failed_active_hc`, perhaps beside others.
    ///
    /// # Errors
    ///
    /// If it does not in time.
    pub async fn until_health(
        &mut self,
        cluster: &str,
        server: SocketAddr,
        health: &str,
    ) -> anyhow::Result<()> {
        let admin = Http::new(self.admin);
        let name = format!("{cluster}::{server}::health_flags::");
        let waited = wait::until("Envoy reports the health of a server", || {
            let running = self.process.check_running();
            let (admin, name) = (admin.clone(), name.clone());
            async move {
                running?;
                let clusters = admin.get("/clusters").await?.body;
                let mut flags = clusters.lines().filter_map(|line| line.strip_prefix(&name));
                let is_there = flags.any(|flags| flags.contains(health));
                ensure!(is_there, "no `{name}{health}` in\n{clusters}");
                Ok(())
            }
        })
        .await;
        waited.with_context(|| self.process.log())
    }

    /// A counter or gauge, such as `cluster.data.upstream_rq_retry`.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub async fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let stats = Http::new(self.admin).get("/stats").await?.body;
        let value = stats
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .with_context(|| format!("no `{name}`"))?;
        Ok(value.parse()?)
    }
}

/// The flags of a server that requires certificates of clients.
fn server_flags(folder: &Path, name: &str) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    vec![
        file("tls-certificate", &format!("{name}.pem")),
        file("tls-key", &format!("{name}.key")),
        file("tls-client-ca", "ca.pem"),
        file("access-policy", "policy.toml"),
    ]
}

/// Writes the deployed files to a folder, as they are but for that folder and the changes to `envoy.yaml`.
fn write_folder(
    folder: &Path,
    authority: &Authority,
    certificate: &Issued,
    change: impl FnOnce(String) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let here = folder.display().to_string();
    let deployed = paths::workspace().join("deploy/envoy");
    let read = |name: &str| -> anyhow::Result<String> {
        let text = fs::read_to_string(deployed.join(name)).with_context(|| name.to_owned())?;
        Ok(text.replace(DEPLOYED, &here))
    };
    for name in ["certificate.yaml", "authority.yaml"] {
        fs::write(folder.join(name), read(name)?)?;
    }
    fs::write(folder.join("envoy.yaml"), change(read("envoy.yaml")?)?)?;
    let ran = Command::new(program::path("tsdb")?).arg("descriptors").output()?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    fs::write(folder.join("oxtsdb.pb"), ran.stdout)?;
    fs::create_dir(folder.join("tls"))?;
    write_secrets(folder, &authority.pem(), certificate)
}

/// Writes the files with the names that secrets of Kubernetes have.
fn write_secrets(folder: &Path, authorities: &str, certificate: &Issued) -> anyhow::Result<()> {
    for (name, text) in [
        ("tls.key", &*certificate.key),
        ("tls.crt", &*certificate.certificate),
        ("ca.crt", authorities),
    ] {
        let new = folder.join(format!("{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, folder.join("tls").join(name))?;
    }
    Ok(())
}

/// Replaces what must be there once.
fn replace_once(text: &str, from: &str, to: &str) -> anyhow::Result<String> {
    let count = text.matches(from).count();
    ensure!(count == 1, "envoy.yaml has `{from}` {count} times");
    Ok(text.replace(from, to))
}

/// Replaces the line of a name by a line for each address.
fn replicate(text: &str, name: &str, addresses: &[String]) -> anyhow::Result<String> {
    let line = text
        .lines()
        .find(|line| line.contains(name))
        .with_context(|| format!("envoy.yaml has no `{name}`"))?;
    let lines: Vec<String> = addresses
        .iter()
        .map(|address| line.replace(name, address))
        .collect();
    replace_once(text, line, &lines.join("\n"))
}
