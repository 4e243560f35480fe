//! The limit of calls in progress.
//!
//! A call costs memory before a handler sees it, and callers without rights can begin calls. Below the limit each
//! connection begins as many calls as it wants. At the limit a connection begins further calls up to its share, so that
//! connections with many calls keep no other out:
//!
//! ```text
//!   share = limit / connections with calls, at least 8
//! ```
//!
//! Calls are not cut off for others, so that together the connections exceed the limit: `n` connections that come one
//! after the other have at most `limit × (1 + 1/2 + … + 1/n)` calls, and 8 each.

use std::sync::Arc;

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use parking_lot::Mutex;
use tonic::{Code, Status};

/// The smallest share of a connection.
const MIN_SHARE: usize = 8;

/// The calls in progress on all connections of a server.
#[derive(Debug)]
pub(super) struct Calls {
    limit: usize,
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: usize,
    /// Connections with calls.
    connections: usize,
}

impl Calls {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            counts: Mutex::default(),
        })
    }

    pub(super) fn connection(self: &Arc<Self>) -> ConnectionCalls {
        ConnectionCalls(Arc::new(OneConnection {
            all: Arc::clone(self),
            own: Mutex::new(0),
        }))
    }
}

/// The calls in progress on a connection. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ConnectionCalls(Arc<OneConnection>);

#[derive(Debug)]
struct OneConnection {
    all: Arc<Calls>,
    own: Mutex<usize>,
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call(ConnectionCalls);

impl ConnectionCalls {
    /// Begins a call.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE at the limit.
    pub(super) fn begin(&self) -> Result<Call, Status> {
        let OneConnection { all, own } = &*self.0;
        let mut own = own.lock();
        let mut counts = all.counts.lock();
        if counts.calls >= all.limit {
            let connections = counts.connections + usize::from(*own == 0);
            let share = (all.limit / connections).max(MIN_SHARE);
            if *own >= share {
                return Err(at_limit(*counts, all.limit, share));
            }
        }
        if *own == 0 {
            counts.connections += 1;
        }
        *own += 1;
        counts.calls += 1;
        Ok(Call(self.clone()))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let OneConnection { all, own } = &*self.0.0;
        let mut own = own.lock();
        let mut counts = all.counts.lock();
        *own -= 1;
        counts.calls -= 1;
        if *own == 0 {
            counts.connections -= 1;
        }
    }
}

fn at_limit(counts: Counts, limit: usize, share: usize) -> Status {
    error::status(
        Code::Unavailable,
        ErrorReason::Overloaded,
        format!(
            "{} calls are in progress on {} connections, of {limit}; this connection has its share of {share}; retry later",
            counts.calls, counts.connections
        ),
        &[("limit", &limit.to_string())],
    )
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::error::reason_of;
    use tonic_types::StatusExt as _;

    use super::*;

    fn begin_all(connection: &ConnectionCalls) -> Vec<Call> {
        std::iter::from_fn(|| connection.begin().ok())
            .take(10_000)
            .collect()
    }

    #[test]
    fn a_connection_that_has_all_calls_keeps_no_other_out() {
        let all = Calls::new(1000);
        let first = all.connection();
        let calls = begin_all(&first);
        assert_eq!(calls.len(), 1000);
        let status = first.begin().unwrap_err();
        assert_eq!(
            (status.code(), reason_of(&status)),
            (Code::Unavailable, Some(ErrorReason::Overloaded))
        );
        assert!(status.get_details_retry_info().is_some(), "{status:?}");
        let second = all.connection();
        assert_eq!(begin_all(&second).len(), 500);
        drop(calls);
        assert_eq!(begin_all(&second).len(), 1000, "the limit is free again");
        assert_eq!(all.counts.lock().calls, 0);
        assert_eq!(all.counts.lock().connections, 0);
    }

    #[test]
    fn many_connections_together_are_bounded() {
        let all = Calls::new(2048);
        let connections: Vec<_> = (0..1024).map(|_| all.connection()).collect();
        // HTTP/2 bounds a connection to 256.
        let calls: Vec<_> = connections
            .iter()
            .flat_map(|connection| std::iter::from_fn(|| connection.begin().ok()).take(256))
            .collect();
        assert!(calls.len() < 8 * 2048, "{}", calls.len());
        let new = all.connection();
        assert_eq!(begin_all(&new).len(), MIN_SHARE);
    }
}
