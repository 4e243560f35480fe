//! Points that were received and stored, by protocol.

use oxtsdb_resources::{Counter, Figure};
use oxtsdb_server::metrics::Protocol;
use oxtsdb_server::telemetry::used;

use super::rejections::{Caller, Example, RejectionKind, Rejections};

/// Counts since the start, of all protocols.
#[derive(Debug, Default)]
pub struct IngestCounts {
    grpc: ProtocolCounts,
    http: ProtocolCounts,
    telnet: ProtocolCounts,
    rejections: Rejections,
}

/// Counts of one protocol. Histograms and rollups are points too.
#[derive(Debug, Default)]
pub struct ProtocolCounts {
    batches: Counter,
    stored: Counter,
    rejected: Counter,
    failed: Counter,
}

type Row = Figure<ProtocolCounts>;

/// Metrics of a protocol's points and lines of `/api/stats`, in their order.
pub static POINT_FIGURES: &[Row] = &[
    Row::counter(
        "points_added",
        "Points stored, histograms and rollups included",
        |counts| Some(counts.stored()),
    )
    .statistic("oxtsdb.points.added"),
    Row::counter(
        "points_rejected",
        "Points that break a rule, or whose names could not be resolved",
        |counts| Some(counts.rejected()),
    )
    .statistic("oxtsdb.points.rejected"),
    Row::counter(
        "points_failed",
        "Points that are not known to be stored, because the store failed",
        |counts| Some(counts.failed()),
    )
    .statistic("oxtsdb.points.failed"),
    Row::counter(
        "write_batches",
        "Batches of points: of requests, of frames of streams, of lines that were read together",
        |counts| Some(counts.batches()),
    ),
];

impl IngestCounts {
    /// The counts of a protocol.
    pub const fn for_protocol(&self, protocol: Protocol) -> &ProtocolCounts {
        match protocol {
            Protocol::Grpc => &self.grpc,
            Protocol::Http => &self.http,
            Protocol::Telnet => &self.telnet,
        }
    }

    /// Counts points that broke a rule, or had names that could not be resolved; `example` describes one of them.
    pub fn reject(
        &self,
        caller: &Caller,
        kind: RejectionKind,
        points: u64,
        example: impl FnOnce() -> Example,
    ) {
        self.for_protocol(caller.protocol).rejected.add(points);
        self.rejections.add(caller, kind, points, example);
    }

    /// As [`IngestCounts::reject`], for a line or a body that could not be parsed into points.
    pub fn reject_text(&self, caller: &Caller, example: impl FnOnce() -> Example) {
        self.rejections.add(caller, RejectionKind::Malformed, 1, example);
    }

    /// The last rejected points.
    pub const fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    /// Points stored, of all protocols.
    pub fn stored(&self) -> u64 {
        Protocol::ALL
            .map(|protocol| self.for_protocol(protocol).stored())
            .iter()
            .sum()
    }
}

impl ProtocolCounts {
    /// A batch was stored, except for points that were rejected before.
    pub fn add_batch(&self, stored: u64) {
        used(0, stored);
        self.batches.add(1);
        self.stored.add(stored);
    }

    /// A batch failed: its points are not known to be stored.
    pub fn add_failed(&self, points: u64) {
        self.batches.add(1);
        self.failed.add(points);
    }

    /// Batches since the start: stored and failed ones.
    pub fn batches(&self) -> u64 {
        self.batches.get()
    }

    /// Points stored since the start.
    pub fn stored(&self) -> u64 {
        self.stored.get()
    }

    /// Points since the start that broke a rule or had names that could not be resolved.
    pub fn rejected(&self) -> u64 {
        self.rejected.get()
    }

    /// Points of failed batches since the start; the store may have some of them.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_resources::ClientId;

    use super::*;

    #[test]
    fn counts_each_protocol_and_all() {
        let counts = IngestCounts::default();
        counts.for_protocol(Protocol::Grpc).add_batch(10);
        let caller = Caller::new(Protocol::Grpc, None, ClientId::Local);
        counts.reject(&caller, RejectionKind::Value, 1, || Example {
            reason: String::new(),
            point: String::new(),
        });
        counts.for_protocol(Protocol::Http).add_batch(5);
        counts.for_protocol(Protocol::Telnet).add_failed(7);
        assert_eq!(counts.stored(), 15);
        let grpc = counts.for_protocol(Protocol::Grpc);
        assert_eq!((grpc.batches(), grpc.stored(), grpc.rejected()), (1, 10, 1));
        let telnet = counts.for_protocol(Protocol::Telnet);
        assert_eq!((telnet.batches(), telnet.stored(), telnet.failed()), (1, 0, 7));
    }
}
