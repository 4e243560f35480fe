//! A connection to a gateway.

use std::sync::Arc;
use std::time::Instant;

use hbase_thrift::hbase::{THbaseSyncClient, TThriftServerType};
use thrift::protocol::TBinaryOutputProtocol;

use super::config::ThriftConfig;
use super::error::CallError;
use super::gateway::CallCounts;
use super::protocol::{BoundedInput, RequestBuffer};
use super::socket::Socket;

/// The client of a connection.
type Client = super::client::Client<Socket, RequestBuffer>;

/// Identifies a connection of a store: its worker, and a serial number within that worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) worker: usize,
    pub(super) serial: u64,
}

/// A connection on which the gateway has responded. Requests run one at a time, on the thread that opened it.
pub(super) struct Connection {
    client: Client,
    socket: Socket,
    gateway: String,
    /// Unique among all connections of the store, past and present.
    pub(super) id: ConnectionId,
    /// Number of scanners that this connection has open in the gateway.
    pub(super) scanners: usize,
    last_response_at: Instant,
    is_broken: bool,
    counts: Option<Arc<CallCounts>>,
}

impl Connection {
    /// Connects and probes the gateway, by the deadline.
    ///
    /// The probe verifies that the port speaks Thrift with the configured framing: a gateway that expects frames
    /// and a client that does not send them would wait for each other forever. It does not involve HBase, so it is
    /// cheap.
    pub(super) fn open(
        gateway: &str,
        id: ConnectionId,
        config: &ThriftConfig,
        framed: bool,
        deadline: Instant,
    ) -> Result<Self, String> {
        let socket =
            Socket::connect(gateway, deadline).map_err(|error| format!("cannot connect: {error}"))?;
        let input = BoundedInput::new(socket.clone(), framed, config.max_reply_bytes);
        let output = TBinaryOutputProtocol::new(RequestBuffer::new(socket.clone(), framed), true);
        let mut connection = Self {
            client: Client::new(input, output),
            socket,
            gateway: gateway.to_owned(),
            id,
            scanners: 0,
            last_response_at: Instant::now(),
            is_broken: false,
            counts: None,
        };
        connection.probe(deadline).map(|()| connection)
    }

    /// Counts its calls in the counters of its gateway.
    pub(super) fn count_in(&mut self, counts: &Arc<CallCounts>) {
        self.counts = Some(Arc::clone(counts));
    }

    /// Requests the server type of the gateway.
    pub(super) fn probe(&mut self, deadline: Instant) -> Result<(), String> {
        match self.call("getThriftServerType", deadline, |client| {
            client.get_thrift_server_type()
        }) {
            Ok(TThriftServerType::TWO) => {
                Err("it is a Thrift2 gateway, start HBase's `thrift` instead of `thrift2`".to_owned())
            }
            Ok(_) => Ok(()),
            Err(CallError::ConnectionLost { detail, .. } | CallError::TimedOut { detail, .. }) => Err(detail),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The time of the last response, or of the connect.
    pub(super) fn last_response_at(&self) -> Instant {
        self.last_response_at
    }

    /// The gateway, as `host:port`.
    pub(super) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Sends one request and waits for its response. `name` identifies it in errors.
    pub(super) fn call<T>(
        &mut self,
        name: &str,
        deadline: Instant,
        request: impl FnOnce(&mut Client) -> thrift::Result<T>,
    ) -> Result<T, CallError> {
        self.socket.set_deadline(deadline);
        let begun = Instant::now();
        let result =
            request(&mut self.client).map_err(|error| CallError::from_thrift(error, &self.gateway, name));
        if let Some(counts) = &self.counts {
            counts.count(begun, result.is_err());
        }
        match &result {
            Err(error) if !error.leaves_connection_usable() => self.is_broken = true,
            _ => self.last_response_at = Instant::now(),
        }
        result
    }

    /// Whether a request may be sent: none has failed, and the peer has not closed the connection.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken && self.socket.is_quiet()
    }

    /// Whether a request has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }
}
