use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::scan_rows_request::Source;
use oxtsdb_proto::data::v1::sub_query::{MetricSource, TsuidSource};
use oxtsdb_proto::error::reason_of;
use oxtsdb_query::Limits;
use oxtsdb_query::QueryResources;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_schema::Timestamp;
use oxtsdb_server::Deadline;
use oxtsdb_test_stack::TestStack;

use super::*;

const T: u32 = 1_346_846_400;

/// A store with the point that everyone knows; the engine over it.
async fn example() -> (TestStack, Engine) {
    let stack = TestStack::start().await;
    write(&stack, "web01", T, 18).await;
    let engine = engine(&stack);
    (stack, engine)
}

async fn write(stack: &TestStack, host: &str, seconds: u32, value: i64) {
    let point = NewPoint {
        metric: "sys.cpu.nice",
        tags: &[("host", host), ("dc", "lga")],
        timestamp: Timestamp::from_seconds(seconds),
        value: Value::Int(value),
    };
    assert_eq!(
        stack.service.writer.write(&[point], None).await.unwrap().written,
        1
    );
}

fn engine(stack: &TestStack) -> Engine {
    let uids = stack.service.uids.clone();
    let (store, layout) = (Arc::new(stack.store.clone()), *uids.layout());
    Engine::new(
        store,
        ("tsdb".parse().unwrap(), "tsdb-meta".parse().unwrap()),
        layout,
        Arc::new(uids),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    )
}

fn request(source: impl Into<Option<Source>>, view: CellView) -> ScanRowsRequest {
    let ms = |hours: i64| (i64::from(T) + hours * 3600) * 1000;
    ScanRowsRequest {
        source: source.into(),
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(ms(0))),
            end: Some(time_range::End::EndMs(ms(24))),
        }),
        view: view.into(),
        ..ScanRowsRequest::default()
    }
}

fn metric(name: &str) -> Source {
    let metric = name.to_owned();
    Source::Metric(MetricSource {
        metric,
        filters: Vec::new(),
        explicit_tags: false,
    })
}

async fn table(engine: &Engine, request: ScanTableRequest) -> Result<Vec<StoredRow>, Status> {
    let messages = scan_table(engine, Request::new(request))?.into_inner();
    let messages: Vec<_> = messages.try_collect().await?;
    Ok(messages.into_iter().flat_map(|message| message.rows).collect())
}

/// Rows of some series or, without a source, of the table.
async fn rows(engine: &Engine, request: ScanRowsRequest) -> Result<Vec<StoredRow>, Status> {
    let Some(_) = &request.source else {
        let request = ScanTableRequest {
            range: request.range,
            view: request.view,
            start_after_row_key: request.start_after_row_key,
            limit: request.limit,
        };
        return table(engine, request).await;
    };
    let messages = scan_rows(engine, Request::new(request))?.into_inner();
    let messages: Vec<_> = messages.try_collect().await?;
    Ok(messages.into_iter().flat_map(|message| message.rows).collect())
}

#[tokio::test]
async fn a_row_is_shown_as_it_is_stored() {
    let (_stack, engine) = example().await;
    let tsuid = vec![0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2];
    let of_series = Source::Tsuids(TsuidSource {
        tsuids: vec![tsuid.clone().into()],
        filters: Vec::new(),
    });
    for source in [Some(metric("sys.cpu.nice")), Some(of_series), None] {
        let rows = rows(&engine, request(source, CellView::Full)).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            hex::encode_upper(&rows[0].row_key),
            "00000150473EC0000001000001000002000002"
        );
        assert_eq!(
            (rows[0].tsuid.to_vec(), rows[0].base_timestamp_ms),
            (tsuid.clone(), i64::from(T) * 1000)
        );
        let cell = &rows[0].cells[0];
        assert_eq!(
            (hex::encode_upper(&cell.qualifier), hex::encode_upper(&cell.value)),
            ("0000".to_owned(), "12".to_owned())
        );
        assert_eq!(cell.r#type(), CellType::Point);
        assert_eq!(cell.points[0].value, Some(stored_point::Value::IntValue(18)));
    }
}

#[tokio::test]
async fn the_view_selects_the_parts_of_a_cell() {
    let (stack, engine) = example().await;
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    let key = [
        0, 0, 1, 0x50, 0x47, 0x3e, 0xc0, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2,
    ];
    batch
        .row(&key)
        .put(family, &[0x01, 0, 0], b"{}")
        .put(family, &[0xf0, 0, 0, 0x03], &[1, 2]);
    stack.store.write(batch).await.unwrap();
    let cells = async |view| {
        rows(&engine, request(metric("sys.cpu.nice"), view))
            .await
            .unwrap()[0]
            .cells
            .clone()
    };

    let raw = cells(CellView::Raw).await;
    assert!(
        raw.iter()
            .all(|cell| cell.points.is_empty() && !cell.qualifier.is_empty() && cell.error.is_none())
    );
    let decoded = cells(CellView::Decoded).await;
    let types: Vec<_> = decoded.iter().map(StoredCell::r#type).collect();
    assert_eq!(types, [CellType::Point, CellType::Annotation, CellType::Point]);
    assert!(
        decoded[0].value.is_empty() && decoded[0].points.len() == 1,
        "its points say it all"
    );
    assert_eq!(decoded[1].value.to_vec(), b"{}", "an annotation has no points");
    let damaged = &decoded[2];
    assert_eq!(
        damaged.error.as_ref().map(|error| error.reason()),
        Some(ErrorReason::CorruptCell)
    );
    assert_eq!(damaged.value.to_vec(), [1, 2]);
}

#[tokio::test]
async fn a_scan_resumes_behind_any_of_its_rows() {
    for salt_width in [0, 1] {
        let mut settings = DataSettings::default();
        settings.tables.salt_width = salt_width;
        let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
        for host in 0..7 {
            for hour in 0..3 {
                write(&stack, &format!("web{host}"), T + hour * 3600, 1).await;
            }
        }
        let engine = engine(&stack);
        for source in [Some(metric("sys.cpu.nice")), None] {
            let all = rows(&engine, request(source.clone(), CellView::Raw))
                .await
                .unwrap();
            let keys: Vec<_> = all.iter().map(|row| row.row_key.clone()).collect();
            assert_eq!(keys.len(), 21);
            assert!(keys.is_sorted(), "in the order of the table");
            for (index, key) in keys.iter().enumerate() {
                let resumed = ScanRowsRequest {
                    start_after_row_key: key.clone(),
                    limit: 4,
                    ..request(source.clone(), CellView::Raw)
                };
                let rest: Vec<_> = rows(&engine, resumed)
                    .await
                    .unwrap()
                    .into_iter()
                    .map(|row| row.row_key)
                    .collect();
                assert_eq!(
                    rest,
                    keys[index + 1..keys.len().min(index + 5)],
                    "behind row {index}"
                );
            }
        }
    }
}

#[tokio::test]
async fn only_hours_of_the_range_are_sent() {
    let (stack, engine) = example().await;
    write(&stack, "web01", T - 3600, 1).await;
    write(&stack, "web01", T + 24 * 3600, 1).await;
    for source in [Some(metric("sys.cpu.nice")), None] {
        assert_eq!(
            rows(&engine, request(source, CellView::Raw)).await.unwrap().len(),
            1
        );
    }
}

#[tokio::test]
async fn rejects_invalid_requests_with_their_field() {
    let (_stack, engine) = example().await;
    let status = async |request| rows(&engine, request).await.unwrap_err();
    let no_source = scan_rows(&engine, Request::new(request(None, CellView::Raw)));
    assert_eq!(
        no_source.err().unwrap().message(),
        "source: is missing, expected metric or tsuids"
    );
    let bad_view = ScanRowsRequest {
        view: 9,
        ..request(metric("sys.cpu.nice"), CellView::Raw)
    };
    assert_eq!(
        status(bad_view).await.message(),
        "view: is 9, expected one of the named values"
    );
    let short = Source::Tsuids(TsuidSource {
        tsuids: vec![vec![0, 0, 1].into()],
        filters: Vec::new(),
    });
    let short = status(request(short, CellView::Raw)).await;
    assert!(short.message().starts_with("tsuids: TSUID `000001`"), "{short}");
    let unknown = request(metric("nope"), CellView::Raw);
    assert_eq!(status(unknown).await.code(), Code::NotFound);
}

#[tokio::test]
async fn a_table_scan_without_a_range_sends_all_hours() {
    let (stack, engine) = example().await;
    write(&stack, "web01", 3600, 1).await;
    let rows = table(&engine, ScanTableRequest::default()).await.unwrap();
    assert_eq!(rows.len(), 2);
}

/// A service with one permit for queries, which is taken while the returned value lives.
async fn busy(query_timeout_seconds: u64) -> (TestStack, impl Sized) {
    let mut settings = DataSettings::default();
    settings.queries.max_concurrent_queries = 1;
    settings.queries.query_timeout_seconds = query_timeout_seconds;
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let running = stack
        .service
        .engine
        .admit(RequestContext::local(None), QueryDescription::default(), None)
        .await
        .unwrap();
    (stack, running)
}

#[tokio::test]
async fn query_timeout_ends_a_scan_that_waits_for_a_permit() {
    let (stack, _running) = busy(1).await;
    let request = Request::new(request(metric("m"), CellView::Raw));
    let mut messages = scan_rows(&stack.service.engine, request).unwrap().into_inner();
    let status = messages.try_next().await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::DeadlineExceeded,
            "query was not answered within 1 s, the limit of --query-timeout-seconds"
        )
    );
}

#[tokio::test]
async fn deadline_ends_a_scan_that_waits_for_a_permit() {
    let (stack, _running) = busy(60).await;
    let mut request = Request::new(ScanTableRequest::default());
    request
        .extensions_mut()
        .insert(Deadline(Instant::now() + Duration::from_millis(20)));
    let mut messages = scan_table(&stack.service.engine, request).unwrap().into_inner();
    let status = messages.try_next().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded));
}
