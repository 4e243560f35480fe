//! Requests with a token, from a file that is read again when it changes: issuers replace tokens before they expire.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use tokio::sync::Mutex;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::{Transport, TransportError};

/// The pause between two looks at the file.
const LOOK: Duration = Duration::from_secs(1);

/// The longest token, in bytes.
const MAX_BYTES: u64 = 16 << 10;

/// A transport that adds the header `authorization: Bearer TOKEN` to each request. Clones share the token.
#[derive(Clone, Debug)]
pub(super) struct Authorized {
    transport: Transport,
    file: Arc<TokenFile>,
}

impl Authorized {
    pub(super) fn new(transport: Transport, path: PathBuf) -> Self {
        let file = Arc::new(TokenFile {
            path,
            token: Mutex::default(),
        });
        Self { transport, file }
    }
}

impl Service<http::Request<Body>> for Authorized {
    type Response = http::Response<Body>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.transport.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        // The one that is ready.
        let next = self.transport.clone();
        let mut transport = std::mem::replace(&mut self.transport, next);
        let file = Arc::clone(&self.file);
        async move {
            let header = file.header().await;
            let header = header.map_err(|status| TransportError(status.into()))?;
            request.headers_mut().insert(AUTHORIZATION, header);
            transport.call(request).await
        }
        .boxed()
    }
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    token: Mutex<Token>,
}

#[derive(Default)]
struct Token {
    looked_at: Option<Instant>,
    version: Option<(SystemTime, u64)>,
    header: Option<HeaderValue>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl TokenFile {
    /// The header, from the file if it has changed. While the file cannot be read, the last token is sent.
    async fn header(&self) -> Result<HeaderValue, Status> {
        let mut token = self.token.lock().await;
        let is_recent = |at: &Instant| at.elapsed() < LOOK;
        if let (Some(_), Some(header)) = (token.looked_at.filter(is_recent), &token.header) {
            return Ok(header.clone());
        }
        token.looked_at = Some(Instant::now());
        match self.read(token.version).await {
            Ok(None) => {}
            Ok(Some((version, header))) => {
                token.version = Some(version);
                token.header = Some(header);
            }
            Err(error) if token.header.is_none() => {
                let path = self.path.display();
                return Err(Status::unauthenticated(format!("token file {path}: {error}")));
            }
            Err(_) => {}
        }
        token
            .header
            .clone()
            .ok_or_else(|| Status::unauthenticated("no token"))
    }

    /// The token, unless the file has this version.
    async fn read(
        &self,
        known: Option<(SystemTime, u64)>,
    ) -> Result<Option<((SystemTime, u64), HeaderValue)>, String> {
        let of_system = |error: std::io::Error| error.to_string();
        let metadata = tokio::fs::metadata(&self.path).await.map_err(of_system)?;
        let version = (metadata.modified().map_err(of_system)?, metadata.len());
        if known == Some(version) {
            return Ok(None);
        }
        if version.1 > MAX_BYTES {
            return Err(format!(
                "has {} bytes, at most {MAX_BYTES} are allowed",
                version.1
            ));
        }
        let text = tokio::fs::read_to_string(&self.path).await.map_err(of_system)?;
        let token = text.trim();
        if token.is_empty() {
            return Err("is empty".to_owned());
        }
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header = header.map_err(|_| "has characters that no token has".to_owned())?;
        header.set_sensitive(true);
        Ok(Some((version, header)))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex as SyncMutex;
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::transport::in_process;

    #[tokio::test]
    async fn sends_the_token_of_the_file_as_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let sent = Arc::new(SyncMutex::new(Vec::new()));
        let service = {
            let sent = Arc::clone(&sent);
            service_fn(move |request: http::Request<Body>| {
                let header = request.headers()[AUTHORIZATION].clone();
                assert!(header.is_sensitive());
                sent.lock().push(header.to_str().unwrap().to_owned());
                async { Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty())) }
            })
        };
        let client = Authorized::new(in_process(service), path.clone());
        let call = || client.clone().oneshot(http::Request::new(Body::empty()));
        let error = call().await.unwrap_err();
        let status = Status::from_error(error.0);
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
        assert!(status.message().contains("token: "), "{}", status.message());
        std::fs::write(&path, "first\n").unwrap();
        call().await.unwrap();
        std::fs::write(&path, "the second").unwrap();
        for _ in 0..100 {
            call().await.unwrap();
            if sent.lock().last().is_some_and(|last| last == "Bearer the second") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut sent = sent.lock().clone();
        sent.dedup();
        assert_eq!(sent, ["Bearer first", "Bearer the second"]);
        std::fs::remove_file(&path).unwrap();
        assert!(call().await.is_ok(), "the last token is sent");
    }
}
