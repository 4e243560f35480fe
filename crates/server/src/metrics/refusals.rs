//! Requests that rights, or the mode of the server, refuse.

use oxtsdb_access::AccessControl;

use super::Metrics;

impl Metrics {
    /// Adds the refusals of the process.
    pub(crate) fn collect_refusals(&self, access: &AccessControl) {
        let counts = std::sync::Arc::clone(access.refusals());
        self.collect(move |figures| {
            figures.counter_by(
                "access_refused",
                "Requests refused by rights or by the mode of the server",
                "reason",
                counts.all(),
            );
        });
    }
}
