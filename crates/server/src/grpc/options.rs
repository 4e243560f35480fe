//! Limits and time-outs of a gRPC server.

use std::time::Duration;

use oxtsdb_access::AccessControl;
use oxtsdb_resources::MemoryAccount;

use crate::Admin;
use crate::connections::{CLIENT_TIMEOUT, Connections};

/// Limits and time-outs of a [`GrpcServer`](super::GrpcServer).
#[derive(Clone, Debug)]
pub struct GrpcOptions {
    /// Checks the rights of callers.
    pub access: AccessControl,
    /// Deadline of calls without one, of streams until the response begins; `None`: no limit.
    pub default_deadline: Option<Duration>,
    /// The connections of the process, which include those of this server.
    pub connections: Connections,
    /// Most connections of this server at a time.
    pub max_connections: usize,
    /// Most calls in progress on a connection.
    pub max_concurrent_streams: u32,
    /// A client that reads less than 64 KiB of pending data in this time is disconnected.
    pub client_timeout: Duration,
    /// The account in which requests reserve memory as they arrive; `None`: they are not counted.
    pub memory: Option<MemoryAccount>,
    /// The age at which a connection receives GOAWAY, so that load balancers redistribute clients; `None`: no
    /// limit.
    pub max_connection_age: Option<Duration>,
    /// Where calls, connections and the state of the store are reported.
    pub admin: Admin,
    /// The name of the listener in metrics.
    pub name: &'static str,
    /// How long calls in progress may take after stopping has begun; then they are aborted.
    pub drain_limit: Duration,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            access: AccessControl::default(),
            default_deadline: Some(Duration::from_secs(60)),
            connections: Connections::unlimited(),
            max_connections: 1024,
            max_concurrent_streams: 256,
            client_timeout: CLIENT_TIMEOUT,
            memory: None,
            max_connection_age: None,
            admin: Admin::default(),
            name: "grpc",
            drain_limit: Duration::from_secs(30),
        }
    }
}
