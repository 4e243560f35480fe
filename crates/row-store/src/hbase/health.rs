//! Whether HBase can be reached, and what to change if it cannot.

use std::time::Instant;

use hbase_thrift::hbase::THbaseSyncClient;

use super::config::HbaseConfig;
use super::connection::{Connection, ConnectionId};
use super::error::{CallError, RequestContext};
use super::pool::Pool;
use super::queue::Route;
use super::raw;
use crate::StoreError;

/// The table that says which region server has which region. To read it takes a gateway and a region
/// server, as to read any table does.
const META: &[u8] = b"hbase:meta";
/// A row that it does not have.
const NO_ROW: &[u8] = b"oxtsdb-health";

/// Reads a row of HBase's own through one gateway or another, within `connect_timeout`.
pub(super) async fn check(pool: &Pool) -> Result<(), StoreError> {
    let config = pool.config();
    // One gateway that hangs is found out by the first attempt that meets it.
    let attempts = u32::try_from(config.gateways.len())
        .unwrap_or(u32::MAX)
        .saturating_add(1);
    let patience = config.connect_timeout.min(config.request_timeout) / attempts;
    let mut attempt = 1;
    loop {
        // Not behind what waits: much to do is no illness.
        let read = pool.submit(Route::Front, Instant::now() + patience, |connection, deadline| {
            connection.call("getRowsWithColumns", deadline, |client| {
                let rows = vec![NO_ROW.to_vec()];
                client.get_rows_with_columns(META.to_vec(), rows, Vec::new(), raw::no_attributes())
            })
        });
        let read = match read {
            Ok(call) => call.response().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(_) => return Ok(()),
            // It answers, though not to us.
            Err(CallError::Exception(exception)) if exception.names("AccessDeniedException") => return Ok(()),
            Err(CallError::ConnectionLost { .. } | CallError::TimedOut { .. }) if attempt < attempts => {
                attempt += 1
            }
            Err(error) => return Err(error.into_store_error(RequestContext::NO_TABLE)),
        }
    }
}

/// What is wrong with each gateway, in one line. Those that may speak with the other framing are
/// tried so.
pub(super) fn diagnose(config: &HbaseConfig) -> String {
    let probe = ConnectionId { worker: 0, serial: 0 };
    let open = |gateway: &str, framed| {
        let deadline = Instant::now() + config.connect_timeout;
        Connection::open(gateway, probe, config, framed, deadline).map(drop)
    };
    let findings = config.gateways.iter().map(|gateway| {
        let Err(error) = open(gateway, config.framed) else {
            return format!("{gateway}: answers now");
        };
        match (open(gateway, !config.framed), config.framed) {
            (Ok(()), false) => format!("{gateway}: it speaks in frames, set `framed`"),
            (Ok(()), true) => format!("{gateway}: it speaks without frames, do not set `framed`"),
            (Err(_), _) => format!("{gateway}: {error}"),
        }
    });
    format!(
        "no HBase Thrift1 gateway with the binary protocol: {}",
        findings.collect::<Vec<_>>().join("; ")
    )
}
