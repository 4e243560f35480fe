//! Telnet front end: OpenTSDB's line protocol, as collectd, tcollector and scripts use it.
//!
//! A stored `put` has no reply; only errors are reported. So that a client can send at full speed, all whole lines
//! of one read form a batch, and the next batch is read while earlier ones are being stored:
//!
//! ```text
//!   reading ─► window, UIDs, permit (one batch) ─► in flight (in order) ─► stored
//! ```
//!
//! If the store falls behind, its writes grow, because it coalesces batches by row. Reading pauses while the
//! lines in flight fill the connection's window, no permit is free for another batch, or the ingest pool is
//! exhausted. TCP passes the back-pressure on to the client.
//!
//! Replies are sent in the order of the lines and cover all lines before them: a line that needs a reply, and the
//! lines that were read behind it, are a batch that is stored once the batches before it are complete, and the next
//! batch is read after its replies. A batch in flight therefore needs a reply only if it fails.
//!
//! Clients of this protocol never resend. While the store or the UID service is unavailable, a write is therefore
//! retried until [`patient_write::PATIENCE`] has passed. The batches behind a failed batch in flight are
//! written again too, one after the other: of two values for one timestamp, the later line's stays.
//!
//! Differences from OpenTSDB: a line over the limit is reported before the connection is closed; a failed write
//! is reported once with the number of its points, not once for each; `diediedie` is an unknown command, as with
//! `tsd.no_diediedie`. As there, half a line at the end of the
//! input is not stored.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.handleTelnetRpc`, `PutDataPointRpc.execute`,
//! `PipelineFactory` (lines of 1024 bytes).

mod batch;
mod datum;
mod histogram;
mod in_flight;
mod lines;
mod patient_write;
mod puts;
mod replies;
mod rollup;
mod served;
mod session;

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_access::{AccessControl, Identity};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::rollup::RollupWriter;
use oxtsdb_ingest::{Caller, Writer};
use oxtsdb_resources::ClientId;
use oxtsdb_server::Shutdown;
use oxtsdb_server::connections::{ClientStream, Connection};
use oxtsdb_server::metrics::Protocol;
use oxtsdb_server::telemetry::called_by;
use tokio::io::AsyncWriteExt as _;

use self::datum::Histograms;
use self::served::Served;
use self::session::{Session, SessionOptions, Writers};
use crate::front::counters::Counters;

/// Bytes of lines that a connection may have in flight; the last batch may go over it.
const WINDOW_BYTES: usize = 4 << 20;

/// The telnet side of the data service. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Telnet {
    writer: Writer,
    rollups: RollupWriter,
    counters: Arc<Counters>,
    options: SessionOptions,
    access: AccessControl,
}

impl Telnet {
    pub(crate) fn new(
        writer: Writer,
        rollups: RollupWriter,
        settings: &DataSettings,
        counters: Arc<Counters>,
    ) -> Telnet {
        Telnet {
            writer,
            rollups,
            counters,
            access: AccessControl::default(),
            options: SessionOptions {
                max_line_bytes: settings.telnet.telnet_max_line_bytes,
                batch_points: settings.telnet.telnet_batch_points,
                window_bytes: WINDOW_BYTES,
            },
        }
    }

    /// The same, with checks of the callers' rights.
    pub(crate) fn with_access(self, access: AccessControl) -> Telnet {
        Telnet { access, ..self }
    }

    /// The same with another window.
    pub(crate) fn with_window(self, window_bytes: usize) -> Telnet {
        let options = SessionOptions {
            window_bytes,
            ..self.options
        };
        Telnet { options, ..self }
    }

    /// Serves one connection until it closes.
    pub(crate) async fn serve(
        &self,
        stream: ClientStream,
        connection: &Connection,
        shutdown: Shutdown,
    ) -> std::io::Result<()> {
        if let Err(refusal) = self.access.admit_telnet(connection.peer().ip()) {
            let mut stream = stream;
            stream.write_all(format!("{refusal}\n").as_bytes()).await?;
            return stream.shutdown().await;
        }
        let served = Served::new(&self.access);
        let writer = |command| match served.metrics(command) {
            Some(scope) => self.writer.limited_to(scope),
            None => self.writer.clone(),
        };
        let writers = Writers {
            points: writer("put"),
            histograms: Histograms(writer("histogram")),
            rollups: match served.metrics("rollup") {
                Some(scope) => self.rollups.limited_to(scope),
                None => self.rollups.clone(),
            },
        };
        let client = ClientId::from_peer(connection.peer());
        let caller = Caller::new(Protocol::Telnet, None, client);
        let session = Session::new(&writers, &self.counters, caller, self.options, served, stream);
        let serving = session.run(&shutdown, connection);
        let Some(record) = self.counters.requests().connection(connection.peer()) else {
            return serving.await;
        };
        let begun = Instant::now();
        let serving = async {
            called_by(&Identity::telnet());
            serving.await
        };
        let served = record.scope(serving).await;
        record.end_connection(served.is_ok(), begun.elapsed());
        served
    }
}

#[cfg(test)]
mod tests;
