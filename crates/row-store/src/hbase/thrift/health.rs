//! Health checks of HBase, and diagnosis of unreachable gateways.

use std::time::Instant;

use hbase_thrift::hbase::THbaseSyncClient;

use super::config::ThriftConfig;
use super::connection::{Connection, ConnectionId};
use super::error::{CallError, RequestContext};
use super::pool::Pool;
use super::queue::Route;
use super::raw;
use crate::StoreError;

/// The table that maps regions to region servers. Reading it involves a gateway and a region server, as reading
/// any table does.
const META: &[u8] = b"hbase:meta";
/// A row that does not exist.
const NO_ROW: &[u8] = b"oxtsdb-health";

/// Reads a row of `hbase:meta` through any gateway, within `connect_timeout`.
pub(super) async fn check(pool: &Pool) -> Result<(), StoreError> {
    let config = pool.config();
    // The first attempt that meets a hanging gateway marks it as suspect.
    let attempts = u32::try_from(config.gateways.len())
        .unwrap_or(u32::MAX)
        .saturating_add(1);
    let patience = config.connect_timeout.min(config.request_timeout) / attempts;
    let mut attempt = 1;
    loop {
        // Ahead of waiting requests: a busy store is not unhealthy.
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
            // HBase responded; it merely denies access.
            Err(CallError::Exception(exception)) if exception.names("AccessDeniedException") => return Ok(()),
            Err(CallError::ConnectionLost { .. } | CallError::TimedOut { .. }) if attempt < attempts => {
                attempt += 1
            }
            Err(error) => return Err(error.into_store_error(RequestContext::NO_TABLE)),
        }
    }
}

/// Diagnoses each gateway, in one line. Gateways that fail are also tried with the other framing.
pub(super) fn diagnose(config: &ThriftConfig) -> String {
    let probe = ConnectionId { worker: 0, serial: 0 };
    let open = |gateway: &str, framed| {
        let deadline = Instant::now() + config.connect_timeout;
        Connection::open(gateway, probe, config, framed, deadline).map(drop)
    };
    let findings = config.gateways.iter().map(|gateway| {
        let Err(error) = open(gateway, config.framed) else {
            return format!("{gateway}: responds now");
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
