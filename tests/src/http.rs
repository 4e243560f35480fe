//! A client of OpenTSDB's HTTP API.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

use crate::certificates::Issued;

/// The client.
#[derive(Clone, Debug)]
pub struct Http {
    agent: Agent,
    /// Scheme, host and port.
    origin: String,
}

/// A response with any status.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// HTTP status, such as 204.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl HttpResponse {
    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// With status and body, if it is not JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("{} with `{}`", self.status, self.body))
    }

    /// `error.message` of OpenTSDB's envelope.
    ///
    /// # Errors
    ///
    /// If the body is no such envelope, or its code differs from the status.
    pub fn error_message(&self) -> anyhow::Result<String> {
        let json = self.json()?;
        ensure!(
            json["error"]["code"] == self.status,
            "status {} with `{}`",
            self.status,
            self.body
        );
        let message = json["error"]["message"].as_str().context("error.message")?;
        Ok(message.to_owned())
    }
}

impl Http {
    /// A client of the server at an address.
    pub fn new(address: SocketAddr) -> Self {
        let config = config().build();
        Self {
            agent: Agent::new_with_config(config),
            origin: format!("http://{address}"),
        }
    }

    /// A client over TLS, with a certificate of its own or without, of a server with a certificate for `localhost`.
    ///
    /// # Errors
    ///
    /// If something is not PEM.
    pub fn over_tls(port: u16, authority: &str, identity: Option<&Issued>) -> anyhow::Result<Self> {
        let certificate = |pem: &str| Certificate::from_pem(pem.as_bytes());
        let identity = match identity {
            Some(issued) => Some(ClientCert::new_with_certs(
                &[certificate(&issued.certificate)?],
                PrivateKey::from_pem(issued.key.as_bytes())?,
            )),
            None => None,
        };
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&[certificate(authority)?]))
            .client_cert(identity);
        let config = config().tls_config(tls.build()).build();
        Ok(Self {
            agent: Agent::new_with_config(config),
            origin: format!("https://localhost:{port}"),
        })
    }

    /// GET of a path with its query string.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn get(&self, path: &str) -> anyhow::Result<HttpResponse> {
        let (agent, url) = (self.agent.clone(), self.url(path));
        blocking(move || read(agent.get(&url).call()?)).await
    }

    /// POST of JSON.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn post(&self, path: &str, json: &Value) -> anyhow::Result<HttpResponse> {
        self.post_bytes(path, &[], json.to_string().into_bytes()).await
    }

    /// POST of any body, with headers beside the content type of JSON.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn post_bytes(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> anyhow::Result<HttpResponse> {
        let url = self.url(path);
        let mut request = self.agent.post(&url).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        blocking(move || read(request.send(body)?)).await
    }

    /// PUT of JSON.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn put(&self, path: &str, json: &Value) -> anyhow::Result<HttpResponse> {
        let (agent, url, body) = (self.agent.clone(), self.url(path), json.to_string());
        blocking(move || {
            read(
                agent
                    .put(&url)
                    .header("Content-Type", "application/json")
                    .send(body)?,
            )
        })
        .await
    }

    /// DELETE of a path with its query string.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn delete(&self, path: &str) -> anyhow::Result<HttpResponse> {
        let (agent, url) = (self.agent.clone(), self.url(path));
        blocking(move || read(agent.delete(&url).call()?)).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }
}

fn config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
}

fn read(mut response: http::Response<ureq::Body>) -> anyhow::Result<HttpResponse> {
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(256 << 20)
        .read_to_string()?;
    Ok(HttpResponse { status, body })
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(call).await?
}
