//! Calls: their deadline, their retries, and streams of messages.
//!
//! Calls send and receive encoded messages, so that all methods share the code of a call.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::Retryable as _;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use http::uri::PathAndQuery;
use oxtsdb_proto::{EncodedCodec, Rpc, deadline};
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

use crate::Error;
use crate::retry::{self, RetryBudget};
use crate::service_config::{self, MethodPolicy};
use crate::transport::Transport;

/// The largest message that a client receives or sends.
const MAX_MESSAGE: usize = 64 << 20;

/// Options of all calls of a client.
#[derive(Clone, Debug)]
pub(crate) struct CallOptions {
    /// In place of the policy's.
    pub(crate) timeout: Option<Duration>,
    /// In place of the policy's.
    pub(crate) max_attempts: Option<usize>,
    /// Compress requests, accept compressed responses.
    pub(crate) gzip: bool,
    /// Write points of any instant, not only of plausible ones.
    pub(crate) allow_any_time: bool,
    /// For the logs of servers.
    pub(crate) client_name: String,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            max_attempts: None,
            gzip: false,
            allow_any_time: false,
            client_name: concat!("oxtsdb-client ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// When a call has to be complete.
#[derive(Clone, Copy, Debug)]
enum Deadline {
    /// The time-out of the options or of the method's policy.
    Policy,
    /// An instant.
    At(Instant),
    /// Never.
    Unlimited,
}

/// A transport with the options of its calls. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Connection {
    transport: Transport,
    options: Arc<CallOptions>,
    budget: Arc<RetryBudget>,
    deadline: Deadline,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("options", &self.options)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The methods of a client with a `connection` that set the deadline of its calls. The client has a method
/// `with_connection`, which returns the same client with another one.
macro_rules! deadline_methods {
    () => {
        /// The same client with a deadline for all calls.
        #[must_use]
        pub fn with_deadline(&self, deadline: std::time::Instant) -> Self {
            self.with_connection(self.connection.with_deadline(Some(deadline)))
        }

        /// The same client without deadlines.
        #[must_use]
        pub fn without_deadline(&self) -> Self {
            self.with_connection(self.connection.with_deadline(None))
        }

        /// The same client with a deadline for all calls, `timeout` from now.
        #[must_use]
        pub fn with_timeout(&self, timeout: std::time::Duration) -> Self {
            self.with_connection(self.connection.with_timeout(timeout))
        }
    };
}

pub(crate) use deadline_methods;

impl Connection {
    pub(crate) fn new(transport: Transport, options: CallOptions) -> Self {
        Self {
            transport,
            options: Arc::new(options),
            budget: Arc::new(RetryBudget::new()),
            deadline: Deadline::Policy,
        }
    }

    /// The same connection with a deadline for all calls, `timeout` from now.
    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        self.with_deadline(now().checked_add(timeout))
    }

    /// The same connection with a deadline for all calls; `None`: no deadline.
    pub(crate) fn with_deadline(&self, deadline: Option<Instant>) -> Self {
        Self {
            deadline: deadline.map_or(Deadline::Unlimited, Deadline::At),
            ..self.clone()
        }
    }

    pub(crate) fn options(&self) -> &CallOptions {
        &self.options
    }

    /// Sends a request, and again while the service is unavailable, as the method's policy allows.
    ///
    /// Boxed, so that callers' futures stay small and `Send`.
    pub(crate) fn call<M: Rpc>(&self, request: &M) -> BoxFuture<'static, Result<M::Response, Error>> {
        self.call_method(M::METHOD, request)
    }

    /// As [`Connection::call`], of a method of another contract.
    pub(crate) fn call_method<R: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> BoxFuture<'static, Result<R, Error>> {
        let response = self.unary(method, request.encode_to_vec().into());
        async move { decode(method, response.await?) }.boxed()
    }

    /// As [`Connection::call`], for a method that responds with a stream. Retries end with the first response.
    pub(crate) fn stream<M: Rpc>(
        &self,
        request: &M,
    ) -> BoxFuture<'static, Result<Messages<M::Response>, Error>> {
        let deadline = self.expires(&service_config::policy(M::METHOD));
        let opened = self.server_streaming(M::METHOD, deadline, request.encode_to_vec().into());
        async move { Ok(Messages::new(M::METHOD, opened.await?, deadline)) }.boxed()
    }

    /// Opens a stream of requests, without a deadline and without retries.
    pub(crate) async fn stream_both<M: Rpc>(
        &self,
        requests: impl Stream<Item = M> + Send + 'static,
    ) -> Result<Messages<M::Response>, Error> {
        let requests = requests.map(|request| Bytes::from(request.encode_to_vec()));
        let mut grpc = self.grpc().await?;
        let response = grpc.streaming(Request::new(requests), path(M::METHOD)?, EncodedCodec);
        Ok(Messages::new(M::METHOD, response.await?.into_inner(), None))
    }

    fn unary(&self, method: &'static str, message: Bytes) -> BoxFuture<'static, Result<Bytes, Error>> {
        let this = self.clone();
        let deadline = self.expires(&service_config::policy(method));
        self.retried(method, deadline, message, move |request| {
            let this = this.clone();
            async move {
                this.grpc()
                    .await?
                    .unary(request, path(method)?, EncodedCodec)
                    .await
            }
            .boxed()
        })
    }

    fn server_streaming(
        &self,
        method: &'static str,
        deadline: Option<Instant>,
        message: Bytes,
    ) -> BoxFuture<'static, Result<Streaming<Bytes>, Error>> {
        let this = self.clone();
        self.retried(method, deadline, message, move |request| {
            let this = this.clone();
            async move {
                let mut grpc = this.grpc().await?;
                grpc.server_streaming(request, path(method)?, EncodedCodec).await
            }
            .boxed()
        })
    }

    /// A client that is ready for a call, with the options of all calls.
    async fn grpc(&self) -> Result<Grpc<Transport>, Status> {
        let mut grpc = Grpc::new(self.transport.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        if self.options.gzip {
            grpc = grpc
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unknown(format!("service was not ready: {error}")))?;
        Ok(grpc)
    }

    /// Sends a message, and again while the service is unavailable.
    fn retried<R: Send + 'static>(
        &self,
        method: &'static str,
        deadline: Option<Instant>,
        message: Bytes,
        send: impl Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<R>, Status>> + Send + 'static,
    ) -> BoxFuture<'static, Result<R, Error>> {
        let policy = service_config::policy(method);
        // The trace of what the call is for goes on in the service, see `ClientBuilder::on_request`.
        let span = tracing::info_span!(
            target: "oxtsdb::trace",
            "grpc",
            otel.name = method,
            otel.kind = "client",
            rpc.system = "grpc",
        );
        let budget = Arc::clone(&self.budget);
        let attempt = move || {
            let mut request = Request::new(message.clone());
            // Fails if the deadline has passed.
            let sent = deadline::hand_on(&mut request, deadline)
                .map(|()| send(request))
                .map_err(|_| Error::DeadlineExceeded);
            let budget = Arc::clone(&budget);
            async move {
                let response = before(deadline, sent?).await??;
                budget.succeeded();
                Ok(response.into_inner())
            }
        };
        let budget = Arc::clone(&self.budget);
        attempt
            .retry(retry::backoff(&policy, self.options.max_attempts))
            .when(move |error: &Error| error.is_unavailable() && budget.failed())
            .adjust(move |error, pause| {
                let pause = pause?.max(error.retry_delay().unwrap_or_default());
                let in_time = deadline.is_none_or(|deadline| now() + pause < deadline);
                in_time.then_some(pause)
            })
            .instrument(span)
            .boxed()
    }

    fn expires(&self, policy: &MethodPolicy) -> Option<Instant> {
        match self.deadline {
            Deadline::Policy => {
                let timeout = self.options.timeout.or(policy.timeout)?;
                Some(now() + timeout)
            }
            Deadline::At(instant) => Some(instant),
            Deadline::Unlimited => None,
        }
    }
}

/// The time by the clock of Tokio's timers, which end calls at their deadlines: a test may pause and advance it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The path of a method.
fn path(method: &str) -> Result<PathAndQuery, Status> {
    PathAndQuery::try_from(format!("/{method}"))
        .map_err(|error| Status::internal(format!("{method}: {error}")))
}

fn decode<R: Message + Default>(method: &str, response: Bytes) -> Result<R, Error> {
    R::decode(response)
        .map_err(|error| Status::internal(format!("malformed response of {method}: {error}")).into())
}

/// The messages of a stream, until the deadline of its call.
#[derive(Debug)]
pub(crate) struct Messages<R> {
    method: &'static str,
    stream: Streaming<Bytes>,
    deadline: Option<Instant>,
    message: PhantomData<fn() -> R>,
}

impl<R: Message + Default> Messages<R> {
    fn new(method: &'static str, stream: Streaming<Bytes>, deadline: Option<Instant>) -> Self {
        Self {
            method,
            stream,
            deadline,
            message: PhantomData,
        }
    }

    /// The next message; `None` after the last.
    ///
    /// # Errors
    ///
    /// The error that the stream ended with.
    pub(crate) async fn next(&mut self) -> Result<Option<R>, Error> {
        let message = before(self.deadline, self.stream.message()).await??;
        message.map(|message| decode(self.method, message)).transpose()
    }
}

/// Awaits until the deadline.
async fn before<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Result<T, Error> {
    match deadline {
        None => Ok(future.await),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), future)
            .await
            .map_err(|_elapsed| Error::DeadlineExceeded),
    }
}
