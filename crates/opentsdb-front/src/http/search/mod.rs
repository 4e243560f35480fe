//! `/api/search/KIND`: `lookup` lists series by metric and tags.
//!
//! The other kinds search metadata by text. OpenTSDB leaves them to a plug-in; without `--text-search` this server
//! responds as OpenTSDB without one.
//!
//! Intended differences from OpenTSDB:
//! - A series of `tsdb` is listed once; OpenTSDB lists it once for each of its rows.
//! - Values without a key are alternatives, and narrow the series down also beside other tags; OpenTSDB ignores them
//!   there.
//! - `use_meta=false` selects table `tsdb` also for GET; OpenTSDB ignores it there.
//! - A series with a UID that has no name is left out; OpenTSDB then fails with 404.
//! - `*=*` and an empty key or value in a body match any tag; OpenTSDB fails with 500.
//! - A body that is no JSON object is an error of the client (400), not of the server.
//!
//! Source: OpenTSDB 2.4, `SearchRpc`, `SearchQuery`, `TimeSeriesLookup`, `Tags.parseWithMetric`.

mod lookup;
mod metadata;
mod request;

use http::Method;

use self::metadata::Results;
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::reply::Reply;

/// The kind of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lookup,
    /// Metadata, by text.
    Metadata(Results),
}

/// All methods.
pub(crate) async fn search(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    if !matches!(*request.method, Method::GET | Method::POST) {
        let message = format!("Unsupported method: {}", request.method);
        return Err(HttpError::bad_request(message));
    }
    match kind(request.path)? {
        Kind::Lookup => lookup::lookup(request).await,
        Kind::Metadata(results) => metadata::search(request, results).await,
    }
}

/// The kind that a path names.
fn kind(path: &str) -> Result<Kind, HttpError> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.find(|segment| segment.eq_ignore_ascii_case("search"));
    let kind = segments.next().unwrap_or_default().to_ascii_lowercase();
    match kind.as_str() {
        "lookup" => Ok(Kind::Lookup),
        "tsmeta" => Ok(Kind::Metadata(Results::TsMeta)),
        "tsmeta_summary" => Ok(Kind::Metadata(Results::TsMetaSummary)),
        "tsuids" => Ok(Kind::Metadata(Results::Tsuids)),
        "uidmeta" => Ok(Kind::Metadata(Results::UidMeta)),
        "annotation" => Ok(Kind::Metadata(Results::Annotation)),
        other => {
            let details = if other.is_empty() {
                "Type provided was null or empty".to_owned()
            } else {
                format!("Unknown type: {other}")
            };
            Err(HttpError::bad_request("Invalid search query type supplied").with_details(details))
        }
    }
}
