//! The metrics of one request, where rules grant only some.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::warn;

use crate::identity::{Identity, shown};
use crate::operation::{Action, Operation};
use crate::policy::Prefixes;
use crate::refusal::{Refusal, RefusalCounts};

/// The metrics that a request may name. Clones share it; it lasts as long as the request.
#[derive(Clone, Debug)]
pub struct MetricScope(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    identity: String,
    operation: &'static str,
    action: Action,
    prefixes: Arc<Prefixes>,
    rules: Vec<Box<str>>,
    refused: AtomicU64,
    counts: Arc<RefusalCounts>,
}

impl MetricScope {
    pub(crate) fn new(
        identity: &Identity,
        operation: &Operation,
        prefixes: Arc<Prefixes>,
        rules: Vec<Box<str>>,
        counts: Arc<RefusalCounts>,
    ) -> Self {
        Self(Arc::new(Inner {
            identity: identity.to_string(),
            operation: operation.name,
            action: operation.action,
            prefixes,
            rules,
            refused: AtomicU64::new(0),
            counts,
        }))
    }

    /// Whether the request may name a metric. Counts nothing.
    pub fn covers(&self, metric: &str) -> bool {
        self.0.prefixes.cover(metric)
    }

    /// Checks the metric of a UID, which the request names by that alone: the refusal repeats the UID, and not the name.
    ///
    /// # Errors
    ///
    /// [`Refusal::Metric`].
    pub fn check_uid(&self, uid: impl std::fmt::Display, metric: &str) -> Result<(), Refusal> {
        match self.covers(metric) {
            true => Ok(()),
            false => Err(self.refuse(format!("UID {uid}"))),
        }
    }

    /// Checks a metric. Of several refused metrics of a request the first is logged, and later their number.
    ///
    /// # Errors
    ///
    /// [`Refusal::Metric`].
    pub fn check(&self, metric: &str) -> Result<(), Refusal> {
        match self.covers(metric) {
            true => Ok(()),
            false => Err(self.refuse(shown(metric))),
        }
    }

    fn refuse(&self, metric: String) -> Refusal {
        let inner = &*self.0;
        let refusal = Refusal::Metric {
            identity: inner.identity.clone(),
            action: inner.action,
            metric,
        };
        inner.counts.count(&refusal);
        if inner.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!(
                identity = inner.identity,
                operation = inner.operation,
                right = %inner.action,
                reason = %refusal,
                rules = inner.rules.join(", "),
                "refused: the rules grant other metrics"
            );
        }
        refusal
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let refused = *self.refused.get_mut();
        if refused > 1 {
            warn!(
                identity = self.identity,
                operation = self.operation,
                refused,
                rules = self.rules.join(", "),
                "refused so many series of the request"
            );
        }
    }
}
