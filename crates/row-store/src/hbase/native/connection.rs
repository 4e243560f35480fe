//! A connection to one service of one server.
//!
//! ```text
//!   caller ─► frames (bounded by bytes) ─► writer ─► server ─► reader ─► the caller with the call's number
//! ```
//!
//! Responses come in any order. Calls of one connection run concurrently in the server. A caller may go away at any
//! time: its request takes effect or not, and its response is dropped.
//!
//! How messages are encoded: [`frame`].

mod frame;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use oxtsdb_tls::{Connector, Credentials};
use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxBuildHasher;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use self::frame::Response;
pub(super) use self::frame::{Request, Service};
use super::error::CallError;
use super::kerberos::{Kerberos, Ticket};
use super::{address, sasl, tls};
use crate::hbase::{KerberosPeer, Protection, TlsPeer};

/// Bytes of requests that a connection holds until they have a response.
const MAX_BYTES_IN_FLIGHT: u32 = 64 << 20;

/// Frames that wait for the writer; their bytes have the limit above.
const MAX_WAITING_FRAMES: usize = 1024;

/// How long the first bytes of a response may take after its length.
const START_OF_A_RESPONSE: Duration = Duration::from_millis(200);

/// The options of a connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectOptions {
    /// The name that the server's access control sees.
    pub(super) user: String,
    /// Performs the handshake of TLS; `None`: plain text.
    pub(super) tls: Option<Arc<Connector>>,
    /// Gets tickets for servers; `None`: they believe the name of the user.
    pub(super) kerberos: Option<Arc<Kerberos>>,
    /// How long connecting may take.
    pub(super) time: Duration,
    /// The longest response, in bytes.
    pub(super) max_reply_bytes: usize,
}

/// An open connection; dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    server: Arc<str>,
    frames: mpsc::Sender<Bytes>,
    calls: Arc<Calls>,
    next_id: AtomicU32,
    bytes: Arc<Semaphore>,
    tls: Option<TlsPeer>,
    kerberos: Option<KerberosPeer>,
    tasks: [JoinHandle<()>; 2],
}

/// The halves of a stream, of TCP or of TLS.
type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

/// The calls that wait for a response.
#[derive(Debug, Default)]
struct Calls {
    state: Mutex<CallState>,
    /// Responses that were read.
    responses: AtomicU64,
}

#[derive(Debug, Default)]
struct CallState {
    waiting: HashMap<u32, oneshot::Sender<Result<Response, CallError>>, FxBuildHasher>,
    /// The error that ended the connection.
    ended: Option<CallError>,
}

impl Calls {
    /// Ends the connection: all calls that wait, and later ones, get the error.
    fn end(&self, error: &CallError) {
        let waiting = {
            let mut state = self.state.lock();
            state.ended.get_or_insert_with(|| error.clone());
            std::mem::take(&mut state.waiting)
        };
        for call in waiting.into_values() {
            let _ = call.send(Err(error.clone()));
        }
    }

    fn complete(&self, id: u32, result: Result<Response, CallError>) {
        self.responses.fetch_add(1, Ordering::Relaxed);
        let call = self.state.lock().waiting.remove(&id);
        if let Some(call) = call {
            let _ = call.send(result);
        }
    }
}

/// Removes the call of a caller that went away.
struct Registration<'a> {
    calls: &'a Calls,
    id: u32,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.calls.state.lock().waiting.remove(&self.id);
    }
}

impl Connection {
    /// Connects to `host:port`.
    ///
    /// # Errors
    ///
    /// [`CallError::NotSent`].
    pub(super) async fn open(
        server: &str,
        service: Service,
        options: &ConnectOptions,
    ) -> Result<Self, CallError> {
        let not_sent = |detail: String| CallError::NotSent {
            server: server.to_owned(),
            detail,
        };
        let within = options.time;
        let out_of_time = |_| not_sent(format!("cannot connect within {within:?}"));
        let failed = |cause| not_sent(format!("cannot connect: {cause}"));
        let connecting = tokio::time::timeout(within, connect(server, options));
        let (halves, tls) = connecting.await.map_err(out_of_time)?.map_err(failed)?;
        // A KDC has a time of its own.
        let ticket = match &options.kerberos {
            Some(kerberos) => Some(kerberos.ticket(address::host(server)).await.map_err(failed)?),
            None => None,
        };
        let greeting = tokio::time::timeout(within, greet(halves, service, options, ticket.as_deref()));
        let ((read, mut write), protection) = greeting.await.map_err(out_of_time)?.map_err(failed)?;
        let kerberos = ticket.zip(protection).map(|(ticket, protection)| KerberosPeer {
            address: server.to_owned(),
            principal: ticket.server().to_owned(),
            protection,
            ticket_ends: ticket.ends(),
        });
        let (frames, mut waiting) = mpsc::channel::<Bytes>(MAX_WAITING_FRAMES);
        let calls = Arc::new(Calls::default());
        let name: Arc<str> = server.into();
        let credentials = options.tls.as_ref().map(|tls| tls.credentials().clone());
        let peer = Peer {
            server: Arc::clone(&name),
            tls: credentials.map(Arc::new),
        };
        let (of_writer, writer_peer) = (Arc::clone(&calls), peer.clone());
        let writer = tokio::spawn(async move {
            while let Some(frame) = waiting.recv().await {
                let writing = async {
                    write.write_all(&frame).await?;
                    // TLS may hold back a part of a frame.
                    write.flush().await
                };
                if let Err(error) = writing.await {
                    of_writer.end(&writer_peer.lost(&error, &of_writer));
                    return;
                }
            }
        });
        let of_reader = Arc::clone(&calls);
        let most = options.max_reply_bytes;
        let reader = tokio::spawn(async move {
            let mut read = BufReader::with_capacity(64 << 10, read);
            loop {
                if let Err(error) = read_response(&mut read, &peer, most, &of_reader).await {
                    of_reader.end(&error);
                    return;
                }
            }
        });
        Ok(Self {
            server: name,
            frames,
            calls,
            next_id: AtomicU32::new(1),
            bytes: Arc::new(Semaphore::new(MAX_BYTES_IN_FLIGHT as usize)),
            tls,
            kerberos,
            tasks: [writer, reader],
        })
    }

    /// Whether calls can succeed.
    pub(super) fn is_open(&self) -> bool {
        self.calls.state.lock().ended.is_none()
    }

    /// The server's side of TLS; `None` in plain text.
    pub(super) const fn tls(&self) -> Option<&TlsPeer> {
        self.tls.as_ref()
    }

    /// The server as Kerberos proves it; `None` without Kerberos.
    pub(super) const fn kerberos(&self) -> Option<&KerberosPeer> {
        self.kerberos.as_ref()
    }

    /// Calls a method and returns its response, with the cells behind it.
    ///
    /// # Errors
    ///
    /// [`CallError::NotSent`], [`CallError::Lost`], [`CallError::TimedOut`], [`CallError::TooLarge`],
    /// [`CallError::Malformed`], [`CallError::Exception`].
    pub(super) async fn call<R: Message + Default>(
        &self,
        request: Request<'_, impl Message>,
        deadline: Instant,
    ) -> Result<(R, Bytes), CallError> {
        let method = request.method;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let frame = frame::encode(id, &request, Some(deadline));
        let Ok(_permit) = tokio::time::timeout_at(deadline.into(), self.admit(frame.len())).await else {
            return Err(CallError::NotSent {
                server: self.server.to_string(),
                detail: format!("{MAX_BYTES_IN_FLIGHT} bytes of requests wait for a response"),
            });
        };
        let responses = self.calls.responses.load(Ordering::Relaxed);
        let called = tokio::time::timeout_at(deadline.into(), self.send(id, frame)).await;
        let response = match called {
            Ok(response) => response?,
            Err(_) => {
                let error = CallError::TimedOut {
                    server: self.server.to_string(),
                    detail: format!("{method}: no response in time"),
                };
                // A connection without any response meanwhile may be dead.
                if self.calls.responses.load(Ordering::Relaxed) == responses {
                    self.calls.end(&CallError::Lost {
                        server: self.server.to_string(),
                        detail: "it does not respond".to_owned(),
                    });
                }
                return Err(error);
            }
        };
        let message = R::decode(response.message)
            .map_err(|error| CallError::malformed(format!("{}: {method}: {error}", self.server)))?;
        Ok((message, response.cells))
    }

    async fn send(&self, id: u32, frame: Bytes) -> Result<Response, CallError> {
        let (respond, response) = oneshot::channel();
        {
            let mut state = self.calls.state.lock();
            if let Some(error) = &state.ended {
                return Err(self.not_sent(error));
            }
            state.waiting.insert(id, respond);
        }
        let _registration = Registration {
            calls: &self.calls,
            id,
        };
        if self.frames.send(frame).await.is_err() {
            return Err(self.not_sent(&CallError::malformed("the connection is closed")));
        }
        response.await.unwrap_or_else(|_| {
            Err(CallError::Lost {
                server: self.server.to_string(),
                detail: "the connection is closed".to_owned(),
            })
        })
    }

    /// Sends a request and discards its response, if the queue has room for the request.
    pub(super) fn post(&self, request: &Request<'_, impl Message>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let _ = self.frames.try_send(frame::encode(id, request, None));
    }

    /// Waits until the bytes of a request fit.
    async fn admit(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(MAX_BYTES_IN_FLIGHT);
        Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok()
    }

    fn not_sent(&self, cause: &CallError) -> CallError {
        let detail = match cause {
            CallError::Lost { detail, .. }
            | CallError::TooLarge { detail, .. }
            | CallError::Malformed { detail } => detail.clone(),
            CallError::Exception(exception) => exception.line.clone(),
            _ => "the connection is closed".to_owned(),
        };
        CallError::NotSent {
            server: self.server.to_string(),
            detail,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Opens a stream to `host:port`, with the handshake of TLS.
///
/// # Errors
///
/// The cause, without the server's name.
async fn connect(server: &str, options: &ConnectOptions) -> Result<(Halves, Option<TlsPeer>), String> {
    let connecting = async {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(stream)
    };
    let stream = connecting.await.map_err(|error| error.to_string())?;
    let Some(connector) = &options.tls else {
        let (read, write) = stream.into_split();
        return Ok(((Box::new(read), Box::new(write)), None));
    };
    let stream = tls::handshake(connector, server, stream).await?;
    let peer = tls::peer(server, &stream);
    let (read, write) = tokio::io::split(stream);
    Ok(((Box::new(read), Box::new(write)), Some(peer)))
}

/// Sends the first bytes, with the handshake of SASL if there is a ticket; returns the streams of the messages behind it.
///
/// # Errors
///
/// The cause, without the server's name.
async fn greet(
    mut halves: Halves,
    service: Service,
    options: &ConnectOptions,
    ticket: Option<&Ticket>,
) -> Result<(Halves, Option<Protection>), String> {
    let mut protection = None;
    let hello = match (&options.kerberos, ticket) {
        (Some(client), Some(ticket)) => {
            let layer = sasl::handshake(&mut halves.0, &mut halves.1, ticket).await?;
            protection = Some(layer.protection);
            halves = layer.over(halves, options.max_reply_bytes);
            // Another name would be one that the client acts for.
            frame::header(service, &client.principal().to_string())
        }
        _ => frame::hello(service, &options.user),
    };
    let sending = async {
        halves.1.write_all(&hello).await?;
        halves.1.flush().await
    };
    sending.await.map_err(|error| error.to_string())?;
    Ok((halves, protection))
}

/// The other side of a connection, for errors.
#[derive(Clone, Debug)]
struct Peer {
    server: Arc<str>,
    /// The credentials of TLS; `None`: plain text.
    tls: Option<Arc<Credentials>>,
}

impl Peer {
    /// The error of a connection that broke.
    fn lost(&self, error: &io::Error, calls: &Calls) -> CallError {
        let is_closed = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        let has_responded = calls.responses.load(Ordering::Relaxed) > 0;
        let of_tls = self
            .tls
            .as_ref()
            .and_then(|credentials| tls::explain(error, credentials));
        let detail = match of_tls {
            Some(reason) => reason,
            None if self.tls.is_none() && is_closed && !has_responded => {
                "the server closed the connection without a response, as a server that requires TLS does \
                 (--hbase-tls)"
                    .to_owned()
            }
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                "the server closed the connection".to_owned()
            }
            None => error.to_string(),
        };
        CallError::Lost {
            server: self.server.to_string(),
            detail,
        }
    }
}

/// Reads a response and completes its call.
///
/// # Errors
///
/// The error that ends the connection.
async fn read_response(
    read: &mut (impl AsyncRead + Unpin),
    peer: &Peer,
    most: usize,
    calls: &Calls,
) -> Result<(), CallError> {
    let server = &*peer.server;
    let lost = |error: io::Error| peer.lost(&error, calls);
    let start = read.read_u32().await.map_err(lost)?;
    let length = start as usize;
    if length > most {
        if peer.tls.is_none() && tls::is_alert(start) {
            return Err(CallError::Lost {
                server: server.to_owned(),
                detail: "the server requires TLS (--hbase-tls)".to_owned(),
            });
        }
        return Err(too_large(read, server, (length, most), calls).await);
    }
    let mut frame = vec![0; length];
    read.read_exact(&mut frame).await.map_err(lost)?;
    let (id, result) = frame::decode(frame.into(), server)?;
    calls.complete(id, result);
    Ok(())
}

/// Gives the call of a response that is too long its error; the connection ends, since the rest is not read.
async fn too_large(
    read: &mut (impl AsyncRead + Unpin),
    server: &str,
    (length, most): (usize, usize),
    calls: &Calls,
) -> CallError {
    let detail = format!("a response has {length} bytes, at most {most} are allowed (max_reply_bytes)");
    let mut start = vec![0; length.min(64)];
    // A server of another protocol sends no more.
    let began = tokio::time::timeout(START_OF_A_RESPONSE, read.read_exact(&mut start)).await;
    if matches!(began, Ok(Ok(_)))
        && let Some(id) = frame::call_of(start.into())
    {
        calls.complete(
            id,
            Err(CallError::TooLarge {
                server: server.to_owned(),
                detail: detail.clone(),
            }),
        );
    }
    CallError::Lost {
        server: server.to_owned(),
        detail,
    }
}
