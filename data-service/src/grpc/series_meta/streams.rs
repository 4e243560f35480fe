//! The calls that read whole tables: SyncMeta and PurgeMeta. Each runs as an admitted query.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_metadata::meta::{MetaPurge, MetaSync};
use oxtsdb_proto::data::v1::{PurgeMetaRequest, PurgeMetaResponse, SyncMetaRequest, SyncMetaResponse};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::{Admitted, Engine, QueryDescription, QueryError, RequestContext};
use tonic::{Request, Response, Status};

use super::super::query::query_status;
use super::super::results::{context_of, result_stream};
use super::SeriesMetaHandler;

/// `SeriesMetaService.SyncMeta`.
pub(super) fn sync_meta(
    handler: &SeriesMetaHandler,
    request: Request<SyncMetaRequest>,
) -> Response<MessageStream<SyncMetaResponse>> {
    let context = context_of(&request);
    let request = request.into_inner();
    let (engine, uids) = (handler.engine.clone(), handler.uids.clone());
    let table = handler.table.clone();
    let opened = async move {
        let failed_at = engine.clone();
        let failed = move |error: QueryError| failed(&failed_at, &error);
        let admitted = admit(&engine, context, "metasync").await.map_err(&failed)?;
        let context = admitted.context().clone();
        let sync = MetaSync::start(
            table,
            engine.storage().clone(),
            uids,
            &context,
            request.start_after.to_vec(),
            request.validate_only,
        )
        .map_err(&failed)?;
        let slices = stream::try_unfold(Some((sync, context)), |state| async move {
            let Some((mut sync, context)) = state else {
                return Ok::<_, QueryError>(None);
            };
            let synced = sync.next(&context).await?;
            let rest = synced.position.is_some().then_some((sync, context));
            let message = SyncMetaResponse {
                rows: synced.rows,
                series: synced.series,
                series_created: synced.series_created,
                series_corrected: synced.series_corrected,
                uids_created: synced.uids_created,
                uids_corrected: synced.uids_corrected,
                failed: synced.failed,
                position: synced.position.unwrap_or_default().into(),
            };
            Ok(Some((message, rest)))
        });
        Ok::<_, Status>(result_stream(slices.map_err(failed), &engine, Some(admitted)))
    };
    Response::new(stream::once(opened).try_flatten().boxed())
}

/// `SeriesMetaService.PurgeMeta`.
pub(super) fn purge_meta(
    handler: &SeriesMetaHandler,
    request: Request<PurgeMetaRequest>,
) -> Response<MessageStream<PurgeMetaResponse>> {
    let context = context_of(&request);
    let request = request.into_inner();
    let engine = handler.engine.clone();
    let table = handler.table.clone();
    let opened = async move {
        let failed_at = engine.clone();
        let failed = move |error: QueryError| failed(&failed_at, &error);
        let admitted = admit(&engine, context, "metapurge").await.map_err(&failed)?;
        let context = admitted.context().clone();
        // The rows of the table are what the index is read from.
        let keeps_counters = engine.storage().index.is_some();
        let start = MetaPurge::start(table, &request.start_after, keeps_counters, request.validate_only);
        let purge = start.await.map_err(|error| failed(error.into()))?;
        let batches = stream::try_unfold(Some((purge, context)), |state| async move {
            let Some((mut purge, context)) = state else {
                return Ok::<_, QueryError>(None);
            };
            let purged = purge.next(&context).await?;
            let message = PurgeMetaResponse {
                documents: purged.documents,
                documents_deleted: purged.documents_deleted,
                counters_deleted: purged.counters_deleted,
                keeps_counters: purge.keeps_counters(),
                position: purged.position.clone().unwrap_or_default().into(),
            };
            let rest = purged.position.is_some().then_some((purge, context));
            Ok(Some((message, rest)))
        });
        Ok::<_, Status>(result_stream(batches.map_err(failed), &engine, Some(admitted)))
    };
    Response::new(stream::once(opened).try_flatten().boxed())
}

async fn admit(engine: &Engine, request: RequestContext, name: &str) -> Result<Admitted, QueryError> {
    let description = QueryDescription::without_range(name);
    engine.admit(request, description, None).await
}

fn failed(engine: &Engine, error: &QueryError) -> Status {
    query_status(error, "", &engine.storage().table.to_string())
}
