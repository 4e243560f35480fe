//! Rights: their settings, and the layer that checks the calls of gRPC.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::Request;
use oxtsdb_access::{AccessControl, AccessOptions, Mode, PeerCertificate, TokenOptions};
use tonic::body::Body;

use crate::middleware::{CallService, Middleware, ResponseFuture};
use crate::settings::{SettingError, in_range};
use crate::telemetry;

/// Who may call what.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessSettings {
    /// What the server does: rw (reads and writes), ro (rejects changes) or wo (rejects queries) (tsd.mode)
    #[arg(long, env = "OXTSDB_MODE", value_name = "rw|ro|wo", default_value_t = Self::default().mode)]
    pub mode: Mode,

    /// File with the rights of callers, TOML; read again when it changes. Unset: every caller may do everything
    #[arg(long, env = "OXTSDB_ACCESS_POLICY", value_name = "FILE")]
    pub access_policy: Option<PathBuf>,

    /// Public keys of tokens (`authorization: Bearer JWT`), a JWKS: a file, which is read again when it changes, or
    /// an https:// URL, which is requested again every --jwks-refresh-seconds
    #[arg(long, env = "OXTSDB_JWKS", value_name = "FILE|URL")]
    pub jwks: Option<String>,

    /// Certificates that may sign the one of --jwks' server, PEM; unset: the public ones
    #[arg(long, env = "OXTSDB_JWKS_CA", value_name = "FILE")]
    pub jwks_ca: Option<PathBuf>,

    /// Pause between two requests to the URL of --jwks, seconds
    #[arg(long, env = "OXTSDB_JWKS_REFRESH_SECONDS", value_name = "SECONDS", default_value_t = Self::default().jwks_refresh_seconds)]
    pub jwks_refresh_seconds: u64,

    /// Audiences of this server, separated by commas: a token has to name one of them (claim `aud`)
    #[arg(long, env = "OXTSDB_TOKEN_AUDIENCE", value_name = "NAME,...")]
    pub token_audience: Option<String>,

    /// Issuer of tokens (claim `iss`); unset: any that has one of the keys
    #[arg(long, env = "OXTSDB_TOKEN_ISSUER", value_name = "NAME")]
    pub token_issuer: Option<String>,

    /// Difference that the clocks of this server and of the issuer may have, seconds
    #[arg(long, env = "OXTSDB_TOKEN_LEEWAY_SECONDS", value_name = "SECONDS", default_value_t = Self::default().token_leeway_seconds)]
    pub token_leeway_seconds: u64,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            access_policy: None,
            jwks: None,
            jwks_ca: None,
            jwks_refresh_seconds: 300,
            token_audience: None,
            token_issuer: None,
            token_leeway_seconds: 30,
        }
    }
}

impl AccessSettings {
    /// Reads the files.
    pub(crate) async fn open(&self) -> anyhow::Result<AccessControl> {
        let options = AccessOptions {
            mode: self.mode,
            policy: self.access_policy.clone(),
            tokens: self.tokens()?,
        };
        // The request of the keys.
        let opened = tokio::task::spawn_blocking(|| AccessControl::open(options)).await;
        Ok(opened.context("read the rights")??)
    }

    fn tokens(&self) -> Result<Option<TokenOptions>, SettingError> {
        in_range("--jwks-refresh-seconds", self.jwks_refresh_seconds, 1, 86_400)?;
        in_range("--token-leeway-seconds", self.token_leeway_seconds, 0, 3600)?;
        let Some(jwks) = &self.jwks else {
            let others = [
                (
                    "--jwks-ca",
                    self.jwks_ca.as_ref().map(|path| path.display().to_string()),
                ),
                ("--token-audience", self.token_audience.clone()),
                ("--token-issuer", self.token_issuer.clone()),
            ];
            return match others.into_iter().find_map(|(flag, value)| Some((flag, value?))) {
                Some((flag, value)) => {
                    Err(SettingError::new(flag, format_args!("`{value}`"), "needs --jwks"))
                }
                None => Ok(None),
            };
        };
        // Logs and errors name the URL.
        if jwks.contains("://") && jwks.contains('@') {
            let rule = "must have no user, password or `@`: public keys need none";
            return Err(SettingError::new("--jwks", "URL", rule));
        }
        let wrong = |rule| Err(SettingError::new("--jwks", format_args!("`{jwks}`"), rule));
        if self.access_policy.is_none() {
            return wrong("needs --access-policy, which grants rights to the names of tokens");
        }
        let audiences = self.token_audience.as_deref().unwrap_or_default().split(',');
        let audiences: Vec<String> = audiences
            .map(|audience| audience.trim().to_owned())
            .filter(|audience| !audience.is_empty())
            .collect();
        if audiences.is_empty() {
            return wrong("needs --token-audience; tokens for other services would be accepted without it");
        }
        Ok(Some(TokenOptions {
            jwks: jwks.clone(),
            ca: self.jwks_ca.clone(),
            refresh: Duration::from_secs(self.jwks_refresh_seconds),
            audiences,
            issuer: self.token_issuer.clone(),
            leeway: Duration::from_secs(self.token_leeway_seconds),
        }))
    }
}

/// Rejects calls without a right, and calls that the mode of the server excludes. Others get their
/// [`oxtsdb_access::Access`] as an extension.
#[derive(Clone, Debug)]
pub(crate) struct AccessMiddleware(pub(crate) AccessControl);

impl Middleware for AccessMiddleware {
    fn call<S>(&self, inner: &mut S, mut request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: CallService,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let control = &self.0;
        let certificate = request.extensions().get::<PeerCertificate>().cloned();
        let identity = control.identify(request.headers_mut(), certificate.as_ref());
        let access = identity.and_then(|identity| {
            telemetry::called_by(&identity);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_tokens_need_each_other() {
        let check = |change: fn(&mut AccessSettings)| {
            let mut settings = AccessSettings::default();
            change(&mut settings);
            settings.tokens().unwrap_err().to_string()
        };
        assert_eq!(
            check(|s| s.token_audience = Some("a".into())),
            "--token-audience `a`: needs --jwks"
        );
        assert_eq!(
            check(|s| s.jwks = Some("keys".into())),
            "--jwks `keys`: needs --access-policy, which grants rights to the names of tokens"
        );
        assert_eq!(
            check(|s| {
                s.jwks = Some("keys".into());
                s.access_policy = Some("policy".into());
                s.token_audience = Some(" , ".into());
            }),
            "--jwks `keys`: needs --token-audience; tokens for other services would be accepted without it"
        );
        for (url, name) in [
            ("https://u:secret@idp/keys", "idp"),
            ("https://u:s secret@idp/keys", "no URL"),
        ] {
            let settings = AccessSettings {
                jwks: Some(url.to_owned()),
                ..AccessSettings::default()
            };
            let error = settings.tokens().unwrap_err().to_string();
            assert!(
                error.contains("must have no user") && !error.contains("secret"),
                "{name}: {error}"
            );
        }
        assert_eq!(
            check(|s| s.token_leeway_seconds = 3601),
            "--token-leeway-seconds 3601: expected 0 to 3600"
        );
    }
}
