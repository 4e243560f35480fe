//! TLS of gRPC, HTTP and telnet: certificates that are expired, foreign or removed, other versions, clients of the other
//! kind, and files that are replaced while the server runs.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_tests::certificates::{Authority, Issued};
use oxtsdb_tests::metrics::Metrics;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, until};
use rustls::crypto::ring;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const NAMES: &[&str] = &["localhost", "127.0.0.1"];

/// How long a reload may take, at a look each second.
const RELOAD: Duration = Duration::from_secs(30);

/// A server with a certificate of an authority.
struct Secured {
    server: Tsdb,
    folder: TempDir,
    authority: Authority,
}

impl Secured {
    async fn start(more: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_in(TempDir::with_prefix("oxtsdb-test-")?, more).await
    }

    async fn start_in(folder: TempDir, more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let authority = Authority::new("servers")?;
        authority.issue(NAMES)?.write(folder.path(), "server")?;
        let mut options = Options::default()
            .flag("--tls-certificate", text(&folder.path().join("server.pem"))?)
            .flag("--tls-key", text(&folder.path().join("server.key"))?)
            .flag("--tls-reload-seconds", "1");
        for (name, value) in more {
            options = options.flag(name, value);
        }
        let server = Tsdb::start_with(options).await?;
        Ok(Self {
            server,
            folder,
            authority,
        })
    }

    /// A server that requires certificates of clients.
    async fn with_clients(clients: &Authority) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let path = folder.path().join("clients.pem");
        fs::write(&path, clients.pem())?;
        Self::start_in(folder, &[("--tls-client-ca", text(&path)?)]).await
    }

    /// A client of gRPC.
    async fn grpc(&self, identity: Option<&Issued>) -> anyhow::Result<DataServiceClient<Channel>> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.authority.pem()));
        if let Some(identity) = identity {
            tls = tls.identity(Identity::from_pem(&identity.certificate, &identity.key));
        }
        let url = format!("https://localhost:{}", self.server.data_address().port());
        let endpoint = Endpoint::from_shared(url)?.tls_config(tls)?;
        Ok(DataServiceClient::new(endpoint.connect().await?))
    }

    async fn tls(
        &self,
        address: SocketAddr,
        identity: Option<&Issued>,
    ) -> anyhow::Result<TlsStream<TcpStream>> {
        connect(address, &self.authority, identity, &[&TLS13, &TLS12]).await
    }
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path of text")
}

/// A connection with TLS, its handshake included: with TLS 1.3 the server rejects a client after it.
async fn connect(
    address: SocketAddr,
    authority: &Authority,
    identity: Option<&Issued>,
    versions: &[&'static SupportedProtocolVersion],
) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_root_certificates(roots);
    let config = match identity {
        Some(identity) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?,
        )?,
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost")?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// The response to a request over a connection, until the server closes it.
async fn get(mut stream: TlsStream<TcpStream>, path: &str) -> anyhow::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

/// The bytes that a server without TLS, or a client without it, receives.
async fn plain(address: SocketAddr, sent: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(sent).await?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await?;
    Ok(received)
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_http_and_telnet_are_served_over_tls() -> anyhow::Result<()> {
    let secured = Secured::start(&[]).await?;
    let sample = Sample::int("tls.m", &[("host", "a")], 1_700_000_000_000, 7);
    let mut grpc = secured.grpc(None).await?;
    ensure!(grpc.write(write_request(&[sample])).await?.into_inner().written == 1);

    let http = secured.server.http_address();
    let mut telnet = secured.tls(http, None).await?;
    telnet
        .write_all(b"put tls.m 1700000060 8 host=a\nversion\nexit\n")
        .await?;
    let mut reply = String::new();
    telnet.read_to_string(&mut reply).await?;
    ensure!(reply.contains("2.4.1"), "{reply}");

    // A response of more than a record, of points of both.
    let query = "/api/query?start=1699999000&end=1700001000&m=sum:tls.m";
    let response = get(secured.tls(http, None).await?, query).await?;
    ensure!(response.starts_with("HTTP/1.1 200"), "{response}");
    ensure!(
        response.contains("\"1700000000\":7") && response.contains("\"1700000060\":8"),
        "{response}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_other_kind_get_an_error() -> anyhow::Result<()> {
    let secured = Secured::start(&[]).await?;
    let request = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for address in [secured.server.http_address(), secured.server.data_address()] {
        let response = String::from_utf8(plain(address, request).await?)?;
        ensure!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{response}");
        ensure!(response.contains("TLS only"), "{response}");
    }
    let telnet = String::from_utf8(plain(secured.server.http_address(), b"version\n").await?)?;
    ensure!(telnet.starts_with("this port serves TLS only"), "{telnet}");

    let without = Tsdb::start().await?;
    for address in [without.http_address(), without.data_address()] {
        let failed = connect(address, &secured.authority, None, &[&TLS13, &TLS12]).await;
        let error = format!("{:#}", failed.err().context("a handshake without TLS")?);
        ensure!(error.contains("ProtocolVersion"), "{error}");
    }
    // Both go on.
    get(
        secured.tls(secured.server.http_address(), None).await?,
        "/api/version",
    )
    .await?;
    ensure!(without.http().get("/api/version").await?.status == 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_before_the_minimum_are_rejected() -> anyhow::Result<()> {
    let secured = Secured::start(&[("--tls-min-version", "1.3")]).await?;
    let http = secured.server.http_address();
    let failed = connect(http, &secured.authority, None, &[&TLS12]).await;
    let error = format!("{:#}", failed.err().context("TLS 1.2")?);
    ensure!(error.contains("ProtocolVersion"), "{error}");
    let served = connect(http, &secured.authority, None, &[&TLS13]).await?;
    ensure!(get(served, "/api/version").await?.starts_with("HTTP/1.1 200"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_valid_certificate() -> anyhow::Result<()> {
    let (clients, others) = (Authority::new("clients")?, Authority::new("others")?);
    let secured = Secured::with_clients(&clients).await?;
    let http = secured.server.http_address();
    let good = clients.issue(&["writer.example"])?;
    let response = get(secured.tls(http, Some(&good)).await?, "/api/version").await?;
    ensure!(response.starts_with("HTTP/1.1 200"), "{response}");
    secured.grpc(Some(&good)).await?;
    let (expired, foreign) = (clients.issue_expired(&["a"])?, others.issue(&["b"])?);
    for (bad, alert) in [
        (None, "CertificateRequired"),
        (Some(&expired), "CertificateExpired"),
        (Some(&foreign), "UnknownCA"),
    ] {
        let rejected = async { get(secured.tls(http, bad).await?, "/api/version").await };
        let error = format!("{:#}", rejected.await.err().context(alert)?);
        ensure!(error.contains(alert), "{alert}: {error}");
    }
    Ok(())
}

/// Rights by the names of certificates that the listener has verified.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_certificates_have_rights() -> anyhow::Result<()> {
    let clients = Authority::new("clients")?;
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let (ca, policy) = (
        folder.path().join("clients.pem"),
        folder.path().join("policy.toml"),
    );
    fs::write(&ca, clients.pem())?;
    fs::write(
        &policy,
        r#"[[rule]]
           who = ["san:writer.example"]
           may = ["write"]
           on = ["grpc"]

           [[rule]]
           who = ["san:reader.example"]
           may = ["read"]
           on = ["http"]
        "#,
    )?;
    let flags = [
        ("--tls-client-ca", text(&ca)?),
        ("--tls-client-auth", "optional"),
        ("--access-policy", text(&policy)?),
    ];
    let secured = Secured::start(&flags).await?;
    let (writer, reader) = (
        clients.issue(&["writer.example"])?,
        clients.issue(&["reader.example"])?,
    );
    let sample = Sample::int("tls.m", &[("host", "a")], 1_700_000_000_000, 7);
    let request = write_request(&[sample]);
    let write = async |identity: Option<&Issued>| {
        let written = secured.grpc(identity).await?.write(request.clone()).await;
        anyhow::Ok(written.map(|response| response.into_inner().written))
    };
    ensure!(write(Some(&writer)).await?.ok() == Some(1));
    let refused = write(Some(&reader)).await?.unwrap_err();
    ensure!(refused.code() == tonic::Code::PermissionDenied, "{refused}");
    let unknown = write(None).await?.unwrap_err();
    ensure!(unknown.code() == tonic::Code::Unauthenticated, "{unknown}");
    let http = secured.server.http_address();
    let query = "/api/query?start=1699999000&end=1700001000&m=sum:tls.m";
    for (identity, status) in [(Some(&reader), "200"), (Some(&writer), "403"), (None, "401")] {
        let response = get(secured.tls(http, identity).await?, query).await?;
        ensure!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_again_and_connections_stay() -> anyhow::Result<()> {
    let (clients, others) = (Authority::new("clients")?, Authority::new("others")?);
    let secured = Secured::with_clients(&clients).await?;
    let http = secured.server.http_address();
    let (first, second) = (clients.issue(&["a"])?, others.issue(&["b"])?);
    let mut before = secured.tls(http, Some(&first)).await?;
    before.write_all(b"version\n").await?;
    let mut byte = [0];
    before.read_exact(&mut byte).await?;

    // The authority of the first client is removed, the second one's is added.
    let file = secured.folder.path().join("clients.pem");
    fs::write(&file, "no certificate")?;
    fs::write(&file, others.pem())?;
    let begun = Instant::now();
    while secured.served(http, &second).await.is_err() {
        ensure!(begun.elapsed() < RELOAD, "the new authority is not known");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(
        secured.served(http, &first).await.is_err(),
        "the removed authority is not trusted"
    );
    // A file that is not valid changes nothing.
    fs::write(&file, "no certificate")?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    secured.served(http, &second).await?;
    // The connection of the first client was opened before.
    before.write_all(b"version\nexit\n").await?;
    let mut rest = Vec::new();
    before.read_to_end(&mut rest).await?;
    ensure!(String::from_utf8_lossy(&rest).matches("2.4.1").count() == 2);
    Ok(())
}

impl Secured {
    /// Whether a client with a certificate is served.
    async fn served(&self, http: SocketAddr, identity: &Issued) -> anyhow::Result<()> {
        let response = get(self.tls(http, Some(identity)).await?, "/api/version").await?;
        ensure!(response.starts_with("HTTP/1.1 200"), "{response}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_are_errors_without_their_content() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let issued = Authority::new("servers")?.issue(NAMES)?;
    issued.write(folder.path(), "server")?;
    Authority::new("others")?
        .issue(NAMES)?
        .write(folder.path(), "other")?;
    fs::write(
        folder.path().join("bad.key"),
        "-----BEGIN PRIVATE KEY-----\nsecret!\n",
    )?;
    for (certificate, key, expected) in [
        ("absent.pem", "server.key", "--tls-certificate"),
        ("server.pem", "bad.key", "--tls-key"),
        ("server.key", "server.key", "--tls-certificate"),
        ("server.pem", "other.key", "--tls-certificate and --tls-key"),
    ] {
        let path = |name: &str| folder.path().join(name);
        let mut command = tokio::process::Command::new(oxtsdb_tests::program_path("tsdb")?);
        let ran = command
            .args([
                "serve",
                "--http-listen=127.0.0.1:0",
                "--data-listen=127.0.0.1:0",
                "--uid-listen=127.0.0.1:0",
            ])
            .args(["--admin-listen=none", "--data-dir"])
            .arg(folder.path().join("data"))
            .arg("--tls-certificate")
            .arg(path(certificate))
            .arg("--tls-key")
            .arg(path(key))
            .output()
            .await?;
        let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
        ensure!(ran.status.code() == Some(1), "{certificate} {key}: {errors}");
        ensure!(errors.contains(expected), "{expected}: {errors}");
        ensure!(!errors.contains("secret"), "{errors}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expiry_of_the_certificate_is_a_metric() -> anyhow::Result<()> {
    let secured = Secured::start(&[]).await?;
    let admin = secured.server.admin();
    let expiry = async || {
        let metrics = Metrics::scrape(&admin).await?;
        anyhow::Ok(metrics.value("oxtsdb_tls_certificate_not_after_seconds"))
    };
    ensure!(expiry().await? > 1_900_000_000.0, "{:?}", expiry().await);
    // Of one that has expired, also after it was read again.
    secured
        .authority
        .issue_expired(NAMES)?
        .write(secured.folder.path(), "server")?;
    until("the metric follows the file", || async {
        // The end of 2020-12-31 begins with it.
        ensure!(expiry().await? == 1_609_372_800.0, "{:?}", expiry().await);
        Ok(())
    })
    .await
}
