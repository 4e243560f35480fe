//! `SeriesMetaService.SearchMetadata`.

use oxtsdb_data_settings::TEXT_SEARCH_IS_BUILT;
use oxtsdb_metadata::lookup::{decode_token, encode_token};
use oxtsdb_metadata::text_search::{self, BATCH, MAX_WINDOW, Record, SearchError, SearchQuery};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::search_metadata_response::Result as FoundMetadata;
use oxtsdb_proto::data::v1::search_metadata_response::result::Metadata;
use oxtsdb_proto::data::v1::{MetadataKind, SearchMetadataRequest, SearchMetadataResponse};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_query::{QueryDescription, QueryError};
use prost::Message as _;
use tonic::{Code, Request, Status};

use super::{SeriesMetaHandler, convert};
use crate::grpc::annotation::message;
use crate::grpc::query::field_error::no_such;
use crate::grpc::query::query_status;
use crate::grpc::results::context_of;
use crate::grpc::series::count;
use crate::grpc::status::overloaded;

/// Why a server without an index rejects a search.
const DISABLED: &str = if TEXT_SEARCH_IS_BUILT {
    "text search is disabled; start the server with --text-search"
} else {
    "text search is disabled: this build of the server has none; build it with `--features text-search`, and start it \
     with --text-search"
};

/// Results of a page if the request does not say.
const PAGE_SIZE: usize = 25;

/// Results of a page at most.
const MAX_PAGE_SIZE: usize = 1000;

/// Bytes at which a page ends.
const PAGE_BYTES: usize = 1 << 20;

pub(super) async fn search_metadata(
    handler: &SeriesMetaHandler,
    request: Request<SearchMetadataRequest>,
) -> Result<SearchMetadataResponse, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let kind = match MetadataKind::try_from(request.kind) {
        Ok(MetadataKind::Uid) => text_search::Kind::Uids,
        Ok(MetadataKind::Series) => text_search::Kind::Series,
        Ok(MetadataKind::Annotation) => text_search::Kind::Annotations,
        Ok(MetadataKind::Unspecified) => return Err(invalid_field("kind", "is missing")),
        Err(_) => return Err(no_such("kind", request.kind)),
    };
    let size = match count("page_size", request.page_size, MAX_PAGE_SIZE)? {
        0 => PAGE_SIZE,
        size => size,
    };
    let query = SearchQuery {
        kind,
        text: request.query,
    };
    let start = match request.page_token.as_str() {
        "" => 0,
        token => position(&query, token).ok_or_else(|| {
            invalid_field(
                "page_token",
                "is not from the page before, with the same kind and query",
            )
        })?,
    };
    let Some(text_search) = &handler.text_search else {
        return Err(status(
            Code::FailedPrecondition,
            ErrorReason::FeatureDisabled,
            DISABLED,
            &[("setting", "--text-search")],
        ));
    };

    let table = handler.engine.storage().table.to_string();
    let query_status = |error: &QueryError| query_status(error, "", &table);
    let description = QueryDescription::without_range(format!("search:{kind:?}:{}", query.text));
    let admitted = handler.engine.admit(context, description, None).await;
    let admitted = admitted.map_err(|error| query_status(&error))?;
    let context = admitted.context();
    let size = size.min(MAX_WINDOW.saturating_sub(start));
    let hits = text_search.search(query.clone(), start, size, context).await;
    let hits = hits.map_err(|error| match &error {
        SearchError::Syntax { detail } => invalid_field("query", detail),
        SearchError::Window { .. } => invalid_field("page_token", error.to_string()),
        SearchError::NotReady => overloaded(error.to_string(), "--text-search"),
        SearchError::Failed { .. } => status(Code::Internal, ErrorReason::Internal, error.to_string(), &[]),
        SearchError::Query(error) => query_status(error),
    })?;

    let mut response = SearchMetadataResponse {
        total_results: hits.total,
        ..SearchMetadataResponse::default()
    };
    let mut held = context.budget().hold(0).map_err(|error| query_status(&error))?;
    let (mut bytes, mut next) = (0, start);
    'page: for subjects in hits.subjects.chunks(BATCH) {
        let records = text_search.records(subjects, context).await;
        let (records, _held) = records.map_err(|error| query_status(&error))?;
        for record in records {
            if let Some(record) = record {
                let result = FoundMetadata {
                    metadata: Some(metadata(record)),
                };
                let length = result.encoded_len();
                if bytes > 0 && bytes + length > PAGE_BYTES {
                    break 'page;
                }
                bytes += length;
                held.grow(length as u64).map_err(|error| query_status(&error))?;
                response.results.push(result);
            }
            next += 1;
        }
    }
    // A page without any would be followed by itself.
    if next > start && (next as u64) < hits.total.min(MAX_WINDOW as u64) {
        let position = u32::try_from(next).unwrap_or(u32::MAX);
        response.next_page_token = encode_token(&query, &position.to_be_bytes());
    }
    Ok(response)
}

/// How many results come before a page.
fn position(query: &SearchQuery, token: &str) -> Option<usize> {
    let position: [u8; 4] = decode_token(query, token)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(position)).ok()
}

fn metadata(record: Record) -> Metadata {
    match record {
        Record::Uid(meta) => Metadata::Uid(meta.into()),
        Record::Series { tsuid, names, meta } => Metadata::Series(convert::message(&tsuid, names, meta)),
        Record::Annotation(stored) => Metadata::Annotation(message(&stored)),
    }
}
