//! The HTTP door: OpenTSDB's API, as Grafana, collectors and client libraries speak it.
//!
//! | endpoint | methods |
//! |---|---|
//! | `/api/put` | POST |
//! | `/api/query`, `/api/query/last` | GET, POST |
//! | `/api/query/gexp`; `/api/query/exp` | GET; POST |
//! | `/q`, its ascii form | GET |
//! | `/api/suggest` | GET, POST |
//! | `/api/aggregators`, `/api/config/filters`, `/api/version`, `/api/stats` | GET, POST |
//!
//! Differences from OpenTSDB, all of them wanted:
//! - A point is durable when `/api/put` answers, also without `sync`. If it cannot be stored the
//!   answer is 503 (send again), 507 (no space left) or 500, never 204.
//! - Chunked bodies are always taken. The limit is on the decompressed size (413).
//! - Text behind the JSON of a body is an error; OpenTSDB ignores it, and with it the second of two
//!   points that are not in an array.
//! - An empty JSON object as a query, and a body of white space, are errors of the client (400),
//!   not of the server.
//! - A feature that is not there (deleting by query, for example) is a clear error, not ignored.
//! - `trace` in errors is off by default, and is the chain of causes instead of a Java stack.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.handleHttpQuery`, `HttpQuery`, `HttpJsonSerializer`.

mod body;
mod error;
mod filters;
mod json;
mod parameters;
mod put;
mod query;
mod reply;
mod request_body;
mod route;
pub(crate) mod stats;
mod suggest;
pub(crate) mod version;

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::warn;

use crate::front::counters::Counters;
use crate::http::body::ReplyBody;
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::query::QueryRules;
use crate::http::reply::{Coding, Reply};
use crate::http::route::Endpoint;
use crate::query::{Aggregator, Engine, RequestContext};
use crate::settings::DataSettings;
use crate::uids::Uids;
use crate::write::Writer;

/// Bodies of the largest size that may be in memory at a time. More requests wait, unread, so a
/// crowd of clients costs this much and not their number times the largest body.
const LARGEST_BODIES_AT_A_TIME: usize = 16;

/// The HTTP side of the data service. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct HttpApi(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    engine: Engine,
    query_rules: QueryRules,
    uids: Uids,
    counters: Arc<Counters>,
    show_trace: bool,
    max_body_bytes: usize,
    /// In KiB.
    body_memory: Semaphore,
}

impl HttpApi {
    pub(crate) fn new(
        writer: Writer,
        engine: Engine,
        uids: Uids,
        settings: &DataSettings,
        counters: Arc<Counters>,
    ) -> HttpApi {
        let max_body_bytes = settings.http_max_body_bytes();
        HttpApi(Arc::new(Inner {
            writer,
            engine,
            query_rules: QueryRules {
                fix_duplicates: settings.fix_duplicates,
            },
            uids,
            counters,
            show_trace: settings.http_show_stack_trace,
            max_body_bytes,
            body_memory: Semaphore::new(kib(max_body_bytes) as usize * LARGEST_BODIES_AT_A_TIME),
        }))
    }

    /// Answers a request. Whatever goes wrong is an answer too.
    pub(crate) async fn handle<B>(&self, request: Request<B>) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        Counters::count(&self.0.counters.http_requests);
        let compression = Coding::accepted(request.headers());
        let parameters = Parameters::parse(request.uri().query());
        let reply = match self.answer(request, &parameters).await {
            Ok(reply) => reply,
            Err(error) => {
                if error.status.is_server_error() {
                    warn!(
                        status = error.status.as_u16(),
                        message = error.message,
                        "HTTP request failed"
                    );
                }
                Reply::error(&error, self.0.show_trace)
            }
        };
        reply
            .wrapped(parameters.get("jsonp"))
            .into_response(compression, &self.0.engine.resources().compute)
            .await
    }

    async fn answer<B>(&self, request: Request<B>, parameters: &Parameters) -> Result<Reply, HttpError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let endpoint = route::endpoint(request.uri().path())?;
        let inner = &*self.0;
        if endpoint == Endpoint::NoPage {
            return Ok(no_page());
        }
        if parameters.get("serializer").is_some_and(|name| name != "json") {
            return Err(HttpError::bad_request("Requested serializer was not found"));
        }
        let method = request.method().clone();
        let context = RequestContext {
            client: request.extensions().get().copied().unwrap_or_default(),
            deadline: None,
        };
        if endpoint == Endpoint::Graph && method == Method::GET {
            return Ok(query::ascii::get(&inner.engine, inner.query_rules, context, parameters).await);
        }
        let is_post = method == Method::POST;
        match endpoint {
            Endpoint::Put if !is_post => return Err(HttpError::method_not_allowed(&method)),
            Endpoint::Query | Endpoint::QueryGexp | Endpoint::QueryExp if method == Method::DELETE => {
                return Err(HttpError::bad_request("Bad request")
                    .with_details("Deleting data is not enabled (tsd.http.query.allow_delete=false)"));
            }
            _ if !is_post && method != Method::GET => {
                return Err(HttpError::method_not_allowed(&method));
            }
            _ => {}
        }
        match endpoint {
            Endpoint::Put => {
                let _memory = inner.body_memory(&request).await;
                let body = request_body::read(request, inner.max_body_bytes).await?;
                put::put(&inner.writer, &inner.counters, parameters, &body).await
            }
            Endpoint::Query | Endpoint::QueryLast | Endpoint::QueryGexp | Endpoint::QueryExp => {
                let engine = &inner.engine;
                let answer = if is_post {
                    let _memory = inner.body_memory(&request).await;
                    let body = request_body::read(request, inner.max_body_bytes).await?;
                    match endpoint {
                        Endpoint::QueryLast => query::last::post(engine, context, &body).await,
                        Endpoint::QueryGexp => query::gexp::post(),
                        Endpoint::QueryExp => {
                            query::exp::post(engine, inner.query_rules, context, &body).await
                        }
                        _ => query::post(engine, inner.query_rules, context, parameters, &body).await,
                    }
                } else {
                    match endpoint {
                        Endpoint::QueryLast => query::last::get(engine, context, parameters).await,
                        Endpoint::QueryExp => query::exp::get(engine, inner.query_rules, context).await,
                        Endpoint::QueryGexp => {
                            query::gexp::get(engine, inner.query_rules, context, parameters).await
                        }
                        _ => query::get(engine, inner.query_rules, context, parameters).await,
                    }
                };
                Counters::count(match answer {
                    Ok(_) => &inner.counters.queries_answered,
                    Err(_) => &inner.counters.queries_failed,
                });
                answer
            }
            Endpoint::Aggregators => Ok(Reply::json(aggregators())),
            Endpoint::ConfigFilters => Ok(Reply::json(filters::body())),
            Endpoint::Suggest if is_post => {
                let _memory = inner.body_memory(&request).await;
                let body = request_body::read(request, inner.max_body_bytes).await?;
                suggest::post(&inner.uids, &body).await
            }
            Endpoint::Suggest => suggest::get(&inner.uids, parameters).await,
            Endpoint::Version => Ok(Reply::json(version::body())),
            Endpoint::Stats => Ok(Reply::json(stats::body(&inner.counters.statistics()))),
            Endpoint::Graph => Err(HttpError::method_not_allowed(&method)),
            Endpoint::NoPage => Ok(no_page()),
        }
    }
}

impl Inner {
    /// Waits until there is memory for the body of a request.
    async fn body_memory<B: Body>(&self, request: &Request<B>) -> Option<SemaphorePermit<'_>> {
        let announced = request_body::announced_bytes(request, self.max_body_bytes);
        // The semaphore is never closed, and has room for any single body.
        self.body_memory.acquire_many(kib(announced)).await.ok()
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// The names of all aggregators.
fn aggregators() -> Vec<u8> {
    let mut out = Vec::new();
    json::write_strings(&mut out, Aggregator::ALL.iter().map(Aggregator::name));
    out
}

fn no_page() -> Reply {
    let text = "There is no page here. The API begins at <code>/api</code>.";
    Reply::page(StatusCode::NOT_FOUND, "Page Not Found", text)
}

#[cfg(test)]
mod tests;
