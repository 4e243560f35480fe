//! Rights: rules that grant operations to callers. An operation that no rule grants is refused.

mod file;
mod watch;

use std::sync::Arc;

pub use self::file::PolicyError;
pub(crate) use self::watch::LivePolicy;
use crate::identity::Identity;
use crate::operation::{Action, Operation};

/// A policy file.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    telnet: bool,
}

/// Grants operations.
#[derive(Debug)]
struct Rule {
    label: Box<str>,
    who: Vec<Who>,
    may: Vec<Action>,
    /// Empty: all operations.
    on: Vec<Target>,
    /// Prefixes of metrics; `None`: all metrics.
    metrics: Option<Vec<Box<str>>>,
}

/// Callers of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// Every caller with credentials.
    Authenticated,
    /// A caller with this name.
    Name(Box<str>),
    /// Callers with a name that begins so.
    Prefix(Box<str>),
}

/// Operations of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// All methods of gRPC.
    Grpc,
    /// All endpoints of HTTP.
    Http,
    /// All commands of telnet.
    Telnet,
    /// All methods of a service.
    Service(Box<str>),
    /// One operation.
    Operation(Box<str>),
}

/// The decision of a policy about a caller and an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Granted, for these metrics.
    Granted(Metrics),
    /// No rule grants it.
    Refused {
        /// The rules for the caller, which grant other operations.
        rules: Vec<Box<str>>,
    },
}

/// The metrics that rules grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Metrics {
    All,
    Prefixes {
        prefixes: Arc<Prefixes>,
        /// The rules that grant them.
        rules: Vec<Box<str>>,
    },
}

impl Policy {
    /// Whether telnet connections of the same machine are served.
    pub(crate) fn serves_telnet(&self) -> bool {
        self.telnet
    }

    pub(crate) fn decide(&self, identity: &Identity, operation: &Operation) -> Decision {
        let (mut of_caller, mut granting) = (Vec::new(), Vec::new());
        let mut prefixes: Vec<Box<str>> = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.is_for(identity)) {
            if !rule.grants(operation) {
                of_caller.push(rule.label.clone());
                continue;
            }
            match &rule.metrics {
                None => return Decision::Granted(Metrics::All),
                Some(metrics) => {
                    granting.push(rule.label.clone());
                    prefixes.extend(metrics.iter().cloned());
                }
            }
        }
        if granting.is_empty() {
            return Decision::Refused { rules: of_caller };
        }
        Decision::Granted(Metrics::Prefixes {
            prefixes: Arc::new(Prefixes::new(prefixes)),
            rules: granting,
        })
    }
}

impl Rule {
    fn is_for(&self, identity: &Identity) -> bool {
        self.who.iter().any(|who| match who {
            Who::Authenticated => identity.is_authenticated(),
            Who::Name(name) => identity.names().any(|other| other == &**name),
            Who::Prefix(prefix) => identity.names().any(|name| name.starts_with(&**prefix)),
        })
    }

    fn grants(&self, operation: &Operation) -> bool {
        self.may.contains(&operation.action)
            && (self.metrics.is_none() || operation.checks_metrics)
            && (self.on.is_empty() || self.on.iter().any(|target| target.has(operation.name)))
    }
}

impl Target {
    fn has(&self, operation: &str) -> bool {
        let is_http = operation.starts_with('/');
        let is_telnet = operation.starts_with("telnet/");
        match self {
            Self::Grpc => !is_http && !is_telnet,
            Self::Http => is_http,
            Self::Telnet => is_telnet,
            Self::Service(service) => operation
                .strip_prefix(&**service)
                .is_some_and(|method| method.starts_with('/')),
            Self::Operation(name) => operation == &**name,
        }
    }
}

/// Prefixes of names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prefixes {
    /// Ascending; none is the prefix of another.
    prefixes: Vec<Box<str>>,
}

impl Prefixes {
    fn new(mut prefixes: Vec<Box<str>>) -> Self {
        prefixes.sort_unstable();
        prefixes.dedup_by(|longer, shorter| longer.starts_with(&**shorter));
        Self { prefixes }
    }

    /// Whether `name` has one of the prefixes.
    pub(crate) fn cover(&self, name: &str) -> bool {
        // Prefixes of `name` sort before it, and whatever lies between would have the same prefix.
        let behind = self.prefixes.partition_point(|prefix| **prefix <= *name);
        let before = behind.checked_sub(1).and_then(|place| self.prefixes.get(place));
        before.is_some_and(|prefix| name.starts_with(&**prefix))
    }
}

#[cfg(test)]
mod tests;
