//! Deletes the points of a query, in its range. OpenTSDB deletes the whole hours that it reads.

use futures::TryStreamExt as _;
use oxtsdb_maintenance::delete::{Deletion, delete};
use oxtsdb_point_store::TimeRange;
use oxtsdb_query::{Engine, QueryError, QuerySpec, RequestContext, RowSource, Source};

use super::failure;
use crate::http::error::HttpError;

/// The deletions of a query, one for each sub-query.
pub(super) fn deletions(spec: &QuerySpec) -> Result<Vec<Deletion>, HttpError> {
    let range = TimeRange {
        first_ms: spec.start_ms,
        last_ms: spec.end_ms,
    };
    let deletion = |source| Deletion {
        source,
        range,
        dry_run: false,
    };
    let mut deletions = Vec::with_capacity(spec.sub_queries.len());
    for sub_query in &spec.sub_queries {
        if sub_query.histogram.is_some() {
            return Err(not_supported("histograms cannot be deleted"));
        }
        deletions.push(deletion(match &sub_query.source {
            Source::Metric(metric) => RowSource::Metric {
                metric: metric.clone(),
                filter: sub_query.filter.clone(),
            },
            Source::Tsuids(_) if !sub_query.filter.tags.is_empty() => {
                return Err(not_supported("series by TSUID are deleted without filters"));
            }
            Source::Tsuids(tsuids) => RowSource::Tsuids(tsuids.clone()),
        }));
    }
    Ok(deletions)
}

/// Deletes, and returns when all is deleted.
pub(super) async fn run(
    engine: &Engine,
    request: RequestContext,
    deletion: Deletion,
) -> Result<(), HttpError> {
    let of_query = |error: QueryError| failure::query_error(&error);
    let steps = delete(engine, request, deletion).await.map_err(of_query)?;
    steps.try_for_each(async |_| Ok(())).await.map_err(of_query)
}

fn not_supported(details: &str) -> HttpError {
    HttpError::bad_request("Bad request").with_details(details)
}
