//! `/api/uid/tsmeta?m=METRIC{TAGK=TAGV,...}`: the metadata of all series with a metric and some tags.
//!
//! Reads the rows of the metric in table `tsdb-meta`, as an admitted query; the response is charged to its budget.

use oxtsdb_metadata::meta::{Documents, SeriesError};
use oxtsdb_query::{QueryContext, QueryDescription, QueryError, RequestContext};
use oxtsdb_row_store::Row;
use oxtsdb_schema::UidKind;

use super::tsmeta_error::{GROUP_FAILED, failed, series_error};
use super::tsmeta_reply::{uid_metas, write};
use super::{deadline, illegal_argument};
use crate::http::api_request::ApiParts;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;
use crate::http::suggest::uids_error;

/// Memory of a series beside its document while the response is written, about.
const SERIES_BYTES: usize = 4096;

/// Lists the series. Tags are names; there are no wildcards.
pub(super) async fn list(
    parts: &ApiParts,
    request: RequestContext,
    metric: &str,
    tags: &[(String, String)],
) -> Result<Reply, HttpError> {
    let description = QueryDescription::without_range(format!("tsmeta:{metric}"));
    let admitted = parts.engine.admit(request, description, None).await;
    let admitted = admitted.map_err(|error| query_error(&error))?;
    let context = admitted.context().clone();
    let uids = &parts.uids;
    let metric_uid = uids.uid(UidKind::Metric, metric, deadline()).await;
    let metric_uid = metric_uid.map_err(|error| uids_error(&error))?.ok_or_else(|| {
        series_error(&SeriesError::UnknownName {
            kind: UidKind::Metric,
            name: metric.to_owned(),
        })
    })?;
    let names: Vec<(UidKind, &str)> = tags
        .iter()
        .flat_map(|(key, value)| [(UidKind::Tagk, key.as_str()), (UidKind::Tagv, value.as_str())])
        .collect();
    let tag_uids = uids
        .uids(&names, deadline())
        .await
        .map_err(|error| uids_error(&error))?;
    let tag_uids: Option<Vec<_>> = tag_uids.into_iter().collect();
    let tag_uids = tag_uids.ok_or_else(|| illegal_argument(GROUP_FAILED))?;
    let pairs = tag_uids
        .chunks_exact(2)
        .map(|pair| pair.iter().flat_map(|uid| uid.as_bytes().to_vec()).collect());
    let pairs: Vec<Vec<u8>> = pairs.collect();

    let mut body = BodyWriter::new();
    body.hold_of(context.budget())?;
    body.out().push(b'[');
    let table = parts.writer.meta_table();
    let mut rows = table
        .for_metric(metric_uid, pairs)
        .await
        .map_err(QueryError::from)?;
    let mut is_first = true;
    while let Some(batch) = next(&context, &mut rows).await? {
        let bytes: usize = batch.iter().map(Row::byte_len).sum();
        context.budget().use_rows(batch.len() as u64, bytes as u64)?;
        // The rows, their documents, and the metadata of their UIDs.
        let held = bytes * 3 + batch.len() * SERIES_BYTES;
        let _held = context.budget().hold(held as u64)?;
        let series = rows.decode(&batch).map_err(|error| failed(&error))?;
        let tsuids: Vec<_> = series.iter().map(|(tsuid, _)| tsuid.clone()).collect();
        let metas = uid_metas(uids, &tsuids).await?;
        for (tsuid, meta) in &series {
            if !std::mem::take(&mut is_first) {
                body.out().push(b',');
            }
            write(body.out(), tsuid, meta, &metas, uids);
            body.roll()?;
        }
    }
    body.out().push(b']');
    Ok(Reply::json(body.finish()?))
}

async fn next(context: &QueryContext, rows: &mut Documents) -> Result<Option<Vec<Row>>, QueryError> {
    context
        .run(async { rows.next().await.map_err(QueryError::from) })
        .await
}
