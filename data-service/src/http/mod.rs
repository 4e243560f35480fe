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
//! - A request of a browser's page of another origin is rejected (403), unless `--cors-domains` allows it.
//!   OpenTSDB executes it where the setting is empty, and answers a domain that is not in the list with 200.
//! - `trace` in errors is off by default, and is the chain of causes instead of a Java stack.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.handleHttpQuery`, `HttpQuery`, `HttpJsonSerializer`.

mod body;
mod cors;
mod error;
mod filters;
mod json;
mod json_body;
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
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Body;
use oxtsdb_resources::MemoryPool;
use tracing::warn;

use crate::front::counters::Counters;
use crate::http::body::ReplyBody;
use crate::http::cors::{Cors, Origin};
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::query::QueryRules;
use crate::http::reply::{Coding, Reply};
use crate::http::request_body::BodyLimits;
use crate::http::route::Endpoint;
use crate::settings::DataSettings;
use crate::uids::Uids;
use crate::write::Writer;
use oxtsdb_query::{Aggregator, Engine, RequestContext};

/// What a client is asked to wait after 503, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

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
    cors: Cors,
}

impl HttpApi {
    pub(crate) fn new(
        writer: Writer,
        engine: Engine,
        uids: Uids,
        settings: &DataSettings,
        counters: Arc<Counters>,
    ) -> HttpApi {
        HttpApi(Arc::new(Inner {
            writer,
            engine,
            query_rules: QueryRules {
                fix_duplicates: settings.fix_duplicates,
            },
            uids,
            counters,
            show_trace: settings.http_show_stack_trace,
            max_body_bytes: settings.http_max_body_bytes(),
            cors: Cors::new(&settings.cors_domains),
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
        let origin = self.0.cors.check(&request);
        let answer = match &origin {
            Ok(Origin::Preflight(_)) => Ok(Reply::text(Vec::new())),
            Ok(Origin::None | Origin::Allowed(_)) => self.answer(request, &parameters).await,
            Err(rejected) => Err(rejected.clone()),
        };
        let reply = match answer {
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
        let mut response = reply
            .wrapped(parameters.get("jsonp"))
            .into_response(compression, &self.0.engine.resources().compute)
            .await;
        if response.status() == StatusCode::SERVICE_UNAVAILABLE {
            let headers = response.headers_mut();
            headers.entry(header::RETRY_AFTER).or_insert(RETRY_AFTER);
        }
        if let Ok(origin) = origin {
            origin.add_headers(response.headers_mut());
        }
        response
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
                let body = request_body::read(request, inner.body_limits(inner.writer.memory())).await?;
                put::put(&inner.writer, &inner.counters, parameters, body).await
            }
            Endpoint::Query | Endpoint::QueryLast | Endpoint::QueryGexp | Endpoint::QueryExp => {
                let engine = &inner.engine;
                let answer = if is_post {
                    // Charged until the query is answered.
                    let mut body =
                        request_body::read(request, inner.body_limits(&inner.engine.resources().memory))
                            .await?;
                    let body = &mut body;
                    match endpoint {
                        Endpoint::QueryLast => query::last::post(engine, context, body).await,
                        Endpoint::QueryGexp => query::gexp::post(),
                        Endpoint::QueryExp => {
                            query::exp::post(engine, inner.query_rules, context, body).await
                        }
                        _ => query::post(engine, inner.query_rules, context, parameters, body).await,
                    }
                } else {
                    match endpoint {
                        Endpoint::QueryLast => query::last::get(engine, context, parameters).await,
                        Endpoint::QueryExp => query::exp::get(),
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
                let resources = inner.engine.resources();
                let mut body = request_body::read(request, inner.body_limits(&resources.memory)).await?;
                suggest::post(&inner.uids, resources, &mut body).await
            }
            Endpoint::Suggest => suggest::get(&inner.uids, inner.engine.resources(), parameters).await,
            Endpoint::Version => Ok(Reply::json(version::body())),
            Endpoint::Stats => Ok(Reply::json(stats::body(&inner.counters.statistics()))),
            Endpoint::Graph => Err(HttpError::method_not_allowed(&method)),
            Endpoint::NoPage => Ok(no_page()),
        }
    }
}

impl Inner {
    /// What a body may take that is charged to this pool.
    fn body_limits<'a>(&'a self, pool: &'a MemoryPool) -> BodyLimits<'a> {
        BodyLimits {
            max_bytes: self.max_body_bytes,
            pool,
            compute: self.writer.compute(),
        }
    }
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
