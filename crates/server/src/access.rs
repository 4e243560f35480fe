//! Rights: their settings, and the layer that checks the calls of gRPC.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use http::{Request, Response};
use oxtsdb_access::{AccessControl, AccessOptions, Mode, PeerCertificates};
use tonic::body::Body;
use tower::Service;

use crate::middleware::{Middleware, ResponseFuture};

/// Who may call what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessSettings {
    /// What the server does: rw (reads and writes), ro (rejects changes) or wo (rejects queries) (tsd.mode)
    #[arg(long, env = "OXTSDB_MODE", value_name = "rw|ro|wo", default_value_t = Self::default().mode)]
    pub mode: Mode,

    /// File with the rights of callers, TOML; read again when it changes. Unset: every caller may do everything
    #[arg(long, env = "OXTSDB_ACCESS_POLICY", value_name = "FILE")]
    pub access_policy: Option<PathBuf>,
}

impl AccessSettings {
    /// Reads the files.
    pub(crate) fn open(&self) -> anyhow::Result<AccessControl> {
        let options = AccessOptions {
            mode: self.mode,
            policy: self.access_policy.clone(),
        };
        AccessControl::open(options).context("--access-policy")
    }
}

/// Rejects calls without a right, and calls that the mode of the server excludes. Others get their
/// [`oxtsdb_access::Access`] as an extension.
#[derive(Clone, Debug)]
pub(crate) struct AccessMiddleware(pub(crate) AccessControl);

impl Middleware for AccessMiddleware {
    fn call<S>(&self, inner: &mut S, mut request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>>,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let control = &self.0;
        let certificates = request.extensions().get::<PeerCertificates>().cloned();
        let identity = control.identify(request.headers_mut(), certificates.as_ref());
        let access = identity.and_then(|identity| {
            let access = control.admit_grpc(&identity, request.uri().path())?;
            Ok((identity, access))
        });
        match access {
            Ok((identity, access)) => {
                request.extensions_mut().insert(identity);
                request.extensions_mut().insert(access);
                Box::pin(inner.call(request))
            }
            Err(refusal) => Box::pin(async move { Ok(refusal.to_status().into_http()) }),
        }
    }
}
