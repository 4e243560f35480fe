//! A service of a server: its connection, which is opened when it is needed, and the figures of its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use oxtsdb_resources::Durations;
use parking_lot::Mutex;
use prost::Message;
use tracing::Instrument as _;

use super::connection::{ConnectOptions, Connection, Request, Service};
use super::error::CallError;
use crate::GatewayFigures;
use crate::hbase::{KerberosPeer, TlsPeer};

/// A service of a server.
#[derive(Debug)]
pub(super) struct Server {
    address: String,
    service: Service,
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while the connection is opened: one caller opens it for all.
    opening: tokio::sync::Mutex<()>,
    is_up: AtomicBool,
    failed: AtomicU64,
    calls: Durations,
}

impl Server {
    pub(super) fn new(address: &str, service: Service) -> Self {
        Self {
            address: address.to_owned(),
            service,
            current: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            is_up: AtomicBool::new(false),
            failed: AtomicU64::new(0),
            calls: Durations::default(),
        }
    }

    /// The open connection, or a new one.
    ///
    /// # Errors
    ///
    /// [`CallError::NotSent`].
    pub(super) async fn connection(&self, options: &ConnectOptions) -> Result<Arc<Connection>, CallError> {
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        let _opening = self.opening.lock().await;
        if let Some(open) = self.open_connection() {
            return Ok(open);
        }
        let opened = Connection::open(&self.address, self.service, options).await;
        self.is_up.store(opened.is_ok(), Ordering::Relaxed);
        let connection = Arc::new(opened.inspect_err(|_| {
            self.failed.fetch_add(1, Ordering::Relaxed);
        })?);
        *self.current.lock() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn open_connection(&self) -> Option<Arc<Connection>> {
        self.current
            .lock()
            .as_ref()
            .filter(|open| open.is_open())
            .cloned()
    }

    /// Calls a method, and counts the call.
    ///
    /// # Errors
    ///
    /// As [`Connection::call`].
    pub(super) async fn call<R: Message + Default>(
        &self,
        options: &ConnectOptions,
        request: Request<'_, impl Message>,
        deadline: Instant,
    ) -> Result<(R, Bytes), CallError> {
        // A part of the trace of the call's operation; it includes connecting.
        let span = tracing::info_span!(
            target: "oxtsdb::trace",
            "hbase",
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            db.system = "hbase",
            db.operation = request.method,
            server.address = self.address,
        );
        let calling = async {
            let connection = self.connection(options).await?;
            let begun = Instant::now();
            let result = connection.call(request, deadline).await;
            self.calls.observe_since(begun);
            if result.is_err() {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            result
        };
        let result = calling.instrument(span.clone()).await;
        if result.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        result
    }

    /// Sends a request and discards its response, if the connection is open.
    pub(super) fn post(&self, request: &Request<'_, impl Message>) {
        if let Some(connection) = self.open_connection() {
            connection.post(request);
        }
    }

    /// Forgets the connection; calls that wait for it go on.
    pub(super) fn disconnect(&self) {
        self.current.lock().take();
    }

    /// The server's side of TLS, if a connection with TLS is open.
    pub(super) fn tls(&self) -> Option<TlsPeer> {
        self.open_connection()?.tls().cloned()
    }

    /// The server as Kerberos proves it, if a connection with Kerberos is open.
    pub(super) fn kerberos(&self) -> Option<KerberosPeer> {
        self.open_connection()?.kerberos().cloned()
    }

    pub(super) fn figures(&self) -> GatewayFigures {
        GatewayFigures {
            address: self.address.clone(),
            is_up: self.is_up.load(Ordering::Relaxed) && self.open_connection().is_some(),
            failed: self.failed.load(Ordering::Relaxed),
            calls: self.calls.counts(),
        }
    }
}
