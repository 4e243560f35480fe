//! A request as handlers of endpoints receive it.

use std::sync::Arc;

use http::{HeaderValue, Method};
use oxtsdb_access::MetricScope;
use oxtsdb_ingest::rollup::RollupWriter;
use oxtsdb_ingest::{Caller, Writer};
use oxtsdb_metadata::text_search::TextSearch;
use oxtsdb_metadata::tree::Trees;
use oxtsdb_metadata::uids::{Uids, limited_engine};
use oxtsdb_query::{Engine, RequestContext};

use crate::front::counters::Counters;
use crate::http::config::Config;
use crate::http::graph::PictureCache;
use crate::http::parameters::Parameters;
use crate::http::query::rules::QueryRules;
use crate::http::request_body::RequestBody;
use crate::http::setting_headers::SettingHeaders;

/// The parts of the service that handlers use.
#[derive(Clone, Debug)]
pub(crate) struct ApiParts {
    pub(crate) writer: Writer,
    pub(crate) rollups: RollupWriter,
    pub(crate) engine: Engine,
    /// Whether results are sent after they are complete.
    pub(crate) buffers_results: bool,
    pub(crate) query_rules: QueryRules,
    pub(crate) uids: Uids,
    pub(crate) trees: Trees,
    pub(crate) text_search: Option<TextSearch>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) config: Arc<Config>,
    pub(crate) pictures: PictureCache,
}

impl ApiParts {
    /// The same service, which rejects metrics outside `scope`.
    pub(crate) fn limited_to(&self, scope: &MetricScope) -> Self {
        let writer = self.writer.limited_to(scope);
        let engine = limited_engine(&self.engine, scope);
        Self {
            rollups: RollupWriter::from_engine(&engine, &writer),
            writer,
            engine,
            pictures: PictureCache::none(),
            ..self.clone()
        }
    }
}

/// A request with an accepted path, method and body.
#[derive(Debug)]
pub(crate) struct ApiRequest<'a> {
    pub(crate) parts: &'a ApiParts,
    /// The method, after `method_override`.
    pub(crate) method: &'a Method,
    /// The path as it was sent.
    pub(crate) path: &'a str,
    /// The query string as it was sent.
    pub(crate) query: &'a str,
    /// The query string.
    pub(crate) parameters: &'a Parameters,
    /// The caller, for points that are rejected.
    pub(crate) caller: Caller,
    /// The client, for queries.
    pub(crate) context: RequestContext,
    /// The type of the body, as it was sent.
    pub(crate) content_type: Option<HeaderValue>,
    /// Headers with settings of OpenTelemetry's front end.
    pub(crate) setting_headers: SettingHeaders,
    /// Whether the client requests results in Arrow's format.
    pub(crate) accepts_arrow: bool,
    /// The decompressed body; empty if the endpoint does not read it. Its memory stays charged until the request
    /// is dropped.
    pub(crate) body: RequestBody,
}
