//! The metrics of the data service: figures of its parts, read when the admin listener is.
//!
//! `docs/operate.md` has the table of all names.

mod caches;
mod points;
mod queries;
mod store;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oxtsdb_opentsdb_front::http::running_queries;
use oxtsdb_server::Admin;
use oxtsdb_server::admin::deployment::{SaltFacts, WidthFacts};

use crate::assemble::DataService;

impl DataService {
    /// Adds the metrics of the service to the process's, and the pages of running queries and of rejected
    /// points.
    pub fn report_to(&self, admin: &Admin) {
        let metrics = &admin.metrics;
        points::report(metrics, Arc::clone(self.writer.counts()));
        queries::report(metrics, &self.engine);
        store::report(metrics, &self.engine, self.writer.clone());
        let skipped = Arc::clone(&self.handler.rollups().skipped);
        metrics.collect(move |figures| {
            figures.counter(
                "rollup_job_skipped",
                "Rows and damaged ranges that --rollup-jobs left out because they cannot be read",
                skipped.load(Ordering::Relaxed),
            );
        });
        caches::report(metrics, self.writer.clone(), self.uids.clone());
        let uids = self.uids.clone();
        admin.readiness.add_notes(move || uids.uid_health().notes());
        if let Some(points) = self.engine.storage().reader.columns().cloned() {
            admin.readiness.add_notes(move || store::notes(&*points));
        }
        let layout = *self.uids.layout();
        admin.describe(|facts| {
            facts.uid_widths = Some(WidthFacts {
                metric: layout.widths.metric.bytes(),
                tagk: layout.widths.tagk.bytes(),
                tagv: layout.widths.tagv.bytes(),
            });
            facts.salt = Some(SaltFacts {
                width: layout.salt.width(),
                buckets: layout.salt.bucket_count(),
            });
        });
        let engine = self.engine.clone();
        admin.add_page("/debug/queries", move || running_queries(&engine));
        let counts = Arc::clone(self.writer.counts());
        admin.add_page("/debug/rejections", move || counts.rejections().to_json());
    }
}
