//! Feature `tls` against a server with TLS.
//!
//! `tls/ca.pem` issued `tls/server.pem`, for the name `oxtsdb.test`, until 2126. Its key is deleted.

use oxtsdb_client::{ClientBuilder, Error, Health, HealthClient, TlsOptions};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};

const CA: &str = include_str!("tls/ca.pem");
const CERTIFICATE: &str = include_str!("tls/server.pem");
const KEY: &str = include_str!("tls/server.key");

/// Starts a server of health checks with TLS; returns its port.
async fn start() -> Result<u16, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let (_, health) = tonic_health::server::health_reporter();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(CERTIFICATE, KEY));
    let server = Server::builder().tls_config(tls)?.add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok(port)
}

fn client(scheme: &str, port: u16, tls: TlsOptions) -> Result<HealthClient, Error> {
    let url = format!("{scheme}://127.0.0.1:{port}");
    ClientBuilder::new([url]).max_attempts(1).tls(tls).health()
}

#[tokio::test]
async fn connects_to_a_server_whose_certificate_is_trusted() -> Result<(), Box<dyn std::error::Error>> {
    let port = start().await?;
    let tls = TlsOptions::default()
        .ca_certificates(CA)
        .domain_name("oxtsdb.test");
    assert_eq!(client("https", port, tls)?.check("").await?, Health::Serving);
    Ok(())
}

#[tokio::test]
async fn rejects_servers_that_are_not_trusted() -> Result<(), Box<dyn std::error::Error>> {
    let port = start().await?;
    let own_ca = TlsOptions::default().ca_certificates(CA);
    let other_name = own_ca.clone().domain_name("other.test");
    let system_roots = TlsOptions::default().domain_name("oxtsdb.test");
    for (scheme, tls) in [
        ("https", own_ca.clone()),
        ("https", other_name),
        ("https", system_roots),
        ("http", own_ca),
    ] {
        let result = client(scheme, port, tls)?.check("").await;
        assert!(result.is_err(), "{scheme}: {result:?}");
    }
    Ok(())
}
