//! `/api/search/{tsmeta,tsmeta_summary,tsuids,uidmeta,annotation}`: searches metadata by text.

use std::time::Instant;

use oxtsdb_metadata::text_search::{BATCH, Kind, MAX_WINDOW, Record, SearchError, SearchQuery};
use oxtsdb_query::QueryDescription;

use super::lookup::{head, tail};
use super::request::LookupRequest;
use crate::http::annotation::render;
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;
use crate::http::uid::{series_meta, uidmeta};

/// The kind of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Results {
    /// Metadata of a series.
    TsMeta,
    /// The names of a series.
    TsMetaSummary,
    /// The TSUID of a series.
    Tsuids,
    /// Metadata of a UID.
    UidMeta,
    Annotation,
}

impl Results {
    const fn name(self) -> &'static str {
        match self {
            Self::TsMeta => "TSMETA",
            Self::TsMetaSummary => "TSMETA_SUMMARY",
            Self::Tsuids => "TSUIDS",
            Self::UidMeta => "UIDMETA",
            Self::Annotation => "ANNOTATION",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::TsMeta | Self::TsMetaSummary | Self::Tsuids => Kind::Series,
            Self::UidMeta => Kind::Uids,
            Self::Annotation => Kind::Annotations,
        }
    }

    /// A result as JSON; `None` if it is gone.
    async fn render(self, parts: &ApiParts, record: Record) -> Result<Option<Vec<u8>>, HttpError> {
        let mut out = Vec::new();
        match record {
            Record::Uid(meta) => uidmeta::write(&mut out, &meta),
            Record::Annotation(stored) => out = render::annotation(&stored.annotation),
            Record::Series { tsuid, names, .. } => match self {
                Self::Tsuids => json::write_string(&mut out, &tsuid.to_string()),
                Self::TsMetaSummary => {
                    out.extend_from_slice(b"{\"tags\":");
                    json::write_map(&mut out, names.tags.iter().map(|(key, value)| (&**key, &**value)));
                    out.extend_from_slice(b",\"metric\":");
                    json::write_string(&mut out, &names.metric);
                    out.extend_from_slice(b",\"tsuid\":");
                    json::write_string(&mut out, &tsuid.to_string());
                    out.push(b'}');
                }
                Self::TsMeta | Self::UidMeta | Self::Annotation => return series_meta(parts, &tsuid).await,
            },
        }
        Ok(Some(out))
    }
}

/// GET and POST.
pub(super) async fn search(request: ApiRequest<'_>, results: Results) -> Result<Reply, HttpError> {
    let started = Instant::now();
    let ApiRequest {
        parts,
        parameters,
        context,
        mut body,
        ..
    } = request;
    let engine = &parts.engine;
    let request = if body.bytes.is_empty() {
        LookupRequest::from_text_parameters(parameters)?
    } else {
        parsed(&mut body, &engine.resources().compute, LookupRequest::from_json).await?
    };
    let Some(text_search) = &parts.text_search else {
        return Err(HttpError::bad_request("Searching is not enabled")
            .with_details("Searching has not been enabled on this TSD"));
    };
    let text = request.query.clone().filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| HttpError::bad_request("Missing the search query"))?;
    let start = usize::try_from(request.start_index)
        .map_err(|_| HttpError::bad_request("The start index is negative"))?;
    let all = MAX_WINDOW.saturating_sub(start).max(1);
    let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
    let limit = limit.map_or(all, |limit| limit.min(all));

    let description = QueryDescription::without_range(format!("search:{}:{text}", results.name()));
    let admitted = engine.admit(context, description, None).await;
    let admitted = admitted.map_err(|error| query_error(&error))?;
    let context = admitted.context();
    let query = SearchQuery {
        kind: results.kind(),
        text,
    };
    let matches = text_search.search(query, start, limit, context).await;
    let matches = matches.map_err(|error| failed(&error))?;
    let mut body = BodyWriter::new();
    body.hold_of(context.budget())?;
    let mut is_first = true;
    for subjects in matches.subjects.chunks(BATCH) {
        let (records, _held) = text_search.records(subjects, context).await?;
        for record in records.into_iter().flatten() {
            let rendered = async { Ok::<_, oxtsdb_query::QueryError>(results.render(parts, record).await) };
            let Some(element) = context.run(rendered).await?? else {
                continue;
            };
            if !std::mem::take(&mut is_first) {
                body.out().push(b',');
            }
            body.out().extend_from_slice(&element);
            body.roll()?;
        }
    }
    let mut body = body.finish()?;
    body.prepend(head(results.name(), &request, started));
    body.append(tail(request.start_index, matches.total));
    Ok(Reply::json(body))
}

/// The response to a failed search.
fn failed(error: &SearchError) -> HttpError {
    match error {
        SearchError::Syntax { detail } => {
            HttpError::bad_request("Unable to parse query").with_details(detail.clone())
        }
        SearchError::Window { .. } => HttpError::bad_request(error.to_string()),
        SearchError::NotReady => HttpError::overloaded(error.to_string()),
        SearchError::Failed { .. } => {
            HttpError::new(http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
        SearchError::Query(error) => query_error(error),
    }
}
