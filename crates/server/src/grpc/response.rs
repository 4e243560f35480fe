//! Response bodies of a connection, with a time-out for clients that grant no window.
//!
//! HTTP/2 polls a body only when the client has granted a window for it. A client that grants none but responds
//! to pings could hold the body without limit: no write to the socket waits, so the socket's time-out
//! does not apply. This module therefore bounds the time since a body was last polled.
//!
//! Large messages are passed to HTTP/2 in pieces, which keeps its buffers small; the rest is charged to the
//! memory account.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use oxtsdb_resources::{MemoryPool, Reservation};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::{Code, Status};

use super::calls::Call;
use crate::connections::RequestGuard;

/// Bytes that are passed to HTTP/2 at a time.
const PIECE_BYTES: usize = 64 << 10;

/// The responses of a connection that are not complete.
#[derive(Debug, Clone)]
pub(super) struct Responses {
    open: Arc<Mutex<OpenResponses>>,
    client_timeout: Duration,
    memory: MemoryPool,
}

#[derive(Debug, Default)]
struct OpenResponses {
    last_number: u64,
    responses: HashMap<u64, Arc<Mutex<Open>>>,
}

/// The unsent part of a response.
#[derive(Debug)]
struct Open {
    /// `None` after it was aborted.
    body: Option<Body>,
    /// The rest of a message that is sent in pieces.
    rest: Bytes,
    /// The reservation of `rest`.
    charge: Option<Reservation>,
    /// The request is in progress until the response is complete or aborted.
    guard: Option<(RequestGuard, Option<Call>)>,
    /// When the last piece was passed to HTTP/2; `None` after it has polled for more.
    last_sent: Option<Instant>,
}

/// The body of a response.
#[derive(Debug)]
pub(super) struct ResponseBody {
    number: u64,
    open: Arc<Mutex<Open>>,
    responses: Responses,
}

impl Responses {
    pub(super) fn new(client_timeout: Duration, memory: MemoryPool) -> Self {
        Self {
            open: Arc::default(),
            client_timeout,
            memory,
        }
    }

    /// How often to call [`Responses::abort_stalled`].
    pub(super) fn interval(&self) -> Duration {
        (self.client_timeout / 4).max(Duration::from_millis(100))
    }

    /// Wraps the body of a response to a request, and to a call if one has begun.
    pub(super) fn track(&self, body: Body, guard: RequestGuard, call: Option<Call>) -> ResponseBody {
        let open = Arc::new(Mutex::new(Open {
            body: Some(body),
            rest: Bytes::new(),
            charge: None,
            guard: Some((guard, call)),
            last_sent: None,
        }));
        let mut responses = self.open.lock();
        responses.last_number += 1;
        let number = responses.last_number;
        responses.responses.insert(number, Arc::clone(&open));
        ResponseBody {
            number,
            open,
            responses: self.clone(),
        }
    }

    /// Aborts responses that the client does not read. Their streams are reset at the next poll; their requests
    /// are no longer in progress.
    pub(super) fn abort_stalled(&self) {
        let stalled: Vec<_> = {
            let open = self.open.lock();
            let is_stalled = |open: &Open| {
                open.last_sent
                    .is_some_and(|since| since.elapsed() >= self.client_timeout)
            };
            let responses = open.responses.values();
            responses
                .filter(|open| is_stalled(&open.lock()))
                .cloned()
                .collect()
        };
        for open in stalled {
            let mut open = open.lock();
            let dropped = (
                open.body.take(),
                std::mem::take(&mut open.rest),
                open.charge.take(),
            );
            open.guard = None;
            open.last_sent = None;
            drop(open);
            // Outside of the lock: dropping a body cancels its query.
            drop(dropped);
        }
    }

    fn aborted(&self) -> Status {
        let seconds = self.client_timeout.as_secs_f64();
        error::status(
            Code::Aborted,
            ErrorReason::ClientTooSlow,
            format!(
                "the client read nothing of the response for {seconds} s (--client-timeout-seconds), the rest was dropped"
            ),
            &[("setting", "--client-timeout-seconds")],
        )
    }
}

impl Open {
    /// The next piece of a message.
    fn piece(&mut self) -> Bytes {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        match &mut self.charge {
            Some(_) if self.rest.is_empty() => self.charge = None,
            Some(charge) => charge.shrink_to(self.rest.len() as u64),
            None => {}
        }
        piece
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut open = self.open.lock();
        open.last_sent = None;
        if !open.rest.is_empty() {
            open.last_sent = Some(Instant::now());
            return Poll::Ready(Some(Ok(Frame::data(open.piece()))));
        }
        let Some(body) = &mut open.body else {
            return Poll::Ready(Some(Err(self.responses.aborted())));
        };
        let polled = hyper::body::Body::poll_frame(Pin::new(body), cx);
        let Poll::Ready(Some(Ok(frame))) = polled else {
            return polled;
        };
        open.last_sent = Some(Instant::now());
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) if data.len() > PIECE_BYTES => {
                open.charge = Some(self.responses.memory.charge(data.len() as u64));
                open.rest = data;
                Frame::data(open.piece())
            }
            Ok(data) => Frame::data(data),
            Err(frame) => frame,
        })))
    }

    fn is_end_stream(&self) -> bool {
        let open = self.open.lock();
        open.rest.is_empty() && open.body.as_ref().is_some_and(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let open = self.open.lock();
        match &open.body {
            Some(body) if open.rest.is_empty() => hyper::body::Body::size_hint(body),
            _ => SizeHint::default(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.responses.open.lock().responses.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use http_body_util::{BodyExt as _, Full};

    use super::*;
    use crate::connections::Connection;

    fn responses(pool: &MemoryPool) -> Responses {
        Responses::new(Duration::from_millis(50), pool.clone())
    }

    #[tokio::test]
    async fn sends_large_messages_in_pieces_and_charges_the_rest() {
        let pool = MemoryPool::new("query", 10 << 20);
        let message = Bytes::from(vec![7; 1 << 20]);
        let connection = Connection::for_tests().await;
        let body = responses(&pool).track(Body::new(Full::new(message.clone())), connection.request(), None);
        let mut body = body.into_data_stream();
        let first = body.next().await.unwrap().unwrap();
        assert_eq!(first.len(), PIECE_BYTES);
        assert_eq!(pool.usage().used_bytes, (1 << 20) - PIECE_BYTES as u64);
        let mut all = first.to_vec();
        while let Some(piece) = body.next().await {
            all.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(all, message);
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[tokio::test]
    async fn aborts_responses_of_stalled_clients() {
        let pool = MemoryPool::new("query", 10 << 20);
        let responses = responses(&pool);
        let connection = Connection::for_tests().await;
        let message = Bytes::from(vec![7; 1 << 20]);
        let mut body = responses.track(Body::new(Full::new(message)), connection.request(), None);
        assert!(body.frame().await.is_some());
        responses.abort_stalled();
        assert!(!connection.is_idle(), "before the time-out");
        tokio::time::sleep(Duration::from_millis(60)).await;
        responses.abort_stalled();
        assert!(connection.is_idle());
        assert_eq!(pool.usage().used_bytes, 0);
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error::reason_of(&error), Some(ErrorReason::ClientTooSlow));
        drop(body);
        assert!(responses.open.lock().responses.is_empty());
    }

    #[tokio::test]
    async fn keeps_responses_that_wait_for_their_handler() {
        let responses = responses(&MemoryPool::unlimited("query"));
        let connection = Connection::for_tests().await;
        let pending = futures::stream::pending::<Result<Frame<Bytes>, Status>>();
        let body = Body::new(http_body_util::StreamBody::new(pending));
        let mut body = responses.track(body, connection.request(), None);
        let polled = tokio::time::timeout(Duration::from_millis(60), body.frame()).await;
        assert!(polled.is_err());
        responses.abort_stalled();
        assert!(!connection.is_idle());
    }
}
