//! A connection to one service of one server.
//!
//! ```text
//!   caller ─► frames (bounded by bytes) ─► writer ─► server ─► reader ─► the caller with the call's number
//! ```
//!
//! ```text
//!   preamble    "HBas" | 0 | 0x50 (simple authentication)
//!   header      u32 length | ConnectionHeader
//!   request     u32 length | varint n, RequestHeader  | varint n, message | cell block
//!   response    u32 length | varint n, ResponseHeader | varint n, message | cell block
//! ```
//!
//! Responses come in any order. Calls of one connection run concurrently in the server. A caller may go away at any
//! time: its request takes effect or not, and its response is dropped.
//!
//! Source: HBase 2.6.1, `RPC.proto`, `ServerRpcConnection`, `NettyRpcFrameDecoder`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hashbrown::HashMap;
use oxtsdb_tls::{Connector, Credentials};
use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxBuildHasher;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::error::{CallError, ServerException};
use super::messages::{
    CellBlockMeta, ConnectionHeader, RequestHeader, ResponseHeader, UserInformation, VersionInfo,
};
use super::tls;
use crate::hbase::TlsPeer;

const PREAMBLE: [u8; 6] = *b"HBas\x00\x50";

const CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";

/// Bytes of requests that a connection holds until they have a response.
const MAX_BYTES_IN_FLIGHT: u32 = 64 << 20;

/// Frames that wait for the writer; their bytes have the limit above.
const MAX_WAITING_FRAMES: usize = 1024;

/// How long the first bytes of a response may take after its length.
const START_OF_A_RESPONSE: Duration = Duration::from_millis(200);

/// A service of a server; each has its own connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Service {
    /// Rows, of a region server.
    Client,
    /// Tables, of the master.
    Master,
    /// The registry: the places of `hbase:meta` and of the master.
    Registry,
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "ClientService",
            Self::Master => "MasterService",
            Self::Registry => "ClientMetaService",
        }
    }
}

/// The options of a connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectOptions {
    /// The name that the server's access control sees.
    pub(super) user: String,
    /// Performs the handshake of TLS; `None`: plain text.
    pub(super) tls: Option<Arc<Connector>>,
    /// How long connecting may take.
    pub(super) time: Duration,
    /// The longest response, in bytes.
    pub(super) max_reply_bytes: usize,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request<'a, M> {
    pub(super) method: &'static str,
    pub(super) message: &'a M,
    /// The cells behind it.
    pub(super) cells: &'a [u8],
    pub(super) priority: Option<u32>,
}

impl<'a, M> Request<'a, M> {
    /// A request without cells.
    pub(super) const fn new(method: &'static str, message: &'a M) -> Self {
        Self {
            method,
            message,
            cells: &[],
            priority: None,
        }
    }
}

/// A response: its message, and the cells behind it.
#[derive(Debug)]
struct Response {
    message: Bytes,
    cells: Bytes,
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
        let connecting = async {
            let ((read, mut write), tls) = connect(server, options).await?;
            let sending = async {
                write.write_all(&hello(service, &options.user)).await?;
                write.flush().await
            };
            sending.await.map_err(|error| error.to_string())?;
            Ok::<_, String>((read, write, tls))
        };
        let (read, mut write, tls) = match tokio::time::timeout(options.time, connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(cause)) => return Err(not_sent(format!("cannot connect: {cause}"))),
            Err(_) => return Err(not_sent(format!("cannot connect within {:?}", options.time))),
        };
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
        let frame = frame(id, &request, Some(deadline));
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
        let _ = self.frames.try_send(frame(id, request, None));
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

/// The first bytes of a connection: nothing answers a good header.
fn hello(service: Service, user: &str) -> Vec<u8> {
    let header = ConnectionHeader {
        user_info: Some(UserInformation {
            effective_user: user.to_owned(),
        }),
        service_name: Some(service.name().to_owned()),
        cell_block_codec_class: Some(CODEC.to_owned()),
        version_info: Some(VersionInfo {
            version: "2.6.1".to_owned(),
            url: "oxtsdb".to_owned(),
            revision: String::new(),
            user: user.to_owned(),
            date: String::new(),
            src_checksum: String::new(),
            version_major: Some(2),
            version_minor: Some(6),
        }),
    };
    let mut hello = PREAMBLE.to_vec();
    hello.put_u32(u32::try_from(header.encoded_len()).unwrap_or(u32::MAX));
    hello.extend_from_slice(&header.encode_to_vec());
    hello
}

fn frame(id: u32, request: &Request<'_, impl Message>, deadline: Option<Instant>) -> Bytes {
    let millis = |deadline: Instant| {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        u32::try_from(left.max(1)).unwrap_or(u32::MAX)
    };
    let header = RequestHeader {
        call_id: Some(id),
        method_name: Some(request.method.to_owned()),
        request_param: Some(true),
        cell_block_meta: (!request.cells.is_empty()).then(|| CellBlockMeta {
            length: u32::try_from(request.cells.len()).ok(),
        }),
        priority: request.priority,
        timeout: deadline.map(millis),
    };
    let length = delimited_len(&header) + delimited_len(request.message) + request.cells.len();
    let mut frame = BytesMut::with_capacity(4 + length);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A buffer that grows takes any message.
    let _ = header.encode_length_delimited(&mut frame);
    let _ = request.message.encode_length_delimited(&mut frame);
    frame.put_slice(request.cells);
    frame.freeze()
}

fn delimited_len(message: &impl Message) -> usize {
    let length = message.encoded_len();
    prost::length_delimiter_len(length) + length
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
    let mut frame = Bytes::from(frame);
    let malformed = |detail: &str| CallError::malformed(format!("{server}: {detail}"));
    let header = take_message(&mut frame).ok_or_else(|| malformed("a response without a header"))?;
    let header = ResponseHeader::decode(header).map_err(|error| malformed(&error.to_string()))?;
    let exception = header
        .exception
        .map(|exception| ServerException::of_response(server, exception));
    let Some(id) = header.call_id.filter(|id| *id != u32::MAX) else {
        // The server rejects the connection itself.
        return Err(match exception {
            Some(exception) => CallError::Exception(exception),
            None => malformed("a response without the number of a call"),
        });
    };
    let result = match exception {
        Some(exception) => Err(CallError::Exception(exception)),
        None => {
            let message =
                take_message(&mut frame).ok_or_else(|| malformed("a response without a message"))?;
            let cells = header
                .cell_block_meta
                .and_then(|meta| meta.length)
                .unwrap_or_default() as usize;
            if cells != frame.len() {
                return Err(malformed(
                    "the cells of a response have another length than announced",
                ));
            }
            Ok(Response {
                message,
                cells: frame,
            })
        }
    };
    calls.complete(id, result);
    Ok(())
}

/// Takes the bytes behind a length.
fn take_message(frame: &mut Bytes) -> Option<Bytes> {
    let length = prost::decode_length_delimiter(&mut *frame).ok()?;
    (length <= frame.remaining()).then(|| frame.split_to(length))
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
    if matches!(began, Ok(Ok(_))) {
        let mut start = Bytes::from(start);
        let header = take_message(&mut start).and_then(|header| ResponseHeader::decode(header).ok());
        if let Some(id) = header.and_then(|header| header.call_id) {
            calls.complete(
                id,
                Err(CallError::TooLarge {
                    server: server.to_owned(),
                    detail: detail.clone(),
                }),
            );
        }
    }
    CallError::Lost {
        server: server.to_owned(),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_tls::testing::Authority;
    use oxtsdb_tls::{Pem, certificates, private_key};
    use rustls::ServerConfig;
    use rustls::crypto::ring;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::super::messages::{Empty, ExceptionResponse, ServerName};
    use super::*;

    /// A server that reads a request and answers with some bytes; it keeps the connection open.
    async fn answered(answer: impl Fn(u32) -> Vec<u8> + Send + 'static) -> Result<ServerName, CallError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 6];
            stream.read_exact(&mut hello).await.unwrap();
            assert_eq!(hello, PREAMBLE);
            for _ in 0..2 {
                // The connection's header, then the request.
                let length = stream.read_u32().await.unwrap();
                let mut frame = vec![0; length as usize];
                stream.read_exact(&mut frame).await.unwrap();
            }
            stream.write_all(&answer(1)).await.unwrap();
            std::future::pending::<()>().await;
        });
        let options = ConnectOptions {
            user: "tester".to_owned(),
            tls: None,
            time: Duration::from_secs(5),
            max_reply_bytes: 1000,
        };
        let connection = Connection::open(&address, Service::Client, &options)
            .await
            .unwrap();
        let deadline = Instant::now() + Duration::from_millis(500);
        let called = connection.call(Request::new("Get", &Empty {}), deadline).await;
        let is_open = connection.is_open();
        server.abort();
        match &called {
            Ok(_) => assert!(is_open),
            Err(CallError::Exception(exception)) => assert_eq!(is_open, !exception.class.contains("Fatal")),
            Err(_) => assert!(!is_open, "the connection is not used again"),
        }
        called.map(|(message, _)| message)
    }

    fn response(header: &ResponseHeader, rest: &[u8]) -> Vec<u8> {
        let body = [header.encode_length_delimited_to_vec().as_slice(), rest].concat();
        [&u32::try_from(body.len()).unwrap().to_be_bytes(), body.as_slice()].concat()
    }

    fn header(id: u32) -> ResponseHeader {
        ResponseHeader {
            call_id: Some(id),
            ..ResponseHeader::default()
        }
    }

    #[tokio::test]
    async fn a_response_belongs_to_the_call_with_its_number() {
        let name = ServerName {
            host_name: "a".to_owned(),
            port: Some(1),
        };
        let message = name.encode_length_delimited_to_vec();
        let with_others = move |id| {
            let other = response(&header(id + 7), &[0]);
            [other, response(&header(id), &message)].concat()
        };
        assert_eq!(answered(with_others).await.unwrap(), name);
    }

    /// Cells of several records of TLS, more than the buffers of a socket have.
    #[tokio::test]
    async fn tls_carries_requests_and_responses_of_any_size() {
        const CELLS: usize = 8 << 20;
        let authority = Authority::new("hbase").unwrap();
        let issued = authority.issue(&["localhost"]).unwrap();
        let chain = certificates(issued.certificate.as_bytes()).unwrap();
        let certificate = chain.first().unwrap().to_vec();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, private_key(issued.key.as_bytes()).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            stream.read_exact(&mut [0; 6]).await.unwrap();
            let mut lengths = Vec::new();
            for _ in 0..2 {
                let length = stream.read_u32().await.unwrap() as usize;
                stream.read_exact(&mut vec![0; length]).await.unwrap();
                lengths.push(length);
            }
            let meta = CellBlockMeta {
                length: u32::try_from(CELLS).ok(),
            };
            let header = ResponseHeader {
                cell_block_meta: Some(meta),
                ..header(1)
            };
            let cells = vec![7; CELLS];
            let body = response(&header, &[&[0], cells.as_slice()].concat());
            stream.write_all(&body).await.unwrap();
            stream.flush().await.unwrap();
            lengths
        });
        let credentials = Credentials {
            ca: Some(Pem::Bytes(authority.pem().into_bytes())),
            identity: None,
        };
        let options = ConnectOptions {
            user: "tester".to_owned(),
            tls: Some(Arc::new(Connector::new(credentials, &[]).unwrap())),
            time: Duration::from_secs(30),
            max_reply_bytes: 2 * CELLS,
        };
        let connection = Connection::open(&address, Service::Client, &options)
            .await
            .unwrap();
        let peer = connection.tls().unwrap();
        assert_eq!(
            (peer.version.as_str(), &peer.certificate),
            ("TLS 1.3", &certificate)
        );
        let request = Request {
            cells: &vec![1; CELLS],
            ..Request::new("Multi", &Empty {})
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let (_, cells): (Empty, _) = connection.call(request, deadline).await.unwrap();
        assert_eq!((cells.len(), cells.first()), (CELLS, Some(&7)));
        let lengths = server.await.unwrap();
        assert!(lengths[1] > CELLS, "{lengths:?}");
    }

    #[tokio::test]
    async fn exceptions_are_errors_of_their_call() {
        let exception = |class: &'static str, id: Option<u32>| {
            move |_| {
                let exception = ExceptionResponse {
                    exception_class_name: Some(class.to_owned()),
                    stack_trace: Some("first line\n\tat x".to_owned()),
                    ..ExceptionResponse::default()
                };
                let header = ResponseHeader {
                    call_id: id,
                    exception: Some(exception),
                    cell_block_meta: None,
                };
                response(&header, &[])
            }
        };
        for (class, id) in [
            ("java.io.IOException", Some(1)),
            ("x.FatalConnectionException", Some(u32::MAX)),
        ] {
            let error = answered(exception(class, id)).await.unwrap_err();
            let CallError::Exception(thrown) = error else {
                panic!("{error:?}")
            };
            assert_eq!(
                (thrown.class.as_str(), thrown.line.as_str()),
                (class, "first line")
            );
        }
    }

    #[tokio::test]
    async fn no_response_is_longer_than_allowed() {
        let too_long = |id| {
            let start = header(id).encode_length_delimited_to_vec();
            [&u32::MAX.to_be_bytes()[..], &start, &[0; 100]].concat()
        };
        let error = answered(too_long).await.unwrap_err();
        assert!(matches!(error, CallError::TooLarge { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_server_that_does_not_speak_the_protocol_ends_the_connection() {
        let cells = |id| {
            let header = ResponseHeader {
                cell_block_meta: Some(CellBlockMeta { length: Some(9) }),
                ..header(id)
            };
            response(&header, &[0, 1])
        };
        assert!(matches!(answered(cells).await, Err(CallError::Malformed { .. })));
        for garbage in [
            &b"\0\0\0\x05\xff\xff\xff\xff\xff"[..],
            b"\0\0\0\0",
            b"\0\0\0\x01\0",
        ] {
            let error = answered(|_| garbage.to_vec()).await.unwrap_err();
            assert!(
                matches!(error, CallError::Malformed { .. }),
                "{garbage:?}: {error:?}"
            );
        }
        let error = answered(|_| b"HTTP".to_vec()).await.unwrap_err();
        assert!(
            matches!(error, CallError::Lost { .. }),
            "0x48545450 bytes: {error:?}"
        );
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_costs_the_time_of_the_call() {
        let error = answered(|_| Vec::new()).await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
    }
}
