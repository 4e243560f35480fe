//! The metrics of one request, where rules grant only some.

use std::fmt;
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

    /// Checks a metric. Of several refused metrics of a request the first is logged, and later their number.
    ///
    /// # Errors
    ///
    /// [`Refusal::Metric`].
    pub fn check(&self, metric: &str) -> Result<(), Refusal> {
        if self.covers(metric) {
            return Ok(());
        }
        Err(self.refuse(Refusal::Metric {
            identity: self.0.identity.clone(),
            action: self.0.action,
            metric: shown(metric),
        }))
    }

    /// Checks the metric of a TSUID by the name of its UID; `None`: it has none, and is refused. Logged as by
    /// [`MetricScope::check`].
    ///
    /// # Errors
    ///
    /// [`Refusal::MetricUid`].
    pub fn check_uid(&self, uid: impl fmt::Display, metric: Option<&str>) -> Result<(), Refusal> {
        if metric.is_some_and(|metric| self.covers(metric)) {
            return Ok(());
        }
        Err(self.refuse(Refusal::MetricUid {
            identity: self.0.identity.clone(),
            action: self.0.action,
            uid: uid.to_string(),
        }))
    }

    /// Refuses global annotations, which belong to no metric. Logged as by [`MetricScope::check`].
    pub fn refuse_global_annotations(&self) -> Refusal {
        self.refuse(Refusal::GlobalAnnotations {
            identity: self.0.identity.clone(),
        })
    }

    fn refuse(&self, refusal: Refusal) -> Refusal {
        let inner = &*self.0;
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
