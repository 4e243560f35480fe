//! The check of each request: the mode of the server, the identity of the caller, the policy.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use tracing::{error, warn};

use crate::identity::Identity;
use crate::mode::Mode;
use crate::operation::{self, Action, Operation};
use crate::policy::{Decision, LivePolicy, Metrics, PolicyError};
use crate::refusal::{Refusal, RefusalCounts};
use crate::san::PeerCertificate;
use crate::scope::MetricScope;
use crate::token::{KeySource, TokenOptions, Tokens};

/// The pause between two looks at the files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Who may cancel queries of others sees them.
const CANCEL_QUERY: &str = "/oxtsdb.data.v1.DataAdminService/CancelQuery";

/// The settings of [`AccessControl`].
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// The mode: which requests are served at all.
    pub mode: Mode,
    /// The policy file; `None`: every caller may do everything.
    pub policy: Option<PathBuf>,
    /// How tokens are verified; `None`: they are rejected. Without a policy they are not read.
    pub tokens: Option<TokenOptions>,
}

/// A file that is wrong at the start, after the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The policy.
    #[error("--access-policy")]
    Policy(#[from] PolicyError),
    /// The keys of tokens, or the certificates of their server.
    #[error("--jwks: {0}")]
    Keys(String),
}

/// Checks requests. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AccessControl(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    mode: Mode,
    rights: Option<Rights>,
    counts: Arc<RefusalCounts>,
}

#[derive(Debug)]
struct Rights {
    policy: LivePolicy,
    tokens: Option<Tokens>,
    /// Where the keys of tokens come from; locked while they are read.
    keys: Mutex<Option<KeySource>>,
}

/// A request that may be served.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The metrics that it may name; `None`: all of them.
    pub metrics: Option<MetricScope>,
    /// The name of a caller that sees its own queries only; `None`: it sees the queries of all callers.
    pub queries_of: Option<Arc<str>>,
}

impl Access {
    /// Whether the caller may use or see a part only.
    pub const fn is_limited(&self) -> bool {
        self.metrics.is_some() || self.queries_of.is_some()
    }
}

impl Rights {
    /// The name of a caller that may not administer queries, for an operation that may run or show queries.
    fn queries_of(&self, identity: &Identity, operation: &Operation) -> Option<Arc<str>> {
        if operation.action != Action::Read {
            return None;
        }
        let cancel = operation::by_grpc_path(CANCEL_QUERY)?;
        match self.policy.get().decide(identity, cancel) {
            Decision::Granted(Metrics::All) => None,
            _ => identity.names().next().map(Arc::from),
        }
    }
}

/// A request that is refused, and the rules for its caller, which grant other operations.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    rules: Vec<Box<str>>,
}

impl AccessControl {
    /// Reads the files of the options.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is wrong.
    pub fn open(options: AccessOptions) -> Result<Self, AccessError> {
        let rights = match options.policy {
            None => None,
            Some(path) => {
                let policy = LivePolicy::load(path)?;
                let (tokens, keys) = match options.tokens {
                    None => (None, None),
                    Some(options) => {
                        let (source, keys) = KeySource::open(&options).map_err(AccessError::Keys)?;
                        (Some(Tokens::new(options, keys)), Some(source))
                    }
                };
                Some(Rights {
                    policy,
                    tokens,
                    keys: Mutex::new(keys),
                })
            }
        };
        Ok(Self(Arc::new(Inner {
            mode: options.mode,
            rights,
            counts: Arc::default(),
        })))
    }

    /// The mode of the server.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// Whether callers need rights.
    pub fn has_rights(&self) -> bool {
        self.0.rights.is_some()
    }

    /// Refusals since the start.
    pub fn refusals(&self) -> &Arc<RefusalCounts> {
        &self.0.counts
    }

    /// Reads files again when they change, and requests the keys of tokens again, without end.
    pub async fn watch(self) {
        if self.has_rights() {
            // Apart: a request may take seconds.
            tokio::join!(
                self.every_second(Rights::reload_policy),
                self.every_second(Rights::reload_keys)
            );
        }
    }

    async fn every_second(&self, reload: fn(&Rights)) {
        let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let this = self.clone();
            let reload = move || this.0.rights.as_ref().map(reload);
            if let Err(failed) = tokio::task::spawn_blocking(reload).await {
                error!(%failed, "reading the policy or the keys of tokens again failed");
            }
        }
    }

    /// The caller of a request, by the certificate of its connection and its headers. Removes the token from them.
    ///
    /// # Errors
    ///
    /// [`Refusal::InvalidCredentials`].
    pub fn identify(
        &self,
        headers: &mut HeaderMap,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Identity, Refusal> {
        let Some(rights) = &self.0.rights else {
            return Ok(Identity::anonymous());
        };
        let token = headers.remove(AUTHORIZATION);
        let identified = rights
            .names_of(token.as_ref(), certificate)
            .map(Identity::from_names);
        identified.map_err(|why| {
            let refusal = Refusal::InvalidCredentials(why);
            self.0.counts.count(&refusal);
            warn!(identity = "unknown", rules = "credentials", reason = %refusal, "refused");
            refusal
        })
    }

    /// Checks a call of gRPC by its path.
    ///
    /// # Errors
    ///
    /// As [`AccessControl::admit`].
    pub fn admit_grpc(&self, identity: &Identity, path: &str) -> Result<Access, Refusal> {
        match operation::by_grpc_path(path) {
            Some(operation) => self.admit(identity, operation),
            None if !self.has_rights() || is_health(path) => Ok(Access::default()),
            // A method without a row cannot be granted.
            None => {
                let refused = Refused {
                    refusal: Refusal::NotGranted {
                        identity: identity.to_string(),
                        action: operation::Action::Administer,
                        operation: path.trim_start_matches('/').chars().take(200).collect(),
                    },
                    rules: Vec::new(),
                };
                self.record(identity, &refused);
                Err(refused.refusal)
            }
        }
    }

    /// Checks a request; logs and counts a refusal.
    ///
    /// # Errors
    ///
    /// As [`AccessControl::check`].
    pub fn admit(&self, identity: &Identity, operation: &Operation) -> Result<Access, Refusal> {
        self.check(identity, operation)
            .inspect_err(|refused| {
                self.record(identity, refused);
            })
            .map_err(|refused| refused.refusal)
    }

    /// Whether an operation is granted for all metrics. Counts and logs nothing.
    pub fn grants_all(&self, identity: &Identity, operation: &Operation) -> bool {
        let access = self.check(identity, operation);
        access.is_ok_and(|access| access.metrics.is_none())
    }

    /// Checks a request; counts and logs nothing.
    ///
    /// # Errors
    ///
    /// The server does not serve the operation in its mode, or no rule grants it to the caller.
    pub fn check(&self, identity: &Identity, operation: &Operation) -> Result<Access, Refused> {
        let operation_name = || operation.name.to_owned();
        if !self.0.mode.serves(operation.modes) {
            return Err(Refused {
                refusal: Refusal::Mode {
                    mode: self.0.mode,
                    operation: operation_name(),
                },
                rules: vec!["--mode".into()],
            });
        }
        let Some(rights) = &self.0.rights else {
            return Ok(Access::default());
        };
        if operation.is_open {
            return Ok(Access::default());
        }
        match rights.policy.get().decide(identity, operation) {
            Decision::Granted(metrics) => {
                let metrics = match metrics {
                    Metrics::All => None,
                    Metrics::Prefixes { prefixes, rules } => {
                        let counts = Arc::clone(&self.0.counts);
                        Some(MetricScope::new(identity, operation, prefixes, rules, counts))
                    }
                };
                Ok(Access {
                    metrics,
                    queries_of: rights.queries_of(identity, operation),
                })
            }
            Decision::Refused { rules } => {
                let refusal = match identity.is_anonymous() {
                    true => Refusal::NoCredentials {
                        operation: operation_name(),
                    },
                    false => Refusal::NotGranted {
                        identity: identity.to_string(),
                        action: operation.action,
                        operation: operation_name(),
                    },
                };
                Err(Refused { refusal, rules })
            }
        }
    }

    /// Logs and counts a refusal.
    pub fn record(&self, identity: &Identity, refused: &Refused) {
        let Refused { refusal, rules } = refused;
        self.0.counts.count(refusal);
        let rules = match rules.is_empty() {
            true => "no rule for this caller".to_owned(),
            false => rules.join(", "),
        };
        warn!(%identity, rules, reason = %refusal, "refused");
    }

    /// Checks a telnet connection.
    ///
    /// # Errors
    ///
    /// [`Refusal::Telnet`]: where rights are on, it has to come from this machine, and the policy has to serve it.
    pub fn admit_telnet(&self, peer: IpAddr) -> Result<(), Refusal> {
        let Some(rights) = &self.0.rights else {
            return Ok(());
        };
        let refusal = if !rights.policy.get().serves_telnet() {
            Refusal::Telnet("off")
        } else if !peer.to_canonical().is_loopback() {
            Refusal::Telnet("for connections of the same machine only")
        } else {
            return Ok(());
        };
        self.0.counts.count(&refusal);
        warn!(identity = %Identity::telnet(), %peer, rules = "telnet", reason = %refusal, "refused");
        Err(refusal)
    }
}

impl Rights {
    fn reload_policy(&self) {
        self.policy.reload();
    }

    fn reload_keys(&self) {
        if let (Some(tokens), Some(source)) = (&self.tokens, &mut *self.keys.lock()) {
            source.reload(tokens);
        }
    }

    /// The names of a caller; the names of its token come first.
    fn names_of(
        &self,
        token: Option<&http::HeaderValue>,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Vec<Box<str>>, String> {
        let mut names = match (token, &self.tokens) {
            (None, _) => Vec::new(),
            (Some(token), Some(tokens)) => tokens.names(token.as_bytes())?,
            (Some(_), None) => return Err("the server accepts no tokens (--jwks)".to_owned()),
        };
        if let Some(certificate) = certificate {
            let certified = certificate.names();
            let certified =
                certified.map_err(|error| format!("the client certificate cannot be read: {error}"))?;
            names.extend_from_slice(certified);
        }
        Ok(names)
    }
}

fn is_health(path: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| path.strip_prefix(operation::HEALTH))
        .is_some_and(|method| method.starts_with('/'))
}

#[cfg(test)]
mod tests;
