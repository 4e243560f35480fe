//! The typed client of the UID service.

use std::fmt;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::NamedService;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status};
use tower::Service;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::deadline;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{
    ExportUidsRequest, ExportUidsResponse, GetOrCreateUidsRequest, GetUidLayoutRequest, GetUidLayoutResponse,
    GetUidUsageRequest, GetUidUsageResponse, LookupNamesRequest, LookupUidsRequest, SuggestNamesRequest,
    UidMapping, UidName, UidValue, get_or_create_uids_response, lookup_names_response, lookup_uids_response,
};

/// The most names or UIDs in one call; larger batches are split.
const MAX_BATCH: usize = 4096;

/// Names in one call that may assign UIDs. On HBase each new name costs two requests: with fewer names a
/// call does not meet the time-out of one attempt.
const ASSIGN_BATCH: usize = 1024;

/// How long one attempt may take when the caller gives no deadline; of a stream, until it begins.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most names in a page of SuggestNames.
const MAX_PAGE: usize = 3000;

/// Sends one message with the generated client.
type SendCall<M, A> =
    fn(UidServiceClient<Transport>, Request<M>) -> BoxFuture<'static, Result<Response<A>, Status>>;

type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, TransportError>;

/// The error of a transport. tonic finds the cause, and the code for it, in its source.
#[derive(Debug, thiserror::Error)]
#[error("UID service")]
struct TransportError(#[source] StdError);

/// A client of `oxtsdb.uid.v1.UidService`, over the network or in the same process.
///
/// Splits batches, hands deadlines on, and repeats what the contract says may be repeated when the
/// service is UNAVAILABLE, with exponential back-off. Cloning is cheap.
#[derive(Clone)]
pub struct UidClient {
    inner: UidServiceClient<Transport>,
}

impl fmt::Debug for UidClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UidClient")
    }
}

impl UidClient {
    /// A client that connects with its first call, and again whenever the connection is lost.
    pub fn connect_lazy(endpoint: &Endpoint) -> Self {
        Self::over(endpoint.connect_lazy())
    }

    /// A client of a service in this process, without a socket.
    pub fn in_process<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Error: Into<StdError>,
        S::Future: Send + 'static,
    {
        Self::over(service)
    }

    fn over<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + Sync + 'static,
        S::Error: Into<StdError>,
        S::Future: Send + 'static,
    {
        let transport = BoxCloneSyncService::new(service.map_err(|error| TransportError(error.into())));
        // A batch of 4096 names of some hundred bytes each is larger than tonic's default.
        let inner = UidServiceClient::new(transport).max_decoding_message_size(64 << 20);
        Self { inner }
    }

    /// The UID of each name, in the order of the names; missing ones are assigned.
    ///
    /// `explicit` is meant for operators: see `GetOrCreateUidsRequest.explicit`.
    ///
    /// # Errors
    ///
    /// When the call fails as a whole; a name that fails has its error in the result.
    pub async fn get_or_create_uids(
        &self,
        names: Vec<UidName>,
        explicit: bool,
        deadline: Option<Instant>,
    ) -> Result<Vec<get_or_create_uids_response::Result>, Status> {
        let mut results = Vec::with_capacity(names.len());
        for names in names.chunks(ASSIGN_BATCH) {
            let message = GetOrCreateUidsRequest {
                names: names.to_vec(),
                explicit,
            };
            let answer = self
                .call(message, deadline, |mut client, request| {
                    async move { client.get_or_create_uids(request).await }.boxed()
                })
                .await?;
            results.extend(answer.results);
        }
        Ok(results)
    }

    /// The UID of each name that has one, in the order of the names.
    ///
    /// # Errors
    ///
    /// As [`UidClient::get_or_create_uids`].
    pub async fn lookup_uids(
        &self,
        names: Vec<UidName>,
        deadline: Option<Instant>,
    ) -> Result<Vec<lookup_uids_response::Result>, Status> {
        let mut results = Vec::with_capacity(names.len());
        for names in names.chunks(MAX_BATCH) {
            let message = LookupUidsRequest {
                names: names.to_vec(),
                bypass_cache: false,
            };
            let answer = self
                .call(message, deadline, |mut client, request| {
                    async move { client.lookup_uids(request).await }.boxed()
                })
                .await?;
            results.extend(answer.results);
        }
        Ok(results)
    }

    /// The name of each UID that has one, in the order of the UIDs.
    ///
    /// # Errors
    ///
    /// As [`UidClient::get_or_create_uids`].
    pub async fn lookup_names(
        &self,
        uids: Vec<UidValue>,
        deadline: Option<Instant>,
    ) -> Result<Vec<lookup_names_response::Result>, Status> {
        let mut results = Vec::with_capacity(uids.len());
        for uids in uids.chunks(MAX_BATCH) {
            let message = LookupNamesRequest {
                uids: uids.to_vec(),
                bypass_cache: false,
            };
            let answer = self
                .call(message, deadline, |mut client, request| {
                    async move { client.lookup_names(request).await }.boxed()
                })
                .await?;
            results.extend(answer.results);
        }
        Ok(results)
    }

    /// The first `max` names of a kind that start with `prefix`, in byte order.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn suggest_names(
        &self,
        kind: UidKind,
        prefix: &str,
        max: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<UidMapping>, Status> {
        let mut mappings = Vec::new();
        let mut page_token = String::new();
        while mappings.len() < max {
            let page_size = (max - mappings.len()).min(MAX_PAGE);
            let message = SuggestNamesRequest {
                kind: kind as i32,
                prefix: prefix.to_owned(),
                page_size: i32::try_from(page_size).unwrap_or(i32::MAX),
                page_token,
            };
            let answer = self
                .call(message, deadline, |mut client, request| {
                    async move { client.suggest_names(request).await }.boxed()
                })
                .await?;
            mappings.extend(answer.mappings);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(mappings)
    }

    /// All mappings of some kinds (none: of all kinds), by kind and then name.
    pub fn export_uids(&self, kinds: &[UidKind], deadline: Option<Instant>) -> UidExport {
        let kinds = kinds.iter().map(|kind| *kind as i32).collect();
        UidExport {
            client: self.clone(),
            kinds,
            deadline,
            stream: None,
            last: None,
        }
    }

    /// Widths of UIDs and rules of names.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn get_uid_layout(&self, deadline: Option<Instant>) -> Result<GetUidLayoutResponse, Status> {
        self.call(GetUidLayoutRequest {}, deadline, |mut client, request| {
            async move { client.get_uid_layout(request).await }.boxed()
        })
        .await
    }

    /// How many UIDs are in use and left, by kind.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn get_uid_usage(&self, deadline: Option<Instant>) -> Result<GetUidUsageResponse, Status> {
        self.call(GetUidUsageRequest {}, deadline, |mut client, request| {
            async move { client.get_uid_usage(request).await }.boxed()
        })
        .await
    }

    /// One call with its deadline, repeated while the service is UNAVAILABLE and time is left.
    ///
    /// Boxed, so that callers' futures stay small and `Send`.
    fn call<M, A>(
        &self,
        message: M,
        deadline: Option<Instant>,
        send: SendCall<M, A>,
    ) -> BoxFuture<'static, Result<A, Status>>
    where
        M: Clone + Send + 'static,
        A: Send + 'static,
    {
        let client = self.inner.clone();
        let attempt = move || {
            let mut request = Request::new(message.clone());
            let limit = deadline.unwrap_or_else(|| Instant::now() + DEFAULT_TIMEOUT);
            let answer = deadline::hand_on(&mut request, deadline).map(|()| send(client.clone(), request));
            async move {
                match tokio::time::timeout_at(limit.into(), answer?).await {
                    Ok(answer) => answer
                        .map(Response::into_inner)
                        .map_err(deadline::correct_timeout),
                    Err(_elapsed) => Err(deadline::exceeded()),
                }
            }
        };
        let back_off = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(20))
            .with_max_delay(Duration::from_millis(500))
            .with_max_times(3)
            .with_jitter();
        attempt
            .retry(back_off)
            .when(move |status| {
                status.code() == Code::Unavailable
                    && deadline.is_none_or(|deadline| Instant::now() < deadline)
            })
            .boxed()
    }
}

/// A running [`UidClient::export_uids`].
#[derive(Debug)]
pub struct UidExport {
    client: UidClient,
    kinds: Vec<i32>,
    deadline: Option<Instant>,
    stream: Option<tonic::Streaming<ExportUidsResponse>>,
    last: Option<UidName>,
}

impl UidExport {
    /// The next mappings; `None` after the last. A stream that breaks is taken up again once where
    /// it broke.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<UidMapping>>, Status> {
        let batch = match self.stream().await?.message().await {
            Err(status) if status.code() == Code::Unavailable => {
                self.stream = None;
                self.stream().await?.message().await
            }
            batch => batch,
        };
        let mappings = batch
            .map_err(deadline::correct_timeout)?
            .map(|batch| batch.mappings);
        if let Some(last) = mappings.as_deref().and_then(<[_]>::last) {
            self.last = Some(UidName {
                kind: last.kind,
                name: last.name.clone(),
            });
        }
        Ok(mappings)
    }

    async fn stream(&mut self) -> Result<&mut tonic::Streaming<ExportUidsResponse>, Status> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let message = ExportUidsRequest {
                    kinds: self.kinds.clone(),
                    start_after: self.last.clone(),
                };
                let send: SendCall<_, _> =
                    |mut client, request| async move { client.export_uids(request).await }.boxed();
                self.client.call(message, self.deadline, send).await?
            }
        };
        Ok(self.stream.insert(stream))
    }
}
