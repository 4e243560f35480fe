//! The metrics of the data service: figures of its parts, read when the admin listener is.
//!
//! `docs/operate.md` has the table of all names.

mod points;

use std::sync::Arc;

use oxtsdb_query::Engine;
use oxtsdb_server::Admin;

use crate::assemble::DataService;
use crate::http::running_queries;

impl DataService {
    /// Adds the metrics of the service to those of the process, and the page of running queries.
    pub fn report_to(&self, admin: &Admin) {
        points::report(&admin.metrics, Arc::clone(self.writer.counts()));
        add_queries(admin, self.engine.clone());
    }
}

fn add_queries(admin: &Admin, engine: Engine) {
    admin.add_page("/debug/queries", move || running_queries(&engine));
}
