//! Streams that break, over a transport of this process and a clock that the tests advance.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oxtsdb_proto::data::v1::write_stream_request::Message as Incoming;
use oxtsdb_proto::data::v1::write_stream_response::{Ack, Message as Outgoing, Opened};
use oxtsdb_proto::data::v1::{WriteStreamRequest, WriteStreamResponse};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::call::{CallOptions, Connection};
use crate::{Error, SeriesName, StreamOptions, StreamWriter, Timestamp, transport};

const PATIENCE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// The behaviour of a server on a request for a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    /// Acknowledges each frame.
    #[default]
    Serve,
    /// Cannot be reached.
    Refuse,
    /// Accepts the request and never responds.
    Hang,
}

#[derive(Debug, Default)]
struct Server {
    mode: Mutex<Mode>,
    /// Requests for a stream.
    attempts: AtomicUsize,
    /// Instants of the points received, by stream.
    streams: Mutex<Vec<Vec<i64>>>,
    /// Breaks all streams.
    cut: Notify,
}

impl Server {
    async fn writer(self: &Arc<Self>) -> StreamWriter {
        let server = Arc::clone(self);
        let service = service_fn(move |request| Arc::clone(&server).respond(request));
        let connection = Connection::new(transport::in_process(service), CallOptions::default());
        let options = StreamOptions::default().patience(PATIENCE);
        StreamWriter::open(connection, options).await.unwrap()
    }

    /// Breaks all streams, and treats requests for others as `mode` says.
    async fn break_streams(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
        self.cut.notify_waiters();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    async fn respond(
        self: Arc<Self>,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, &'static str> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let mode = *self.mode.lock().unwrap();
        match mode {
            Mode::Serve => {}
            Mode::Refuse => return Err("connection refused"),
            Mode::Hang => std::future::pending().await,
        }
        let mut grpc = Grpc::new(ProstCodec::<WriteStreamResponse, WriteStreamRequest>::default());
        let stream = service_fn(move |request: Request<Streaming<WriteStreamRequest>>| {
            let (responses, stream) = mpsc::channel(16);
            tokio::spawn(Arc::clone(&self).stream(request.into_inner(), responses));
            async move { Ok::<_, Status>(Response::new(ReceiverStream::new(stream))) }
        });
        Ok(grpc.streaming(stream, request).await)
    }

    async fn stream(
        self: Arc<Self>,
        mut requests: Streaming<WriteStreamRequest>,
        responses: mpsc::Sender<Result<WriteStreamResponse, Status>>,
    ) {
        let place = {
            let mut streams = self.streams.lock().unwrap();
            streams.push(Vec::new());
            streams.len() - 1
        };
        loop {
            let message = tokio::select! {
                () = self.cut.notified() => {
                    let _ = responses.send(Err(Status::unavailable("cut"))).await;
                    return;
                }
                message = requests.message() => message,
            };
            let Ok(Some(request)) = message else { return };
            let response = match request.message {
                Some(Incoming::Frame(frame)) => {
                    let blocks = frame.columns.unwrap_or_default().blocks;
                    let encoded = blocks.iter().filter_map(|block| block.delta_timestamps.as_ref());
                    let times: Vec<i64> = encoded.flat_map(|times| times.decode().unwrap()).collect();
                    let written = times.len() as u64;
                    self.streams.lock().unwrap()[place].extend(times);
                    Outgoing::Ack(Ack {
                        sequence: frame.sequence,
                        written,
                        ..Ack::default()
                    })
                }
                _ => Outgoing::Opened(Opened {
                    window_frames: 64,
                    window_points: 1000,
                    max_frame_points: 1000,
                    max_series: 100,
                    max_symbol_bytes: 1 << 20,
                    max_message_bytes: 1 << 24,
                }),
            };
            let message = Some(response);
            if responses.send(Ok(WriteStreamResponse { message })).await.is_err() {
                return;
            }
        }
    }
}

async fn send(writer: &mut StreamWriter, seconds: i64) {
    let series = SeriesName::new("m", [("host", "a")]);
    let sent = writer.send(&series, Timestamp::from_seconds(seconds), 1).await;
    sent.unwrap();
}

/// The error of a flush, which has to fail within the patience.
async fn fails_within_the_patience(writer: &mut StreamWriter) -> Error {
    let began = Instant::now();
    let flushed = tokio::time::timeout(HOUR, writer.flush()).await;
    let error = flushed.expect("the writer gives up").unwrap_err();
    let elapsed = began.elapsed();
    assert!(elapsed <= PATIENCE && elapsed > PATIENCE / 2, "{elapsed:?}");
    error
}

#[tokio::test(start_paused = true)]
async fn idle_writers_do_not_reconnect_before_the_next_batch() {
    let server = Arc::new(Server::default());
    let mut writer = server.writer().await;
    send(&mut writer, 1).await;
    writer.flush().await.unwrap();
    server.break_streams(Mode::Refuse).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(server.attempts(), 1);
    // Nothing is pending, so there is nothing to wait for.
    assert!(writer.flush().await.unwrap().is_complete());

    *server.mode.lock().unwrap() = Mode::Serve;
    send(&mut writer, 2).await;
    let report = tokio::time::timeout(HOUR, writer.flush()).await;
    assert_eq!(report.expect("the writer reconnects").unwrap().written, 1);
    assert_eq!(*server.streams.lock().unwrap(), [[1000], [2000]]);
    assert_eq!(server.attempts(), 2);
    writer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn writers_that_broke_while_idle_give_up_when_their_patience_ends() {
    let server = Arc::new(Server::default());
    let mut writer = server.writer().await;
    server.break_streams(Mode::Refuse).await;
    tokio::time::sleep(HOUR).await;
    send(&mut writer, 1).await;
    let error = fails_within_the_patience(&mut writer).await;
    assert!(error.to_string().contains("connection refused"), "{error}");
    let attempts = server.attempts();
    assert!((10..30).contains(&attempts), "{attempts} attempts in 30 s");
}

#[tokio::test(start_paused = true)]
async fn pending_batches_are_sent_after_a_reconnect() {
    let server = Arc::new(Server::default());
    let mut writer = server.writer().await;
    server.break_streams(Mode::Refuse).await;
    send(&mut writer, 1).await;
    let recovery = async {
        tokio::time::sleep(PATIENCE / 2).await;
        *server.mode.lock().unwrap() = Mode::Serve;
    };
    let flush = tokio::time::timeout(HOUR, writer.flush());
    let (flushed, ()) = tokio::join!(flush, recovery);
    assert_eq!(flushed.expect("the writer reconnects").unwrap().written, 1);
    assert_eq!(*server.streams.lock().unwrap(), [vec![], vec![1000]]);
}

#[tokio::test(start_paused = true)]
async fn servers_that_accept_and_never_respond_end_the_patience() {
    let server = Arc::new(Server::default());
    let mut writer = server.writer().await;
    server.break_streams(Mode::Hang).await;
    send(&mut writer, 1).await;
    assert_eq!(
        fails_within_the_patience(&mut writer).await,
        Error::DeadlineExceeded
    );
}
