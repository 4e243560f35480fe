//! HTTP front end: OpenTSDB's API, as Grafana, collectors and client libraries use it.
//!
//! ```text
//!   request ─► CORS ─► endpoint by path and method ─► body: limits, memory, decompression ─► handler
//!   response ◄─ compression ◄─ JSONP ◄─ OpenTSDB's envelope, if it is an error ◄─────────────────┘
//! ```
//!
//! `ENDPOINTS` is the table of endpoints. A handler decodes its request, calls the service, and encodes the
//! result; it adds nothing to the service.
//!
//! Intended differences from OpenTSDB:
//! - A point is durable when `/api/put` responds, also without `sync`. If it cannot be stored the
//!   status is 503 (send again), 507 (no space left) or 500, never 204.
//! - Chunked bodies are always accepted. The limit is on the decompressed size (413).
//! - Text behind the JSON of a body is an error; OpenTSDB ignores it, and with it the second of two
//!   points that are not in an array.
//! - An empty JSON object as a query, and a body of white space, are errors of the client (400),
//!   not of the server.
//! - A feature that does not exist (deleting by query, for example) is rejected, not ignored.
//! - JSONP: the function consists of letters, digits and `_.$[]`, else 400, and the response is a script
//!   (`application/javascript`), which browsers execute with `X-Content-Type-Options: nosniff`.
//! - A request that is the client's fault is 400 where OpenTSDB responds 500: unparsable expressions, filters, times and
//!   UIDs, for example.
//! - A request of a browser's page of another origin is rejected (403), unless `--cors-domains` allows it; so is one
//!   without an origin that changes something, if the browser says that it comes from another site.
//!   OpenTSDB executes it where the setting is empty, and responds 200 to a domain that is not in the list.
//! - `/api/version` also names this program and its version; `/api/config` lists its settings.
//! - `/logs` is rejected: the log is on standard error. The page at `/` is another one, see `page.rs`; `/q` draws
//!   without gnuplot, see `graph`.
//! - `trace` in errors is off by default, and is the chain of causes instead of a Java stack.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.handleHttpQuery`, `HttpQuery`, `HttpJsonSerializer`.

mod aggregators;
mod annotation;
mod api_request;
mod body;
mod config;
mod cors;
mod datum;
mod dropcaches;
mod endpoint;
mod error;
mod error_form;
mod filters;
pub(crate) mod graph;
mod histogram;
mod html;
mod influx;
mod json;
mod json_body;
mod mapped;
pub mod otlp;
mod page;
mod pages;
mod parameters;
mod prometheus;
mod protobuf;
mod put;
mod query;
mod reply;
mod request_body;
mod rollup;
mod search;
mod serializers;
mod setting_headers;
mod stats;
mod suggest;
mod tree;
mod uid;
mod version;

use std::borrow::Cow;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Body;
use oxtsdb_access::{Access, AccessControl, Identity, Mode, PeerCertificate, operation};
use oxtsdb_resources::ClientId;
use oxtsdb_server::metrics::{Protocol, RequestTimer};
use oxtsdb_server::telemetry::{Observed, called_by};
use tracing::warn;

use crate::front::counters::Counters;
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::ReplyBody;
use crate::http::config::Config;
use crate::http::cors::{Cors, Origin};
use crate::http::endpoint::{
    BodyUse, Endpoint, any, at, at_and_below, delete, delete_with, get, get_or_post, get_query, get_with,
    handler, post, post_query, put as put_with,
};
use crate::http::error::HttpError;
use crate::http::error_form::ErrorForm;
use crate::http::graph::PictureCache;
use crate::http::parameters::Parameters;
use crate::http::query::rules::QueryRules;
use crate::http::reply::{Coding, Reply, accepts_arrow, check_jsonp};
use crate::http::request_body::{BodyLimits, RequestBody, WRITE_MEMORY_WAIT};
use crate::http::setting_headers::SettingHeaders;
pub use crate::http::stats::running_queries;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::rollup::RollupWriter;
use oxtsdb_ingest::{Caller, Writer};
use oxtsdb_metadata::text_search::TextSearch;
use oxtsdb_metadata::tree::Trees;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_query::{Engine, RequestContext};

/// All endpoints; the first that matches a path handles it.
static ENDPOINTS: &[Endpoint] = &[
    // Other protocols.
    at(
        "/api/write",
        &[post(BodyUse::Ingest, handler!(prometheus::write))],
    )
    .with_errors(ErrorForm::Text),
    at(
        "/api/read",
        &[post(BodyUse::Query, handler!(prometheus::read::read))],
    )
    .with_errors(ErrorForm::Text),
    at(
        "/api/v2/write",
        &[post(BodyUse::Ingest, handler!(influx::write_2))],
    )
    .with_errors(ErrorForm::Influx2),
    at("/v1/metrics", &[post(BodyUse::Ingest, handler!(otlp::write))]).with_errors(ErrorForm::Protobuf),
    at("/write", &[post(BodyUse::Ingest, handler!(influx::write))]).with_errors(ErrorForm::Influx),
    at(
        "/query",
        &[
            get(handler!(influx::query)),
            post(BodyUse::Query, handler!(influx::query)),
        ],
    )
    .with_errors(ErrorForm::Influx),
    at("/ping", &[any(BodyUse::Ignored, handler!(influx::ping))]).with_errors(ErrorForm::Influx),
    // OpenTSDB.
    at("/api/put", &[post(BodyUse::Ingest, handler!(put::put))]),
    at(
        "/api/histogram",
        &[post(BodyUse::Ingest, handler!(histogram::put))],
    ),
    at("/api/rollup", &[post(BodyUse::Ingest, handler!(rollup::rollup))]),
    at_and_below(
        "/api/query/last",
        &[
            get_query(handler!(query::last::get)),
            post_query(handler!(query::last::post)),
            delete(handler!(query::reject_delete)),
        ],
    ),
    at_and_below(
        "/api/query/exp",
        &[
            get_query(handler!(query::exp::get)),
            post_query(handler!(query::exp::post)),
            delete(handler!(query::reject_delete)),
        ],
    ),
    at_and_below(
        "/api/query/gexp",
        &[
            get_query(handler!(query::gexp::get)),
            post_query(handler!(query::gexp::post)),
            delete(handler!(query::reject_delete)),
        ],
    ),
    // OpenTSDB takes any other path below as a query.
    at_and_below(
        "/api/query",
        &[
            get_query(handler!(query::get)),
            post_query(handler!(query::post)),
            delete(handler!(query::delete)),
        ],
    ),
    at_and_below("/api/annotation/bulk", ANNOTATION_BULK).with_method_override(),
    at_and_below("/api/annotations/bulk", ANNOTATION_BULK).with_method_override(),
    at_and_below(
        "/api/annotation",
        &[
            get_with(BodyUse::Query, handler!(annotation::get)),
            post(BodyUse::Query, handler!(annotation::post)),
            put_with(BodyUse::Query, handler!(annotation::put)),
            delete_with(BodyUse::Query, handler!(annotation::delete)),
        ],
    )
    .with_method_override(),
    at_and_below(
        "/api/annotations",
        &[
            get_with(BodyUse::Query, handler!(annotation::list)),
            post(BodyUse::Query, handler!(annotation::post)),
            put_with(BodyUse::Query, handler!(annotation::put)),
            delete_with(BodyUse::Query, handler!(annotation::delete)),
        ],
    )
    .with_method_override(),
    at("/q", &[get_query(handler!(graph::get))]),
    at_and_below(
        "/api/uid/assign",
        &[
            get(handler!(uid::assign::assign)),
            post(BodyUse::Query, handler!(uid::assign::assign)),
        ],
    )
    .changed_by_get(),
    at_and_below(
        "/api/uid/rename",
        &[any(BodyUse::Query, handler!(uid::rename::rename))],
    )
    .changed_by_get(),
    at_and_below(
        "/api/uid/uidmeta",
        &[
            get(handler!(uid::uidmeta::get)),
            post(BodyUse::Query, handler!(uid::uidmeta::edit)),
            put_with(BodyUse::Query, handler!(uid::uidmeta::edit)),
            delete_with(BodyUse::Query, handler!(uid::uidmeta::delete)),
        ],
    )
    .with_method_override(),
    at_and_below(
        "/api/uid/tsmeta",
        &[
            get(handler!(uid::tsmeta::get)),
            post(BodyUse::Query, handler!(uid::tsmeta::edit)),
            put_with(BodyUse::Query, handler!(uid::tsmeta::edit)),
            delete_with(BodyUse::Query, handler!(uid::tsmeta::delete)),
        ],
    )
    .with_method_override(),
    at_and_below("/api/uid", &[any(BodyUse::Ignored, handler!(uid::other))]),
    at_and_below(
        "/api/suggest",
        &[
            get(handler!(suggest::get)),
            post(BodyUse::Query, handler!(suggest::post)),
        ],
    ),
    at_and_below("/api/search", &[any(BodyUse::Query, handler!(search::search))]).with_method_override(),
    at_and_below("/api/tree", &[any(BodyUse::Query, handler!(tree::tree))]).with_method_override(),
    at_and_below("/api/aggregators", &[get_or_post(handler!(aggregators::list))]),
    at("/api/serializers", &[get(handler!(serializers::list))]),
    at("/api/config/filters", &[get_or_post(handler!(filters::list))]),
    at_and_below("/api/config", &[get_or_post(handler!(config::config))]),
    at_and_below(
        "/api/dropcaches",
        &[
            get(handler!(dropcaches::drop_caches)),
            delete(handler!(dropcaches::drop_caches)),
        ],
    )
    .changed_by_get(),
    at_and_below("/api/version", &[get_or_post(handler!(version::version))]),
    at_and_below("/api/stats", &[get_or_post(handler!(stats::stats))]),
    // Outside of the API.
    at("/suggest", &[get_or_post(handler!(pages::suggest))]),
    at("/aggregators", &[get_or_post(handler!(pages::aggregators))]),
    at("/version", &[get_or_post(handler!(pages::version))]),
    at("/stats", &[get_or_post(handler!(stats::page))]),
    at("/logs", &[get_or_post(handler!(pages::logs))]),
    at("/favicon.ico", &[any(BodyUse::Ignored, handler!(pages::no_file))]),
    at_and_below("/s", &[any(BodyUse::Ignored, handler!(page::file))]),
    at("/", &[any(BodyUse::Ignored, handler!(page::index))]),
];

/// The operations of `/api/annotation/bulk`.
const ANNOTATION_BULK: &[endpoint::Operation] = &[
    post(BodyUse::Query, handler!(annotation::bulk::post)),
    put_with(BodyUse::Query, handler!(annotation::bulk::put)),
    delete_with(BodyUse::Query, handler!(annotation::bulk::delete)),
];

/// When a client may send a request again after 503, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Browsers take the type of a response as it is.
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// The connection closes after the response.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// The endpoint of a path, as [`endpoint::find`] returns it.
type Found = Result<Option<&'static Endpoint>, HttpError>;

fn known(endpoint: &Found) -> Option<&'static Endpoint> {
    *endpoint.as_ref().ok()?
}

/// The HTTP side of the data service. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct HttpApi(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    parts: ApiParts,
    show_trace: bool,
    max_body_bytes: usize,
    cors: Cors,
    access: AccessControl,
}

impl HttpApi {
    pub(crate) fn new(
        writer: Writer,
        engine: Engine,
        uids: Uids,
        trees: Trees,
        text_search: Option<TextSearch>,
        settings: &DataSettings,
        counters: Arc<Counters>,
    ) -> HttpApi {
        HttpApi(Arc::new(Inner {
            parts: ApiParts {
                rollups: RollupWriter::from_engine(&engine, &writer),
                writer,
                engine,
                buffers_results: settings.http.http_buffer_results,
                query_rules: QueryRules {
                    fix_duplicates: settings.queries.fix_duplicates,
                    omits_nan: settings.http.http_omit_nan,
                    allow_delete: settings.http.http_allow_delete,
                    may_delete: true,
                },
                config: Arc::new(Config::new(settings, &uids)),
                pictures: PictureCache::new(),
                uids,
                trees,
                text_search,
                counters,
            },
            show_trace: settings.http.http_show_stack_trace,
            max_body_bytes: settings.http.max_body_bytes(),
            cors: Cors::new(&settings.http.cors_domains),
            access: AccessControl::default(),
        }))
    }

    /// The parts as the caller of a gRPC call may use them for writes.
    pub(crate) fn parts_for(&self, access: Option<&Access>) -> Cow<'_, ApiParts> {
        match access.and_then(|access| access.metrics.as_ref()) {
            None => Cow::Borrowed(&self.0.parts),
            Some(scope) => Cow::Owned(self.0.parts.limited_to(scope)),
        }
    }

    /// Handles a request, and counts it when the timer is dropped.
    pub(crate) async fn handle_timed<B>(
        &self,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> (Response<Observed<ReplyBody>>, RequestTimer)
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let requests = self.0.parts.counters.requests();
        let endpoint = endpoint::find(ENDPOINTS, request.uri().path());
        let label = known(&endpoint).map_or("other", Endpoint::label);
        let mut timer = requests.begin(Protocol::Http, label);
        let Some(record) = timer.record(Some(request.headers()), peer) else {
            let response = self.handle(endpoint, request).await;
            timer.set_code(response.status().as_str().to_owned());
            return (response.map(Observed::unobserved), timer);
        };
        let request = request.map(|body| record.received(body));
        let mut response = record.scope(self.handle(endpoint, request)).await;
        record.add_id(response.headers_mut());
        timer.set_code(response.status().as_str().to_owned());
        (response.map(|body| record.sent(body)), timer)
    }

    /// The same, with checks of the callers' rights.
    pub(crate) fn with_access(self, access: AccessControl) -> HttpApi {
        let mut inner = Arc::unwrap_or_clone(self.0);
        Arc::make_mut(&mut inner.parts.config).set_mode(access.mode());
        // Queries that delete are changes.
        inner.parts.query_rules.allow_delete &= access.mode() != Mode::ReadOnly;
        inner.access = access;
        HttpApi(Arc::new(inner))
    }

    /// Handles a request of an endpoint. Errors are responses too.
    async fn handle<B>(&self, endpoint: Found, request: Request<B>) -> Response<ReplyBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let parts = &self.0.parts;
        Counters::count(&parts.counters.http_requests);
        let compression = Coding::accepted(request.headers());
        let parameters = Parameters::parse(request.uri().query());
        let origin = self.0.cors.check(&request);
        let is_api = endpoint::is_api(request.uri().path());
        let errors = known(&endpoint).and_then(Endpoint::errors);
        let errors = errors.map(|form| form.for_request(request.headers()));
        let (head, mut body) = request.into_parts();
        let expects_continue = head.headers.contains_key(header::EXPECT);
        let mut client = head.extensions.get().copied().unwrap_or_default();
        let request = Request::from_parts(head, &mut body);
        let result = match &origin {
            Ok(Origin::Preflight(_)) => Ok(Reply::json(Vec::new())),
            Ok(Origin::None | Origin::Allowed(_)) => match check_jsonp(parameters.get("jsonp")) {
                Ok(()) => self.0.dispatch(endpoint, request, &parameters, &mut client).await,
                Err(rejected) => Err(rejected),
            },
            Err(rejected) => Err(rejected.clone()),
        };
        // The rest of a body is not read as the next request: the response says that the connection closes.
        let closes = !request_body::is_read(body, expects_continue).await;
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                if error.status.is_server_error() {
                    warn!(
                        status = error.status.as_u16(),
                        message = error.message,
                        "HTTP request failed"
                    );
                }
                match errors {
                    Some(form) => Reply::error_in(form, &error),
                    None if is_api => Reply::error(&error, self.0.show_trace),
                    None => pages::error(&error, &parameters),
                }
            }
        };
        let mut response = reply
            .wrapped(parameters.get("jsonp"))
            .into_response(compression, &parts.engine.resources().compute.for_client(client))
            .await;
        if response.status() == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        if response.status() == StatusCode::SERVICE_UNAVAILABLE {
            let headers = response.headers_mut();
            headers.entry(header::RETRY_AFTER).or_insert(RETRY_AFTER);
        }
        if let Ok(origin) = origin {
            origin.add_headers(response.headers_mut());
        }
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
        if closes {
            headers.insert(header::CONNECTION, CLOSE);
        }
        response
    }
}

impl Inner {
    /// Reads the body of a request of `endpoint`, and calls the handler. `client` is the address, and becomes
    /// the principal of a caller that has authenticated.
    async fn dispatch<B>(
        &self,
        endpoint: Found,
        mut request: Request<B>,
        parameters: &Parameters,
        client: &mut ClientId,
    ) -> Result<Reply, HttpError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        if request.method() == Method::OPTIONS {
            return Err(HttpError::options_not_allowed());
        }
        let certificate = request.extensions().get::<PeerCertificate>().cloned();
        let identity = self.access.identify(request.headers_mut(), certificate.as_ref());
        let identity = identity.map_err(|refusal| HttpError::refused(&refusal))?;
        called_by(&identity);
        let caller = Caller::new(Protocol::Http, Some(&identity), *client);
        *client = caller.client;
        let Some((endpoint, rights)) = endpoint?.and_then(|endpoint| Some((endpoint, endpoint.rights()?)))
        else {
            let text = "There is no page here. The API begins at <code>/api</code>.";
            return Ok(Reply::page(StatusCode::NOT_FOUND, "Page Not Found", text));
        };
        if parameters.get("serializer").is_some_and(|name| name != "json") {
            return Err(HttpError::bad_request("Requested serializer was not found"));
        }
        let method = endpoint.method(request.method(), parameters)?;
        // A script element of any page can load JSONP and read it.
        if endpoint.may_change(&method) || parameters.get("jsonp").is_some() {
            self.cors.check_page(request.headers())?;
        }
        let operation = endpoint.operation(&method)?;
        let access = self.access.admit(
            &identity,
            &rights.operation(&method, endpoint.may_change(&method)),
        );
        let access = access.map_err(|refusal| HttpError::refused(&refusal))?;
        let limited = self.limited(&access, &identity, operation.is_query && method != Method::DELETE);
        let parts = limited.as_ref().unwrap_or(&self.parts);
        let context = RequestContext {
            client: *client,
            deadline: None,
        };
        let resources = parts.engine.resources();
        let (memory, wait) = match operation.body {
            BodyUse::Ingest => (&parts.writer.memory_of(context.client), WRITE_MEMORY_WAIT),
            // A query waits for its body's memory as long as for its turn.
            BodyUse::Query | BodyUse::Ignored => (
                &resources.memory.for_client(context.client),
                resources.admission.limits().wait,
            ),
        };
        // Shares its text with the request.
        let uri = request.uri().clone();
        let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
        let setting_headers = SettingHeaders::new(request.headers());
        let accepts_arrow = accepts_arrow(request.headers());
        let body = if operation.body == BodyUse::Ignored {
            RequestBody::empty(memory)
        } else {
            let limits = BodyLimits {
                max_bytes: self.max_body_bytes,
                pool: memory,
                wait,
                compute: &parts.writer.compute().for_client(context.client),
            };
            request_body::read(request, limits).await?
        };
        let result = (operation.handler)(ApiRequest {
            parts,
            caller,
            method: &method,
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
            parameters,
            context,
            content_type,
            setting_headers,
            accepts_arrow,
            body,
        })
        .await;
        if operation.is_query {
            Counters::count(match result {
                Ok(_) => &parts.counters.queries_succeeded,
                Err(_) => &parts.counters.queries_failed,
            });
        }
        result
    }
}

impl Inner {
    /// The parts as a caller may use them, if it may not use all of them. A query `may_request_delete` by a flag, for
    /// which reading is not enough.
    fn limited(&self, access: &Access, identity: &Identity, may_request_delete: bool) -> Option<ApiParts> {
        let mut limited = access.metrics.as_ref().map(|scope| self.parts.limited_to(scope));
        if let Some(caller) = &access.queries_of {
            let limited = limited.get_or_insert_with(|| self.parts.clone());
            limited.engine = limited.engine.clone().with_queries_of(caller);
        }
        if may_request_delete && self.parts.query_rules.allow_delete {
            let delete = operation::by_http_path("/api/query");
            let delete = delete.map(|query| query.operation(&Method::DELETE, true));
            if !delete.is_some_and(|delete| self.access.grants_all(identity, &delete)) {
                let limited = limited.get_or_insert_with(|| self.parts.clone());
                limited.query_rules.may_delete = false;
            }
        }
        limited
    }
}

#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod mode_tests;
#[cfg(test)]
mod small_tests;
#[cfg(test)]
mod tests;
