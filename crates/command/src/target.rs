//! Which servers a command calls, and how their errors read.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use data_service::{ClientAccess, UidAccess};
use oxtsdb_client::{ClientBuilder, Code, DataClient, Error, HealthClient, UidClient};

/// The data service.
#[derive(Clone, Debug, Args)]
pub struct DataTarget {
    /// URL of the data service
    #[arg(
        long,
        env = "OXTSDB_TARGET",
        value_name = "URL",
        default_value = "http://127.0.0.1:4243"
    )]
    target: String,

    #[command(flatten)]
    access: DataAccess,
}

/// How a client of the data service authenticates, and how its connections are secured.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Access")]
struct DataAccess {
    /// File with the token for the data service; read again when it changes
    #[arg(long, env = "OXTSDB_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Certificates that the data service's is verified against, PEM. Unset: those of the system. TLS is used for
    /// `https://` URLs
    #[arg(long, env = "OXTSDB_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// Certificate of this client for the data service, with its chain, PEM
    #[arg(long, env = "OXTSDB_TLS_CLIENT_CERTIFICATE", value_name = "FILE")]
    tls_client_certificate: Option<PathBuf>,

    /// Private key of that certificate, PEM
    #[arg(long, env = "OXTSDB_TLS_CLIENT_KEY", value_name = "FILE")]
    tls_client_key: Option<PathBuf>,

    /// Name in the data service's certificate, if it is not the host of the URL
    #[arg(long, env = "OXTSDB_TLS_SERVER_NAME", value_name = "NAME")]
    tls_server_name: Option<String>,
}

impl DataAccess {
    fn client(&self, urls: &str) -> anyhow::Result<ClientBuilder> {
        let access = ClientAccess {
            token_file: self.token_file.as_deref(),
            ca: ("--tls-ca", self.tls_ca.as_deref()),
            certificate: ("--tls-client-certificate", self.tls_client_certificate.as_deref()),
            key: ("--tls-client-key", self.tls_client_key.as_deref()),
            server_name: ("--tls-server-name", self.tls_server_name.as_deref()),
        };
        Ok(access.client(urls)?)
    }
}

impl DataTarget {
    /// Each of its replicas alone, if there are several URLs.
    pub fn replicas(&self) -> impl Iterator<Item = Self> {
        self.target.split(',').map(|url| Self {
            target: url.trim().to_owned(),
            ..self.clone()
        })
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.target
    }

    /// A client of it.
    ///
    /// # Errors
    ///
    /// If the URL is not valid.
    pub fn data(&self) -> anyhow::Result<Server<DataClient>> {
        Server::new(
            &self.target,
            self.access.client(&self.target)?,
            ClientBuilder::data,
        )
    }

    /// A client of its health checks.
    ///
    /// # Errors
    ///
    /// If the URL is not valid.
    pub fn health(&self) -> anyhow::Result<Server<HealthClient>> {
        Server::new(
            &self.target,
            self.access.client(&self.target)?,
            ClientBuilder::health,
        )
    }
}

/// The UID service.
#[derive(Clone, Debug, Args)]
pub struct UidTarget {
    /// URL of the UID service; of several replicas, separated by commas
    #[arg(
        long,
        global = true,
        env = "OXTSDB_UID_TARGET",
        value_name = "URL,...",
        default_value = "http://127.0.0.1:4244"
    )]
    uid_target: String,

    #[command(flatten)]
    access: UidAccess,
}

impl UidTarget {
    /// A client of it.
    ///
    /// # Errors
    ///
    /// If the URL is not valid.
    pub fn uid(&self) -> anyhow::Result<Server<UidClient>> {
        Server::new(
            &self.uid_target,
            self.access.client(&self.uid_target)?,
            ClientBuilder::uid,
        )
    }

    /// Each of its replicas alone, if there are several URLs.
    pub fn replicas(&self) -> impl Iterator<Item = Self> {
        self.uid_target.split(',').map(|url| Self {
            uid_target: url.trim().to_owned(),
            ..self.clone()
        })
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.uid_target
    }
}

/// A server and a client of it.
#[derive(Clone, Debug)]
pub struct Server<C> {
    url: String,
    /// The client; it connects with its first call.
    pub client: C,
}

impl<C> Server<C> {
    fn new(
        url: &str,
        builder: ClientBuilder,
        build: impl Fn(ClientBuilder) -> Result<C, Error>,
    ) -> anyhow::Result<Self> {
        let builder = builder
            .client_name(concat!("tsdb ", env!("CARGO_PKG_VERSION")))
            // OpenTSDB's import accepts any instant.
            .allow_any_time(true);
        Ok(Self {
            url: url.to_owned(),
            client: build(builder)?,
        })
    }

    /// The error of a call, with a hint if it is typical of a wrong port.
    pub fn reason(&self, error: &Error) -> String {
        format!("{error}{}", wrong_port(error))
    }

    /// The error of a call in one line: the attempt, the server, the error.
    pub fn error(&self, attempt: &str, error: &Error) -> anyhow::Error {
        anyhow!("{attempt} at {}: {}", self.url, self.reason(error))
    }
}

/// A hint, if the error is what a port of another protocol or service responds with.
fn wrong_port(error: &Error) -> &'static str {
    match (error, error.code()) {
        (Error::Rejected(rejection), Code::Unimplemented) if rejection.message.is_empty() => {
            "the server does not have this method, is this the port of another service?"
        }
        // The HTTP and telnet port closes connections that begin like gRPC.
        (Error::Connection { .. }, Code::Unknown | Code::Cancelled) => {
            "; is this a gRPC port? HTTP and telnet have another"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::Rejection;
    use oxtsdb_client::proto::error::invalid_field;
    use tonic::Status;

    use super::*;

    fn server() -> Server<DataClient> {
        server_at("http://127.0.0.1:4243").unwrap()
    }

    fn server_at(url: &str) -> anyhow::Result<Server<DataClient>> {
        Server::new(url, DataAccess::default().client(url)?, ClientBuilder::data)
    }

    #[tokio::test]
    async fn errors_name_the_attempt_the_server_and_the_status() {
        let error = Rejection::from(&invalid_field("queries[0].metric", "is empty")).into();
        assert_eq!(
            server().error("query", &error).to_string(),
            "query at http://127.0.0.1:4243: INVALID_ARGUMENT: queries[0].metric: is empty"
        );
    }

    #[tokio::test]
    async fn unreachable_servers_are_reported_with_the_cause() {
        // Port 1 is reserved, and nothing listens on it.
        let server = server_at("http://127.0.0.1:1").unwrap();
        let error = server.client.list_queries().await.unwrap_err();
        let text = server.error("queries", &error).to_string();
        assert!(
            text.starts_with("queries at http://127.0.0.1:1: UNAVAILABLE: "),
            "{text}"
        );
        assert!(text.contains("refused"), "{text}");
        assert!(error.is_retry_safe());
    }

    #[tokio::test]
    async fn ports_of_other_protocols_are_hinted_at() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = server_at(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let close = tokio::spawn(async move {
            // As the HTTP and telnet port does.
            while let Ok((connection, _)) = listener.accept().await {
                drop(connection);
            }
        });
        let error = server.client.list_queries().await.unwrap_err();
        let text = server.error("queries", &error).to_string();
        close.abort();
        assert!(text.contains("is this a gRPC port?"), "{text}");
    }

    #[tokio::test]
    async fn ports_of_other_services_are_hinted_at() {
        let error = Rejection::from(&Status::unimplemented("")).into();
        assert_eq!(
            server().error("query", &error).to_string(),
            "query at http://127.0.0.1:4243: UNIMPLEMENTED: the server does not have this method, is this the \
             port of another service?"
        );
    }

    #[tokio::test]
    async fn rejects_targets_that_are_not_urls() {
        for text in ["localhost:4243", "ftp://localhost:4243", "http://", "http://a b"] {
            let error = server_at(text).unwrap_err().to_string();
            assert!(
                error.contains(text) && error.contains("http://HOST:PORT"),
                "{error}"
            );
        }
    }
}
