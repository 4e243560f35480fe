//! `DataService.ScanRows`.

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::scan_rows_request::{View, source};
use oxtsdb_proto::data::v1::scan_rows_response::{
    Cell, CellPoint as CellPointMessage, CellType, Row as RowMessage, cell_point,
};
use oxtsdb_proto::data::v1::{ScanRowsRequest, ScanRowsResponse};
use oxtsdb_proto::error::{invalid_field, item_error};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{CellRef as StoredCell, Row};
use oxtsdb_schema::row::{CellKind, CellPoint, CellRef, decode_cell};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef, Value};
use tonic::{Code, Request, Response, Status};

use super::query::convert::{metric_source, range, tsuids};
use super::query::of_query;
use super::results::{context_of, result_stream};
use oxtsdb_query::context::query_context::QueryContext;
use oxtsdb_query::context::running::QueryDescription;
use oxtsdb_query::exec::scan::RowBatch;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::plan::hours::Hours;
use oxtsdb_query::row_scan::{RowScan, RowSource, scan_rows as scan};
use oxtsdb_query::{Engine, QueryError};

/// A message is closed when its cells have so many bytes; a row is never split.
const MESSAGE_BYTES: usize = 1 << 20;

/// What a cell takes in a message beside its qualifier and value, about.
const CELL_BYTES: usize = 64;

/// Sends rows as they are stored.
pub(super) async fn scan_rows(
    engine: &Engine,
    request: Request<ScanRowsRequest>,
) -> Result<Response<BoxStream<'static, Result<ScanRowsResponse, Status>>>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let view = View::try_from(request.view).map_err(|_| {
        invalid_field(
            "view",
            format!("is {}, expected one of the named values", request.view),
        )
    })?;
    let table = engine.storage().table.to_string();
    let row_scan = row_scan(&request)?;
    let of_query = |error: &QueryError, table: &str| self::of_query(error, "source", table);
    let admitted = engine
        .admit(context, description(&row_scan), None)
        .await
        .map_err(|error| of_query(&error, &table))?;
    let context = admitted.context().clone();
    let opened = context.run(scan(engine.storage(), row_scan, &context)).await;
    let rows = opened.map_err(|error| of_query(&error, &table))?;
    let layout = engine.storage().layout;
    let budget = admitted.budget().clone();
    let compute = engine.resources().compute.clone();
    let table: Arc<str> = table.into();
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
            messages.stream(compute.clone()).boxed()
        }
        Err(error) => stream::iter([Err(of_query(&error, &table))]).boxed(),
    });
    Ok(Response::new(result_stream(messages, engine, Some(admitted))))
}

fn row_scan(request: &ScanRowsRequest) -> Result<RowScan, Status> {
    let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
    let source = request.source.as_ref().and_then(|source| source.source.as_ref());
    let source = match source {
        None => {
            return Err(invalid_field(
                "source",
                "is missing, expected metric, tsuids or all",
            ));
        }
        Some(source::Source::Metric(source)) => {
            let (metric, filter) = metric_source("source.metric", source)?;
            RowSource::Metric { metric, filter }
        }
        Some(source::Source::Tsuids(source)) if !source.filters.is_empty() => {
            let rule = format!(
                "has {} items, rows are scanned without filters of series",
                source.filters.len()
            );
            return Err(invalid_field("source.tsuids.filters", rule));
        }
        Some(source::Source::Tsuids(source)) => RowSource::Tsuids(tsuids("source.tsuids", source)?),
        Some(source::Source::All(true)) => RowSource::All,
        Some(source::Source::All(false)) => {
            return Err(invalid_field("source.all", "is false, expected true"));
        }
    };
    Ok(RowScan {
        source,
        hours: Hours::overlapping(start_ms, stop_ms - 1),
        start_after_row_key: request.start_after_row_key.to_vec(),
        limit: Some(request.limit).filter(|limit| *limit > 0),
    })
}

/// The entry of a scan in the list of running queries.
fn description(scan: &RowScan) -> QueryDescription {
    let source = match &scan.source {
        RowSource::Metric { metric, .. } => format!("scan:{metric}"),
        RowSource::Tsuids(tsuids) => format!("scan:({} TSUIDs)", tsuids.len()),
        RowSource::All => "scan:*".to_owned(),
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
    view: View,
    table: Arc<str>,
}

impl Messages {
    /// The messages, each made in the computation pool: it may have a hundred thousand cells.
    fn stream(self, compute: ComputePool) -> impl Stream<Item = Result<ScanRowsResponse, Status>> + Send {
        stream::unfold(Some((self, compute)), |state| async move {
            let (mut messages, compute) = state?;
            let made = compute.run(move || {
                let message = messages.next();
                (messages, message)
            });
            match made.await {
                Ok((messages, message)) => Some((Ok(message?), Some((messages, compute)))),
                Err(panicked) => Some((Err(of_query(&panicked.into(), "source", "")), None)),
            }
        })
    }
}

impl Iterator for Messages {
    type Item = ScanRowsResponse;

    fn next(&mut self) -> Option<ScanRowsResponse> {
        let mut message = ScanRowsResponse::default();
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
            message
                .rows
                .push(row_message(row, &self.layout, self.view, &self.table));
        }
        (!message.rows.is_empty()).then_some(message)
    }
}

fn row_message(row: &Row, layout: &RowKeyLayout, view: View, table: &str) -> RowMessage {
    let key = RowKeyRef::decode(row.key(), layout).ok();
    let base_timestamp_ms = key.map_or(0, |key| key.base_time().millis());
    let mut tsuid = Vec::new();
    if let Some(key) = key.filter(|key| !key.is_global()) {
        key.tsuid_bytes(&mut tsuid);
    }
    RowMessage {
        row_key: row.key().to_vec().into(),
        tsuid: tsuid.into(),
        base_timestamp_ms,
        cells: row
            .cells()
            .map(|cell| cell_message(cell, base_timestamp_ms, view, (table, row.key())))
            .collect(),
    }
}

fn cell_message(stored: StoredCell<'_>, base_ms: i64, view: View, place: (&str, &[u8])) -> Cell {
    let cell = CellRef {
        qualifier: stored.qualifier,
        value: stored.value,
        timestamp_ms: stored.timestamp_ms,
    };
    let kind = CellKind::of(cell.qualifier);
    let mut message = Cell {
        version_ms: stored.timestamp_ms,
        ..Cell::default()
    };
    message.set_type(cell_type(kind));
    let decoded = match view {
        View::Unspecified | View::Raw => false,
        View::Decoded | View::Full => decode(cell, base_ms, place, &mut message),
    };
    if view != View::Decoded || !decoded {
        message.qualifier = cell.qualifier.to_vec().into();
        message.value = cell.value.to_vec().into();
    }
    message
}

/// Puts the points of a cell into its message; `false` if they are not all that is in it.
fn decode(cell: CellRef<'_>, base_ms: i64, (table, row_key): (&str, &[u8]), message: &mut Cell) -> bool {
    let mut points = Vec::new();
    match decode_cell(cell, &mut points) {
        Ok(kind) => {
            message.points = points.iter().map(|point| point_message(point, base_ms)).collect();
            matches!(kind, CellKind::Point | CellKind::Compacted | CellKind::Appended)
        }
        Err(error) => {
            let (row_key, qualifier) = (hex(row_key), hex(cell.qualifier));
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

fn point_message(point: &CellPoint, base_ms: i64) -> CellPointMessage {
    CellPointMessage {
        timestamp_ms: base_ms + i64::from(point.qualifier.offset_ms()),
        value: Some(match point.value {
            Value::Int(int) => cell_point::Value::IntValue(int),
            value @ (Value::Float(_) | Value::Double(_)) => cell_point::Value::DoubleValue(value.as_f64()),
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
        CellKind::Unknown => CellType::Unspecified,
    }
}

/// Upper-case hex.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests;
