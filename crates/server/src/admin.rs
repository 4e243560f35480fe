//! The admin listener: metrics, liveness, readiness and pages for debugging, apart from the ports of clients.
//!
//! ```text
//!   GET /metrics          OpenMetrics text
//!   GET /healthz          200 while the process responds; it never calls the store
//!   GET /readyz           200 while the services can serve, with notes for operators; else 503 with the reasons
//!   GET /debug/...        pages that services add, as JSON
//! ```
//!
//! It listens before the stores are opened, so that a long recovery is alive but not ready, and until the process
//! ends, so that a drain can be observed. Its connections do not count among the connections of clients: clients that
//! take all of these do not make a process look dead.

pub mod deployment;
mod listen;
mod readiness;
mod serve;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use self::deployment::Deployment;
pub use self::listen::AdminListen;
pub use self::readiness::Readiness;
pub(crate) use self::serve::serve;
use crate::metrics::Metrics;

/// State shown by the admin listener. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Admin {
    /// The metrics of the process.
    pub metrics: Metrics,
    /// Whether the process can serve.
    pub readiness: Readiness,
    pages: Arc<Mutex<BTreeMap<&'static str, Page>>>,
    deployment: Arc<Mutex<Deployment>>,
}

/// Renders a page as JSON.
#[derive(Clone)]
struct Page(Arc<dyn Fn() -> Vec<u8> + Send + Sync>);

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

impl Admin {
    /// Adds a page of JSON at a path below `/debug`; `render` must not block.
    pub fn add_page(&self, path: &'static str, render: impl Fn() -> Vec<u8> + Send + Sync + 'static) {
        self.pages.lock().insert(path, Page(Arc::new(render)));
    }

    /// Adds facts to the page of the deployment.
    pub fn describe(&self, add: impl FnOnce(&mut Deployment)) {
        add(&mut self.deployment.lock());
    }

    /// Adds the page of the deployment.
    pub(crate) fn show_deployment(&self) {
        let deployment = Arc::clone(&self.deployment);
        self.add_page(deployment::PATH, move || {
            let mut facts = deployment.lock().clone();
            let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            facts.clock_ms = u64::try_from(clock.as_millis()).unwrap_or(u64::MAX);
            serde_json::to_vec_pretty(&facts).unwrap_or_default()
        });
    }

    fn page(&self, path: &str) -> Option<Page> {
        self.pages.lock().get(path).cloned()
    }

    fn paths(&self) -> Vec<&'static str> {
        let mut paths = vec!["/metrics", "/healthz", "/readyz"];
        paths.extend(self.pages.lock().keys());
        paths
    }
}

#[cfg(test)]
mod tests;
