//! `DataService.ScanRows`.

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::scan_rows_request::Source;
use oxtsdb_proto::data::v1::{
    CellType, CellView, ScanRowsRequest, ScanRowsResponse, ScanTableRequest, ScanTableResponse, StoredCell,
    StoredPoint, StoredRow, stored_point,
};
use oxtsdb_proto::error::{invalid_field, item_error};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::QueryContext;
use oxtsdb_query::QueryDescription;
use oxtsdb_query::RowBatch;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Engine, Hours, QueryError, RequestContext};
use oxtsdb_query::{RowScan, RowSource, scan_rows as scan_stored_rows};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{CellRef as RowCell, Row};
use oxtsdb_schema::row::{CellKind, CellPoint, CellRef, decode_cell};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef, Value};
use prost::Message;
use tonic::{Code, Request, Response, Status};

use super::query::convert::{metric_source, range, tsuids};
use super::query::field_error::no_such;
use super::query::query_status;
use super::results::{context_of, result_stream};

/// The bytes of cells at which a message is closed; a row is never split.
const MESSAGE_BYTES: usize = 1 << 20;

/// The approximate bytes of a cell in a message beside its qualifier and value.
const CELL_BYTES: usize = 64;

/// `DataService.ScanRows`.
pub(super) fn scan_rows(
    engine: &Engine,
    request: Request<ScanRowsRequest>,
) -> Result<Response<MessageStream<ScanRowsResponse>>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let view = view(request.view)?;
    let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
    let source = match &request.source {
        None => return Err(invalid_field("source", "is missing, expected metric or tsuids")),
        Some(Source::Metric(source)) => {
            let (metric, filter) = metric_source("metric", source)?;
            RowSource::Metric { metric, filter }
        }
        Some(Source::Tsuids(source)) if !source.filters.is_empty() => {
            let rule = format!(
                "has {} items, rows are scanned without filters of series",
                source.filters.len()
            );
            return Err(invalid_field("tsuids.filters", rule));
        }
        Some(Source::Tsuids(source)) => RowSource::Tsuids(tsuids("tsuids", source)?),
    };
    let scan = RowScan {
        source,
        hours: Hours::overlapping(start_ms, stop_ms - 1),
        start_after_row_key: request.start_after_row_key.to_vec(),
        limit: Some(request.limit).filter(|limit| *limit > 0),
    };
    let messages = messages(engine, context, scan, view, |rows| ScanRowsResponse { rows });
    Ok(Response::new(messages))
}

/// `DataAdminService.ScanTable`.
pub(super) fn scan_table(
    engine: &Engine,
    request: Request<ScanTableRequest>,
) -> Result<Response<MessageStream<ScanTableResponse>>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let view = view(request.view)?;
    let hours = match &request.range {
        None => Hours::ALL,
        Some(_) => {
            let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
            Hours::overlapping(start_ms, stop_ms - 1)
        }
    };
    let scan = RowScan {
        source: RowSource::All,
        hours,
        start_after_row_key: request.start_after_row_key.to_vec(),
        limit: Some(request.limit).filter(|limit| *limit > 0),
    };
    let messages = messages(engine, context, scan, view, |rows| ScanTableResponse { rows });
    Ok(Response::new(messages))
}

fn view(number: i32) -> Result<CellView, Status> {
    CellView::try_from(number).map_err(|_| no_such("view", number))
}

/// The messages of a scan. The response begins at once, so admission is bounded by the deadline of the query
/// alone, as for every other query.
fn messages<M: Message + 'static>(
    engine: &Engine,
    context: RequestContext,
    scan: RowScan,
    view: CellView,
    message: fn(Vec<StoredRow>) -> M,
) -> MessageStream<M> {
    let engine = engine.clone();
    let opened = async move { open(&engine, context, scan, view, message).await };
    stream::once(opened).try_flatten().boxed()
}

/// Admits a scan and opens it.
async fn open<M: Message + 'static>(
    engine: &Engine,
    context: RequestContext,
    scan: RowScan,
    view: CellView,
    message: fn(Vec<StoredRow>) -> M,
) -> Result<MessageStream<M>, Status> {
    let table: Arc<str> = engine.storage().table.to_string().into();
    let failed = |error: QueryError, table: &str| query_status(&error, "", table);
    let admitted = engine.admit(context, description(&scan), None).await;
    let admitted = admitted.map_err(|error| failed(error, &table))?;
    let context = admitted.context().clone();
    let opened = context
        .run(scan_stored_rows(engine.storage(), scan, &context))
        .await;
    let rows = opened.map_err(|error| failed(error, &table))?;
    let layout = engine.storage().layout;
    let budget = admitted.budget().clone();
    let compute = context.compute(&engine.resources().compute);
    let batches = interruptible(rows, context).map(move |batch| RowBatch::new(batch?, &budget));
    let messages = batches.flat_map(move |batch| match batch {
        Ok(rows) => {
            let table = Arc::clone(&table);
            let messages = Messages {
                rows,
                next: 0,
                layout,
                view,
                table,
            };
            let messages = messages.stream(compute.clone());
            messages.map(move |rows| rows.map(message)).boxed()
        }
        Err(error) => stream::iter([Err(failed(error, &table))]).boxed(),
    });
    Ok(result_stream(messages, engine, Some(admitted)))
}

/// The entry of a scan in the list of running queries.
fn description(scan: &RowScan) -> QueryDescription {
    let source = match &scan.source {
        RowSource::Metric { metric, .. } => format!("scan:{metric}"),
        RowSource::Tsuids(tsuids) => format!("scan:({} TSUIDs)", tsuids.len()),
        RowSource::All => "scan:*".to_owned(),
        RowSource::GlobalAnnotations => "scan:(global annotations)".to_owned(),
    };
    QueryDescription {
        sub_queries: vec![source],
        range_ms: (scan.hours.start.millis(), scan.hours.stop_ms()),
    }
}

/// Ends a stream with an error when the query is interrupted.
fn interruptible(
    rows: BoxStream<'static, Result<Vec<Row>, QueryError>>,
    context: QueryContext,
) -> BoxStream<'static, Result<Vec<Row>, QueryError>> {
    stream::unfold(Some((rows, context)), |state| async move {
        let (mut rows, context) = state?;
        tokio::select! {
            biased;
            batch = rows.next() => batch.map(|batch| (batch, Some((rows, context)))),
            error = context.interrupted() => Some((Err(error), None)),
        }
    })
    .boxed()
}

/// Rows as messages of about [`MESSAGE_BYTES`], made one by one. The rows' memory is held until the last
/// message of them is made.
struct Messages {
    rows: RowBatch,
    /// The first row that is in no message yet.
    next: usize,
    layout: RowKeyLayout,
    view: CellView,
    table: Arc<str>,
}

impl Messages {
    /// The messages, each made in the computation pool: it may have a hundred thousand cells.
    fn stream(self, compute: ComputePool) -> impl Stream<Item = Result<Vec<StoredRow>, Status>> + Send {
        stream::unfold(Some((self, compute)), |state| async move {
            let (mut messages, compute) = state?;
            let made = compute.run(move || {
                let message = messages.next();
                (messages, message)
            });
            match made.await {
                Ok((messages, message)) => Some((Ok(message?), Some((messages, compute)))),
                Err(panicked) => Some((Err(query_status(&panicked.into(), "", "")), None)),
            }
        })
    }
}

impl Iterator for Messages {
    type Item = Vec<StoredRow>;

    fn next(&mut self) -> Option<Vec<StoredRow>> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        while let Some(row) = self.rows.rows().get(self.next)
            && bytes < MESSAGE_BYTES
        {
            self.next += 1;
            bytes += row.key().len();
            bytes += row
                .cells()
                .map(|cell| cell.qualifier.len() + cell.value.len() + CELL_BYTES)
                .sum::<usize>();
            rows.push(row_message(row, &self.layout, self.view, &self.table));
        }
        (!rows.is_empty()).then_some(rows)
    }
}

fn row_message(row: &Row, layout: &RowKeyLayout, view: CellView, table: &str) -> StoredRow {
    let key = RowKeyRef::decode(row.key(), layout).ok();
    let base_timestamp_ms = key.map_or(0, |key| key.base_time().millis());
    let mut tsuid = Vec::new();
    if let Some(key) = key.filter(|key| !key.is_global()) {
        key.tsuid_bytes(&mut tsuid);
    }
    StoredRow {
        row_key: row.key().to_vec().into(),
        tsuid: tsuid.into(),
        base_timestamp_ms,
        cells: row
            .cells()
            .map(|cell| cell_message(cell, base_timestamp_ms, view, (table, row.key())))
            .collect(),
    }
}

fn cell_message(stored: RowCell<'_>, base_ms: i64, view: CellView, place: (&str, &[u8])) -> StoredCell {
    let cell = CellRef {
        qualifier: stored.qualifier,
        value: stored.value,
        timestamp_ms: stored.timestamp_ms,
    };
    let kind = CellKind::from_qualifier(cell.qualifier);
    let mut message = StoredCell {
        version_ms: stored.timestamp_ms,
        ..StoredCell::default()
    };
    message.set_type(cell_type(kind));
    let decoded = match view {
        CellView::Unspecified | CellView::Raw => false,
        CellView::Decoded | CellView::Full => decode(cell, base_ms, place, &mut message),
    };
    if view != CellView::Decoded || !decoded {
        message.qualifier = cell.qualifier.to_vec().into();
        message.value = cell.value.to_vec().into();
    }
    message
}

/// Puts the points of a cell into its message; `false` if they are not all that is in it.
fn decode(
    cell: CellRef<'_>,
    base_ms: i64,
    (table, row_key): (&str, &[u8]),
    message: &mut StoredCell,
) -> bool {
    let mut points = Vec::new();
    match decode_cell(cell, &mut points) {
        Ok(kind) => {
            message.points = points.iter().map(|point| point_message(point, base_ms)).collect();
            matches!(kind, CellKind::Point | CellKind::Compacted | CellKind::Appended)
        }
        Err(error) => {
            let (row_key, qualifier) = (hex::encode_upper(row_key), hex::encode_upper(cell.qualifier));
            let metadata = [("table", table), ("row_key", &row_key), ("qualifier", &qualifier)];
            message.error = Some(item_error(
                Code::DataLoss,
                ErrorReason::CorruptCell,
                error.to_string(),
                &metadata,
            ));
            false
        }
    }
}

fn point_message(point: &CellPoint, base_ms: i64) -> StoredPoint {
    StoredPoint {
        timestamp_ms: base_ms + i64::from(point.qualifier.offset_ms()),
        value: Some(match point.value {
            Value::Int(int) => stored_point::Value::IntValue(int),
            value @ (Value::Float(_) | Value::Double(_)) => stored_point::Value::DoubleValue(value.as_f64()),
        }),
    }
}

const fn cell_type(kind: CellKind) -> CellType {
    match kind {
        CellKind::Point => CellType::Point,
        CellKind::Compacted => CellType::Compacted,
        CellKind::Appended => CellType::Appended,
        CellKind::Annotation => CellType::Annotation,
        CellKind::Histogram => CellType::Histogram,
        CellKind::Unknown => CellType::Unknown,
    }
}

#[cfg(test)]
mod tests;
