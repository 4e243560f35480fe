//! TLS of clients: a data service that calls a UID service, and the commands of `tsdb`, with certificates on both sides,
//! which are renewed while they run.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::certificates::Authority;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{DataProgram, UidProgram, program_path, until};
use tempfile::TempDir;
use tokio::process::Command;

/// A UID service that requires certificates of clients, in a folder with the files.
struct Secured {
    uid: UidProgram,
    folder: TempDir,
    servers: Authority,
    clients: Authority,
}

impl Secured {
    async fn start() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let (servers, clients) = (Authority::new("servers")?, Authority::new("clients")?);
        servers.issue(&["localhost"])?.write(folder.path(), "server")?;
        fs::write(folder.path().join("servers.pem"), servers.pem())?;
        fs::write(folder.path().join("clients.pem"), clients.pem())?;
        clients.issue(&["data-service"])?.write(folder.path(), "client")?;
        let uid = start_uid(folder.path(), None).await?;
        Ok(Self {
            uid,
            folder,
            servers,
            clients,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.uid.address().port())
    }

    /// The flags of a client, for files of the folder.
    fn client_flags(&self, ca: &str, identity: &str) -> Vec<String> {
        vec![
            format!("--uid-tls-ca={}", self.path(ca).display()),
            format!(
                "--uid-tls-client-certificate={}",
                self.path(&format!("{identity}.pem")).display()
            ),
            format!(
                "--uid-tls-client-key={}",
                self.path(&format!("{identity}.key")).display()
            ),
        ]
    }

    /// Runs `tsdb uid` over TLS; returns whether it succeeded, and what it printed.
    async fn uid_command(&self, flags: &[String], command: &[&str]) -> anyhow::Result<(bool, String)> {
        let ran = Command::new(program_path("tsdb")?)
            .arg("uid")
            .arg(format!("--uid-target={}", self.url()))
            .args(flags)
            .args(command)
            .output()
            .await?;
        let printed = [ran.stdout, ran.stderr].concat();
        Ok((ran.status.success(), String::from_utf8(printed)?))
    }
}

async fn start_uid(folder: &Path, address: Option<SocketAddr>) -> anyhow::Result<UidProgram> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let flags = [
        file("tls-certificate", "server.pem"),
        file("tls-key", "server.key"),
        file("tls-client-ca", "clients.pem"),
        "--tls-reload-seconds=1".to_owned(),
    ];
    UidProgram::start_with(folder, address, &flags).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_service_renews_its_certificate() -> anyhow::Result<()> {
    let mut secured = Secured::start().await?;
    let address = secured.uid.address();
    let mut flags = secured.client_flags("servers.pem", "client");
    flags.push(format!("--uid-endpoint={}", secured.url()));
    let data = DataProgram::start_with(secured.folder.path(), address, &flags).await?;
    let write = async |host: &str| {
        let sample = Sample::int("tls.m", &[("host", host)], 1_700_000_000_000, 1);
        let written = data.client().write(write_request([&sample])).await;
        anyhow::Ok(written?.into_inner().written)
    };
    ensure!(write("a").await? == 1);

    // Both authorities are replaced. The connection breaks with the UID service; the next one has the new certificates.
    let (servers, clients) = (Authority::new("servers")?, Authority::new("clients")?);
    servers
        .issue(&["localhost"])?
        .write(secured.folder.path(), "server")?;
    clients
        .issue(&["data-service"])?
        .write(secured.folder.path(), "client")?;
    fs::write(secured.path("servers.pem"), servers.pem())?;
    fs::write(secured.path("clients.pem"), clients.pem())?;
    secured.uid.process().kill9()?;
    secured.uid = start_uid(secured.folder.path(), Some(address)).await?;
    let written = until("new series are written", || write("b")).await?;
    ensure!(written == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_need_certificates_that_are_trusted() -> anyhow::Result<()> {
    let secured = Secured::start().await?;
    let folder = secured.folder.path();
    let other = Authority::new("others")?;
    fs::write(secured.path("others.pem"), other.pem())?;
    other.issue(&["data-service"])?.write(folder, "foreign")?;
    secured
        .clients
        .issue_expired(&["data-service"])?
        .write(folder, "expired")?;
    let assign = ["assign", "metrics", "tls.assigned"];
    let good = secured.client_flags("servers.pem", "client");
    let (succeeded, printed) = secured.uid_command(&good, &assign).await?;
    ensure!(succeeded && printed.contains("tls.assigned"), "{printed}");

    for (ca, identity, expected) in [
        ("others.pem", "client", "UnknownIssuer"),
        ("servers.pem", "foreign", "UnknownCA"),
        ("servers.pem", "expired", "CertificateExpired"),
        ("absent.pem", "client", "absent.pem No such file"),
        ("client.key", "client", "client.key has no certificate in PEM"),
    ] {
        let flags = secured.client_flags(ca, identity);
        let (succeeded, printed) = secured.uid_command(&flags, &assign).await?;
        ensure!(!succeeded && printed.contains(expected), "{expected}: {printed}");
        ensure!(!printed.contains("PRIVATE KEY"), "{printed}");
    }
    let without = [good[0].clone()];
    let (succeeded, printed) = secured.uid_command(&without, &assign).await?;
    ensure!(!succeeded && printed.contains("CertificateRequired"), "{printed}");
    let half = [good[0].clone(), good[1].clone()];
    let (succeeded, printed) = secured.uid_command(&half, &assign).await?;
    ensure!(
        !succeeded && printed.contains("needs --uid-tls-client-key"),
        "{printed}"
    );

    // A certificate for another name, unless the client expects that one.
    secured.servers.issue(&["uid.example"])?.write(folder, "server")?;
    let mut flags = good.clone();
    let failed = until("the new certificate is presented", || async {
        let (succeeded, printed) = secured.uid_command(&flags, &assign).await?;
        ensure!(!succeeded, "{printed}");
        Ok(printed)
    })
    .await?;
    ensure!(failed.contains("not valid for name"), "{failed}");
    flags.push("--uid-tls-server-name=uid.example".to_owned());
    let (succeeded, printed) = secured.uid_command(&flags, &["grep", "tls."]).await?;
    ensure!(succeeded, "{printed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_data_service_use_tls() -> anyhow::Result<()> {
    let secured = Secured::start().await?;
    let mut flags = secured.client_flags("servers.pem", "client");
    let path = |name: &str| secured.path(name).display().to_string();
    flags.extend([
        format!("--uid-endpoint={}", secured.url()),
        format!("--tls-certificate={}", path("server.pem")),
        format!("--tls-key={}", path("server.key")),
    ]);
    let data = DataProgram::start_with(secured.folder.path(), secured.uid.address(), &flags).await?;
    let port = data.data_address().port();
    let health = async |url: &str, flags: &[String]| {
        let ran = Command::new(program_path("tsdb")?)
            .args(["health", "--target", url])
            .args(flags)
            .output()
            .await?;
        let printed = String::from_utf8([ran.stdout, ran.stderr].concat())?;
        anyhow::Ok((ran.status.success(), printed))
    };
    let ca = [format!("--tls-ca={}", path("servers.pem"))];
    let url = format!("https://localhost:{port}");
    let (succeeded, printed) = health(&url, &ca).await?;
    ensure!(succeeded, "{printed}");
    let (succeeded, printed) = health(&format!("http://localhost:{port}"), &[]).await?;
    ensure!(!succeeded && !printed.is_empty(), "{printed}");
    let (succeeded, printed) = health(&format!("http://localhost:{port}"), &ca).await?;
    ensure!(
        !succeeded && printed.contains("needs a URL with https://"),
        "{printed}"
    );
    let metrics = data.admin().get("/metrics").await?.body;
    let mismatches = metrics
        .lines()
        .find(|line| line.starts_with("oxtsdb_tls_mismatches_total{listener=\"data\"}"))
        .context("the count of mismatches")?;
    ensure!(!mismatches.ends_with(" 0"), "{mismatches}");
    Ok(())
}
