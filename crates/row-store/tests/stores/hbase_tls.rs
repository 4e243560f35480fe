//! TLS of the store over HBase's own RPC: errors about servers that are not trusted, or have TLS where the client has none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use oxtsdb_row_store::StoreError;
use oxtsdb_row_store::hbase::native::{NativeConfig, NativeStore, Registry};
use oxtsdb_tls::testing::{Authority, Issued};
use oxtsdb_tls::{Credentials, Pem, certificates, private_key};
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The names of the servers below.
const NAMES: &[&str] = &["localhost"];

/// The behaviour of a server with a connection.
#[derive(Clone)]
enum Behaviour {
    /// Performs the handshake, then reads.
    Tls(Arc<ServerConfig>),
    /// Responds to the first bytes, and closes the connection.
    Plain(&'static [u8]),
}

/// A server on a free port; dropping it stops it.
struct Server {
    address: String,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(handle(stream, behaviour.clone()));
            }
        });
        Self { address, task }
    }

    /// A server with a certificate, which requires certificates of an authority if there is one.
    async fn with_tls(
        issued: &Issued,
        clients: Option<&Authority>,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .unwrap();
        let builder = match clients {
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(clients.pem().as_bytes()).unwrap() {
                    roots.add(certificate).unwrap();
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => builder.with_no_client_auth(),
        };
        let chain = certificates(issued.certificate.as_bytes()).unwrap();
        let key = private_key(issued.key.as_bytes()).unwrap();
        let config = builder.with_single_cert(chain, key).unwrap();
        Self::start(Behaviour::Tls(Arc::new(config))).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(mut stream: TcpStream, behaviour: Behaviour) {
    let mut received = [0; 1024];
    match behaviour {
        Behaviour::Tls(config) => match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(mut stream) => while matches!(stream.read(&mut received).await, Ok(1..)) {},
            // Its alert was written; a reset would discard it.
            Err((_, mut stream)) => {
                let _ = stream.shutdown().await;
                while matches!(stream.read(&mut received).await, Ok(1..)) {}
            }
        },
        Behaviour::Plain(response) => {
            let _ = stream.read(&mut received).await;
            let _ = stream.write_all(response).await;
            let _ = stream.shutdown().await;
            while matches!(stream.read(&mut received).await, Ok(1..)) {}
        }
    }
}

/// An authority, and a folder with its certificate in `ca.pem`.
struct Trusted {
    authority: Authority,
    folder: TempDir,
}

impl Trusted {
    fn new() -> Self {
        let authority = Authority::new("hbase").unwrap();
        let folder = TempDir::with_prefix("oxtsdb-test-").unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        Self { authority, folder }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn credentials(&self) -> Credentials {
        Credentials {
            ca: Some(Pem::File(self.ca())),
            identity: None,
        }
    }
}

/// The error of connecting with one server as the registry.
async fn error(server: &str, tls: Option<Credentials>) -> StoreError {
    let config = NativeConfig {
        tls,
        // A start repeats its first request for this long.
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_millis(300),
        ..NativeConfig::new(Registry::Masters(vec![server.to_owned()]))
    };
    NativeStore::connect(config).await.unwrap_err()
}

/// Checks that an error names the server, and all of `parts`.
fn check(error: &StoreError, server: &str, parts: &[&str]) {
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    for part in [server].iter().chain(parts) {
        assert!(text.contains(part), "`{part}`: {text}");
    }
}

#[tokio::test]
async fn servers_that_are_not_trusted_are_rejected() {
    let trusted = Trusted::new();
    let foreign = Authority::new("others").unwrap().issue(NAMES).unwrap();
    let expired = trusted.authority.issue_expired(NAMES).unwrap();
    let other_host = trusted.authority.issue(&["rs2.test"]).unwrap();
    let ca = trusted.ca().display().to_string();
    let cases = [
        (&foreign, ["UnknownIssuer", &ca, "--hbase-tls-ca"]),
        (
            &expired,
            ["certificate expired", "not valid after", "--hbase-tls"],
        ),
        (
            &other_host,
            ["not valid for name \"localhost\"", "rs2.test", "--hbase-tls"],
        ),
    ];
    let cases = cases.iter().flat_map(|case| [(case, &TLS12), (case, &TLS13)]);
    join_all(cases.map(async |((issued, parts), version)| {
        let server = Server::with_tls(issued, None, version).await;
        let error = error(&server.address, Some(trusted.credentials())).await;
        check(&error, &server.address, parts);
    }))
    .await;
}

#[tokio::test]
async fn servers_that_require_another_certificate_are_named() {
    let trusted = Trusted::new();
    let issued = trusted.authority.issue(NAMES).unwrap();
    let foreign = Authority::new("others").unwrap().issue(&["client"]).unwrap();
    let with_foreign = Credentials {
        identity: Some((
            Pem::Bytes(foreign.certificate.into_bytes()),
            Pem::Bytes(foreign.key.into_bytes()),
        )),
        ..trusted.credentials()
    };
    let cases = [
        (
            trusted.credentials(),
            "may require a certificate (--hbase-tls-certificate)",
        ),
        (
            with_foreign,
            "may reject the certificate (--hbase-tls-certificate)",
        ),
    ];
    let cases = cases.iter().flat_map(|case| [(case, &TLS12), (case, &TLS13)]);
    join_all(cases.map(async |((credentials, text), version)| {
        let server = Server::with_tls(&issued, Some(&trusted.authority), version).await;
        let error = error(&server.address, Some(credentials.clone())).await;
        check(&error, &server.address, &[text]);
    }))
    .await;
}

#[tokio::test]
async fn servers_without_tls_are_named() {
    let trusted = Trusted::new();
    // HBase closes the connection, or responds with an exception of call -1.
    let cases = [
        (&b""[..], "as with a server without TLS"),
        (
            b"\0\0\0\x10\x08\xff\xff\xff\xff\x0f\x12\x08abcdefgh",
            "the server responds without TLS",
        ),
    ];
    join_all(cases.map(async |(response, text)| {
        let server = Server::start(Behaviour::Plain(response)).await;
        let error = error(&server.address, Some(trusted.credentials())).await;
        check(&error, &server.address, &[text, "--hbase-tls"]);
    }))
    .await;
}

#[tokio::test]
async fn servers_that_require_tls_are_named() {
    let trusted = Trusted::new();
    let issued = trusted.authority.issue(NAMES).unwrap();
    let cases = [
        (
            Server::with_tls(&issued, None, &TLS13).await,
            "the server requires TLS (--hbase-tls)",
        ),
        // HBase sends no alert.
        (
            Server::start(Behaviour::Plain(b"")).await,
            "closed the connection without a response, as a server that requires TLS does (--hbase-tls)",
        ),
    ];
    join_all(cases.map(async |(server, text)| {
        let error = error(&server.address, None).await;
        check(&error, &server.address, &[text]);
    }))
    .await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let trusted = Trusted::new();
    let missing = trusted.folder.path().join("missing.pem");
    let no_key = Credentials {
        identity: Some((Pem::File(trusted.ca()), Pem::File(trusted.ca()))),
        ..trusted.credentials()
    };
    let no_ca = Credentials {
        ca: Some(Pem::File(missing.clone())),
        identity: None,
    };
    for (credentials, path, text) in [
        (no_ca, missing, "No such file"),
        (no_key, trusted.ca(), "has no private key in PEM"),
    ] {
        let error = error("localhost:1", Some(credentials)).await;
        assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");
        let text_of = error.to_string();
        assert!(
            text_of.contains(&path.display().to_string()) && text_of.contains(text),
            "{text_of}"
        );
    }
}
