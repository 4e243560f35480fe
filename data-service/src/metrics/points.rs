//! Points in, by protocol.

use std::sync::Arc;

use oxtsdb_ingest::{IngestCounts, ProtocolCounts};
use oxtsdb_server::metrics::{Metrics, Protocol};

pub(super) fn report(metrics: &Metrics, counts: Arc<IngestCounts>) {
    metrics.collect(move |figures| {
        let by_protocol = |count: fn(&ProtocolCounts) -> u64| {
            Protocol::ALL.map(|protocol| (protocol.name(), count(counts.of(protocol))))
        };
        figures.counter_by(
            "points_added",
            "Points stored, histograms and rollups included",
            "protocol",
            by_protocol(ProtocolCounts::stored),
        );
        figures.counter_by(
            "points_rejected",
            "Points that break a rule, or whose names could not be resolved",
            "protocol",
            by_protocol(ProtocolCounts::rejected),
        );
        figures.counter_by(
            "points_failed",
            "Points that are not known to be stored, because the store failed",
            "protocol",
            by_protocol(ProtocolCounts::failed),
        );
        figures.counter_by(
            "write_batches",
            "Batches of points: of requests, of frames of streams, of lines that were read together",
            "protocol",
            by_protocol(ProtocolCounts::batches),
        );
    });
}
