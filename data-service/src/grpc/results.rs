//! Streams of results, on their way to a client that may read slowly.
//!
//! Messages wait in an outbox that is bounded in bytes. HTTP/2 has windows of its own behind it; a client
//! that grants none takes nothing from the outbox, and is cut off after `--client-timeout-seconds`: the query
//! is cancelled and all that waits is dropped, whatever the client's connection does.

use std::pin::pin;

use futures::stream::{BoxStream, Stream, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::status;
use oxtsdb_resources::outbox::outbox;
use oxtsdb_resources::{ClientId, SendError};
use oxtsdb_server::deadline_of;
use prost::Message;
use tonic::{Code, Request, Status};

use crate::query::{Engine, QueryError, RequestContext};

/// Bytes of messages that wait for a client.
const WAITING_BYTES: usize = 1 << 20;

/// Whose call it is, and its deadline.
pub(super) fn context_of<T>(request: &Request<T>) -> RequestContext {
    let client = request
        .remote_addr()
        .map_or(ClientId::Local, |address| ClientId::Address(address.ip()));
    RequestContext {
        client,
        deadline: deadline_of(request.extensions()),
    }
}

/// Sends messages as fast as the client reads them. They are made one by one, when the one before is taken in.
pub(super) fn result_stream<M: Message + 'static>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    engine: &Engine,
) -> BoxStream<'static, Result<M, Status>> {
    let stall = engine.resources().client_timeout;
    let (mut outbox, inbox) = outbox(WAITING_BYTES, stall);
    tokio::spawn(async move {
        let sent = {
            let mut messages = pin!(messages);
            loop {
                let message = tokio::select! {
                    message = messages.next() => message,
                    () = outbox.closed() => return,
                };
                match message {
                    None => break outbox.drained().await,
                    Some(Err(status)) => return outbox.fail(status),
                    Some(Ok(message)) => {
                        let bytes = message.encoded_len();
                        if let Err(error) = outbox.send(message, bytes).await {
                            break Err(error);
                        }
                    }
                }
            }
            // The query is cancelled here, as its messages are dropped.
        };
        if sent == Err(SendError::Stalled) {
            outbox.abort(stalled(stall.as_secs()));
        }
    });
    inbox.boxed()
}

fn stalled(seconds: u64) -> Status {
    let message = QueryError::ClientStalled { seconds }.to_string();
    status(
        Code::Aborted,
        ErrorReason::ClientTooSlow,
        message,
        &[("setting", "--client-timeout-seconds")],
    )
}
