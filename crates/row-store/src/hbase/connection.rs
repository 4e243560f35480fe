//! One connection with a gateway.

use std::time::Instant;

use hbase_thrift::hbase::{HbaseSyncClient, THbaseSyncClient, TThriftServerType};
use thrift::protocol::TBinaryOutputProtocol;

use super::config::HbaseConfig;
use super::error::CallError;
use super::protocol::{BoundedInput, RequestBuffer};
use super::socket::Socket;

/// The generated client over our protocol.
pub(super) type Client = HbaseSyncClient<BoundedInput<Socket>, TBinaryOutputProtocol<RequestBuffer>>;

/// Which connection of a store: the worker that owns it, and the how manieth it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    pub(super) worker: usize,
    pub(super) serial: u64,
}

/// A connection that a gateway has answered on. Requests go one after the other; it stays in the
/// thread that opened it.
pub(super) struct Connection {
    client: Client,
    socket: Socket,
    gateway: String,
    /// No other connection of this store has, or had, the same.
    pub(super) id: ConnectionId,
    /// Scanners that are open in the gateway and only known here.
    pub(super) scanners: usize,
    last_response_at: Instant,
    is_broken: bool,
}

impl Connection {
    /// Connects and asks what the gateway is, by the deadline.
    ///
    /// The question shows that the port speaks Thrift, with our framing, before a request is given
    /// away: a gateway that expects frames and one that does not wait for each other for ever. It
    /// does not concern HBase, so it costs little.
    pub(super) fn open(
        gateway: &str,
        id: ConnectionId,
        config: &HbaseConfig,
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
        };
        connection.probe(deadline).map(|()| connection)
    }

    /// Asks what the gateway is.
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

    /// When the last answer came, or the connection was made.
    pub(super) fn last_response_at(&self) -> Instant {
        self.last_response_at
    }

    /// The gateway, as `host:port`.
    pub(super) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// One request and its answer. `name` is what errors call it.
    pub(super) fn call<T>(
        &mut self,
        name: &str,
        deadline: Instant,
        request: impl FnOnce(&mut Client) -> thrift::Result<T>,
    ) -> Result<T, CallError> {
        self.socket.set_deadline(deadline);
        let result = request(&mut self.client).map_err(|error| CallError::of(error, &self.gateway, name));
        match &result {
            Err(error) if !error.leaves_connection_usable() => self.is_broken = true,
            _ => self.last_response_at = Instant::now(),
        }
        result
    }

    /// Whether a request may be sent: none has failed on it, and the gateway is still there.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken && self.socket.is_quiet()
    }

    /// Whether a request has failed on it.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }
}
