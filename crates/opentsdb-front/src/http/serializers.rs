//! `/api/serializers`: the only format of requests and responses, JSON.
//!
//! ```text
//!   [{"formatters":["SuggestV1",…],"serializer":"json","parsers":["SuggestV1",…],
//!     "class":"net.opentsdb.tsd.HttpJsonSerializer","response_content_type":"application/json; charset=UTF-8",
//!     "request_content_type":"application/json"}]
//! ```
//!
//! OpenTSDB 2.4 documents the endpoint, which 2.4.1 does not register; clients call it to learn whether JSON is served.
//!
//! Source: OpenTSDB 2.4, `HttpQuery.initializeSerializerMaps`, `HttpSerializer`.

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// Requests that OpenTSDB's serializer parses.
const PARSERS: &[&str] = &[
    "PutV1",
    "SuggestV1",
    "UidAssignV1",
    "UidRenameV1",
    "SearchQueryV1",
    "QueryV1",
    "LastPointQueryV1",
    "UidMetaV1",
    "TSMetaV1",
    "TreeV1",
    "TreeRuleV1",
    "TreeRulesV1",
    "TreeTSUIDsListV1",
    "AnnotationV1",
    "AnnotationsV1",
    "AnnotationBulkDeleteV1",
];

/// Responses that it formats.
const FORMATTERS: &[&str] = &[
    "PutV1",
    "SuggestV1",
    "SerializersV1",
    "AggregatorsV1",
    "VersionV1",
    "DropCachesV1",
    "UidAssignV1",
    "UidRenameV1",
    "QueryV1",
    "QueryAsyncV1",
    "LastPointQueryV1",
    "UidMetaV1",
    "TSMetaV1",
    "TSMetaListV1",
    "BranchV1",
    "TreeV1",
    "TreesV1",
    "TreeRuleV1",
    "TreeCollisionNotMatchedV1",
    "TreeTestV1",
    "AnnotationV1",
    "AnnotationsV1",
    "AnnotationBulkDeleteV1",
    "StatsV1",
    "ThreadStatsV1",
    "RegionStatsV1",
    "JVMStatsV1",
    "QueryStatsV1",
    "SearchResultsV1",
    "ConfigV1",
    "FilterConfigV1",
    "NotFoundV1",
    "ErrorV1",
];

/// GET.
pub(crate) async fn list(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let mut body = b"[{\"formatters\":".to_vec();
    json::write_strings(&mut body, FORMATTERS.iter().copied());
    body.extend_from_slice(b",\"serializer\":\"json\",\"parsers\":");
    json::write_strings(&mut body, PARSERS.iter().copied());
    body.extend_from_slice(
        b",\"class\":\"net.opentsdb.tsd.HttpJsonSerializer\",\
          \"response_content_type\":\"application/json; charset=UTF-8\",\
          \"request_content_type\":\"application/json\"}]",
    );
    Ok(Reply::json(body))
}
