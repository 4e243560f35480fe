//! Limits and time-outs of a gRPC server.

use std::time::Duration;

use oxtsdb_resources::MemoryAccount;

use crate::connections::{CLIENT_TIMEOUT, Connections};

/// How a [`GrpcServer`] treats its connections and requests.
#[derive(Clone, Debug)]
pub struct GrpcOptions {
    /// For calls that bring no deadline; `None`: no limit. Of a stream, until its response begins.
    pub default_deadline: Option<Duration>,
    /// Connections of the process, which those of this server are among.
    pub connections: Connections,
    /// Connections of this server at a time.
    pub max_connections: usize,
    /// Calls in progress on one connection, at most.
    pub max_concurrent_streams: u32,
    /// A client that reads less than 64 KiB in so long, while there is more to send, is cut off.
    pub client_timeout: Duration,
    /// The memory that requests take from as they arrive; `None`: they are not counted.
    pub memory: Option<MemoryAccount>,
    /// A connection is asked to end after so long, so that balancers spread clients anew; `None`:
    /// never.
    pub max_connection_age: Option<Duration>,
    /// How long calls in progress may take to end once stopping has begun; then they are cut off.
    pub drain_limit: Duration,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            default_deadline: Some(Duration::from_secs(60)),
            connections: Connections::unlimited(),
            max_connections: 1024,
            max_concurrent_streams: 256,
            client_timeout: CLIENT_TIMEOUT,
            memory: None,
            max_connection_age: None,
            drain_limit: Duration::from_secs(30),
        }
    }
}
