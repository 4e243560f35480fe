//! Streams of results to clients that may read slowly.
//!
//! Messages are queued in an outbox that is bounded in bytes, in front of HTTP/2's own windows. If the client grants
//! no window for `--client-timeout-seconds`, the query is cancelled and its queued messages are dropped, whatever the
//! state of the connection.

use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};
use oxtsdb_access::Identity;
use oxtsdb_ingest::Caller;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::status;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::{Admitted, PAUSE_AFTER};
use oxtsdb_query::{Engine, RequestContext};
use oxtsdb_resources::outbox::outbox;
use oxtsdb_resources::{ClientId, Outbox, SendError};
use oxtsdb_server::deadline_of;
use oxtsdb_server::telemetry::in_request;
use prost::Message;
use tonic::{Code, Request, Response, Status};

/// Most bytes of messages that wait for a client.
const WAITING_BYTES: usize = 1 << 20;

/// How long a response waits for its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(1);

/// The client and the deadline of a call.
pub(super) fn context_of<T>(request: &Request<T>) -> RequestContext {
    let (address, identity) = (address_of(request), request.extensions().get::<Identity>());
    RequestContext {
        client: identity.map_or(address, |identity| identity.client(address)),
        deadline: deadline_of(request.extensions()),
    }
}

/// The caller of a call.
pub(super) fn caller_of<T>(request: &Request<T>) -> Caller {
    Caller::from_call(request.extensions(), request.remote_addr())
}

fn address_of<T>(request: &Request<T>) -> ClientId {
    request.remote_addr().map_or(ClientId::Local, ClientId::from_peer)
}

/// Sends messages as fast as the client reads them; each is encoded once the outbox has accepted the one before it.
/// While messages wait for the client, the query gives up its permit `turn`.
pub(super) fn result_stream<M: Message + 'static>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    engine: &Engine,
    mut turn: Option<Admitted>,
) -> MessageStream<M> {
    let stall = engine.resources().client_timeout;
    let memory = engine.resources().memory.clone();
    let (mut outbox, inbox) = outbox(WAITING_BYTES, stall);
    tokio::spawn(in_request(async move {
        let sent = {
            let mut messages = pin!(messages);
            loop {
                let message = tokio::select! {
                    message = messages.next() => message,
                    () = outbox.closed() => return,
                };
                let message = match message {
                    None => {
                        drop(turn.take());
                        break outbox.drained().await;
                    }
                    Some(Err(status)) => return outbox.fail(status),
                    Some(Ok(message)) => message,
                };
                let bytes = message.encoded_len();
                // The source of the message was charged until now; from here on the message is.
                let charge = memory.charge(bytes as u64);
                if let Err(error) = space(&mut outbox, bytes, &mut turn).await {
                    break Err(error);
                }
                outbox.push((message, charge), bytes);
            }
            // Dropping the messages cancels the query.
        };
        if sent == Err(SendError::Stalled) {
            outbox.abort(stalled(stall.as_secs()));
        }
    }));
    inbox.map(|item| item.map(|(message, _charge)| message)).boxed()
}

/// The response with these messages. It begins with the first one: an earlier error takes the place of the response, so that a
/// proxy can send the call to another server, and can map the error to an HTTP status. If the first message takes
/// [`FIRST_MESSAGE`], the response begins without it, because the default deadline bounds the time until then.
pub(super) async fn response<M: Send + 'static>(
    messages: MessageStream<M>,
) -> Result<Response<MessageStream<M>>, Status> {
    let mut messages = messages.fuse();
    let first = match tokio::time::timeout(FIRST_MESSAGE, messages.next()).await {
        Ok(first) => first.transpose()?,
        Err(_elapsed) => None,
    };
    Ok(Response::new(stream::iter(first.map(Ok)).chain(messages).boxed()))
}

/// Waits for space in the outbox; after [`PAUSE_AFTER`] the query releases its permit until it has space.
async fn space<T, E>(
    outbox: &mut Outbox<T, E>,
    bytes: usize,
    turn: &mut Option<Admitted>,
) -> Result<(), SendError> {
    let Some(turn) = turn else {
        return outbox.space(bytes).await;
    };
    if let Ok(space) = tokio::time::timeout(PAUSE_AFTER, outbox.space(bytes)).await {
        return space;
    }
    turn.pause();
    let space = outbox.space(bytes).await;
    if space.is_ok() {
        turn.resume().await;
    }
    space
}

fn stalled(seconds: u64) -> Status {
    status(
        Code::Aborted,
        ErrorReason::ClientTooSlow,
        format!(
            "the client read nothing of the result for {seconds} s (--client-timeout-seconds), the rest was dropped"
        ),
        &[("setting", "--client-timeout-seconds")],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_early_error_takes_the_place_of_the_response() {
        let failed = stream::iter([Err::<u8, _>(Status::unavailable("no store"))]).boxed();
        assert_eq!(response(failed).await.err().unwrap().code(), Code::Unavailable);

        let failed = stream::iter([Ok(1), Err(Status::unavailable("no store"))]).boxed();
        let mut messages = response(failed).await.unwrap().into_inner();
        assert_eq!(messages.next().await.unwrap().unwrap(), 1);
        assert!(messages.next().await.unwrap().is_err());
        assert!(messages.next().await.is_none());

        let empty = stream::iter([Ok::<u8, _>(1); 0]).boxed();
        assert!(response(empty).await.unwrap().into_inner().next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_begins_before_a_slow_first_message() {
        let slow = stream::once(async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            Ok::<_, Status>(1)
        });
        let began = tokio::time::Instant::now();
        let mut messages = response(slow.boxed()).await.unwrap().into_inner();
        assert_eq!(began.elapsed(), FIRST_MESSAGE);
        assert_eq!(messages.next().await.unwrap().unwrap(), 1);
    }
}
