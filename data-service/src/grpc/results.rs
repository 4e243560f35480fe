//! Streams of results to clients that may read slowly.
//!
//! Messages are queued in an outbox that is bounded in bytes, in front of HTTP/2's own windows. If the client grants
//! no window for `--client-timeout-seconds`, the query is cancelled and its queued messages are dropped, whatever the
//! state of the connection.

use oxtsdb_server::telemetry::in_request;
use std::pin::pin;

use futures::stream::{BoxStream, Stream, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::status;
use oxtsdb_resources::outbox::outbox;
use oxtsdb_resources::{ClientId, Outbox, SendError};
use oxtsdb_server::deadline_of;
use prost::Message;
use tonic::{Code, Request, Status};

use oxtsdb_query::{Admitted, PAUSE_AFTER};
use oxtsdb_query::{Engine, RequestContext};

/// Most bytes of messages that wait for a client.
const WAITING_BYTES: usize = 1 << 20;

/// The client and the deadline of a call.
pub(super) fn context_of<T>(request: &Request<T>) -> RequestContext {
    let client = request
        .remote_addr()
        .map_or(ClientId::Local, |address| ClientId::Address(address.ip()));
    RequestContext {
        client,
        deadline: deadline_of(request.extensions()),
    }
}

/// Sends messages as fast as the client reads them; each is encoded once the outbox has accepted the one before it.
/// While messages wait for the client, the query gives up its permit `turn`.
pub(super) fn result_stream<M: Message + 'static>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    engine: &Engine,
    mut turn: Option<Admitted>,
) -> BoxStream<'static, Result<M, Status>> {
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
