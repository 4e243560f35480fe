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
    /// The connections of the process, including this server's.
    pub connections: Connections,
    /// Most connections of this server at a time.
    pub max_connections: usize,
    /// Most calls in progress on a connection.
    pub max_concurrent_streams: u32,
    /// A client that reads less than 64 KiB of pending data in this time is disconnected.
    pub client_timeout: Duration,
    /// The account in which requests reserve memory as they arrive.
    pub memory: MemoryAccount,
    /// The age at which a connection receives GOAWAY, give or take a tenth, so that load balancers redistribute
    /// clients; `None`: no limit.
    pub max_connection_age: Option<Duration>,
    /// How long calls in progress may take after that, before the connection is closed; `None`: no limit.
    pub connection_grace: Option<Duration>,
    /// The pause between pings.
    pub keep_alive_interval: Duration,
    /// A connection is closed if its client does not respond to a ping in this time.
    pub keep_alive_timeout: Duration,
    /// Flow-control window of a stream. HTTP/2's default of 64 KiB is less than one message of a thousand points.
    /// With 1 MiB one stream uses the bandwidth of a network with 1 Gbit/s and 8 ms.
    pub stream_window_bytes: u32,
    /// Flow-control window of a connection. Clients can fill it, and the memory account does not count that: with
    /// 2 MiB, 1,024 connections hold 2 GiB at worst.
    pub connection_window_bytes: u32,
    /// The largest frame that clients may send; they count towards the windows. HTTP/2's default of 16 KiB makes
    /// five frames of a message of a thousand points. Larger frames hold up the other streams of a connection.
    pub max_frame_bytes: u32,
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
            memory: MemoryAccount::unlimited(),
            max_connection_age: Some(Duration::from_secs(600)),
            connection_grace: Some(Duration::from_secs(300)),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(10),
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 2 << 20,
            max_frame_bytes: 64 << 10,
            admin: Admin::default(),
            name: "grpc",
            drain_limit: Duration::from_secs(30),
        }
    }
}

/// The memory limit for each call in progress: a call without a message takes about 8 KiB, and connections can exceed
/// the limit of calls eightfold, see [`calls`](super::calls).
const LIMIT_BYTES_PER_CALL: u64 = 256 << 10;

impl GrpcOptions {
    /// Calls in progress at a time, at which connections get their shares.
    pub(super) fn max_calls(&self) -> usize {
        usize::try_from(self.memory.limit_bytes() / LIMIT_BYTES_PER_CALL).unwrap_or(usize::MAX)
    }
}
