//! Points in, by protocol.

use std::sync::Arc;

use oxtsdb_ingest::{IngestCounts, POINT_FIGURES};
use oxtsdb_server::metrics::{Metrics, Protocol};

pub(super) fn report(metrics: &Metrics, counts: Arc<IngestCounts>) {
    metrics.collect(move |figures| {
        let protocols = Protocol::ALL.map(|protocol| (protocol.name(), counts.for_protocol(protocol)));
        figures.table_by(POINT_FIGURES, "protocol", &protocols);
    });
}
