use std::time::Duration;

use futures::TryStreamExt as _;
use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::data::v1::data_admin_service_server::DataAdminService as _;
use oxtsdb_proto::data::v1::repair_rows_response::{Effect, result::Outcome};
use oxtsdb_proto::data::v1::{
    self as pb, CheckedRow, DuplicateChoice, RepairRowsRequest, RowCellChange, RowRepair,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_row_store::{Row, RowStore as _, Scan, WriteBatch};
use oxtsdb_schema::Timestamp;
use oxtsdb_schema::Value;
use oxtsdb_test_stack::TestStack;

use super::*;

const T: u32 = 1_346_846_400;

/// The row of the point that [`stack`] writes.
const ROW: &str = "00000150473ec0000001000001000002000002";

async fn write(stack: &TestStack, seconds: u32) {
    let point = NewPoint {
        metric: "sys.cpu.nice",
        tags: &[("host", "web01"), ("dc", "lga")],
        timestamp: Timestamp::from_seconds(seconds),
        value: Value::Int(18),
    };
    let written = stack.service.writer.write(&[point], None).await.unwrap().written;
    assert_eq!(written, 1);
}

async fn stack() -> TestStack {
    let stack = TestStack::start().await;
    write(&stack, T).await;
    stack
}

/// Cells: row, qualifier, timestamp, value.
async fn put(stack: &TestStack, cells: &[(&str, &str, i64, &str)]) {
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    for (row, qualifier, time, value) in cells {
        let bytes = |text: &str| hex::decode(text).unwrap();
        batch
            .row(&bytes(row))
            .put_at(family, &bytes(qualifier), *time, &bytes(value));
    }
    stack.store.write(batch).await.unwrap();
}

async fn table(stack: &TestStack) -> Vec<Row> {
    let rows = stack
        .store
        .scan(&"tsdb".parse().unwrap(), Scan::range([], []))
        .await;
    let rows: Vec<Vec<Row>> = rows.unwrap().try_collect().await.unwrap();
    rows.into_iter().flatten().collect()
}

fn now() -> FsckRowsRequest {
    FsckRowsRequest {
        grace_period: Some(prost_types::Duration::default()),
        ..FsckRowsRequest::default()
    }
}

async fn check(stack: &TestStack, request: FsckRowsRequest) -> Result<(Vec<CheckedRow>, Summary), Status> {
    let messages = stack.service.handler.fsck_rows(Request::new(request)).await?;
    let messages: Vec<FsckRowsResponse> = messages.into_inner().try_collect().await?;
    let (mut rows, mut summary) = (Vec::new(), None);
    for message in messages {
        match message.event.unwrap() {
            Event::Findings(findings) => rows.extend(findings.rows),
            Event::Progress(_) => {}
            Event::Summary(last) => assert!(summary.replace(last).is_none()),
        }
    }
    Ok((rows, summary.unwrap()))
}

async fn repair(stack: &TestStack, repairs: Vec<RowRepair>) -> Vec<Outcome> {
    let request = Request::new(RepairRowsRequest { repairs });
    let response = stack.service.handler.repair_rows(request).await.unwrap();
    let results = response.into_inner().results.into_iter();
    results.map(|result| result.outcome.unwrap()).collect()
}

fn inverse(repair: &RowRepair) -> RowRepair {
    let changes = repair.changes.iter().rev().map(|change| RowCellChange {
        qualifier: change.qualifier.clone(),
        old_value: change.new_value.clone(),
        old_timestamp_ms: change.new_timestamp_ms,
        new_value: change.old_value.clone(),
        new_timestamp_ms: change.old_timestamp_ms,
    });
    RowRepair {
        row_key: repair.row_key.clone(),
        changes: changes.collect(),
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_receives_the_summary() {
    let stack = stack().await;
    let rows: Vec<String> = (0..4 * MESSAGE_ROWS)
        .map(|tagv| format!("00000150473ec0000001000001000002{:06x}", 0x1000 + tagv))
        .collect();
    let cells: Vec<_> = rows.iter().map(|row| (row.as_str(), "0017", 5, "05")).collect();
    put(&stack, &cells).await;
    let handler = &stack.service.handler;
    let mut messages = handler.fsck_rows(Request::new(now())).await.unwrap().into_inner();
    // Until the other findings fill the queue, so that the summary waits when all rows have been checked.
    let mut left = rows.len();
    while let Some(message) = messages.try_next().await.unwrap() {
        if let Event::Findings(findings) = message.event.unwrap() {
            left -= findings.rows.len();
            if left <= QUEUED * findings.rows.len() {
                break;
            }
        }
    }
    while handler.fsck().start().is_none() {
        tokio::task::yield_now().await;
    }
    let last = messages.try_collect::<Vec<_>>().await.unwrap().pop();
    let last = last.unwrap().event.unwrap();
    assert!(matches!(last, Event::Summary(_)), "{last:?}");
}

#[tokio::test]
async fn repairs_findings_and_restores_every_cell() {
    let stack = stack().await;
    let (rows, summary) = check(&stack, now()).await.unwrap();
    assert_eq!((rows.len(), summary.rows, summary.cells), (0, 1, 1));
    assert!(!summary.has_other_points);
    put(
        &stack,
        &[
            (ROW, "0017", 5, "05"),
            (ROW, "00100020", 6, "060707"),
            (ROW, "03", 7, "01"),
            ("000001", "0000", 8, "01"),
        ],
    )
    .await;
    let damaged = table(&stack).await;
    let (rows, summary) = check(&stack, now()).await.unwrap();
    let counts: Vec<_> = summary
        .findings
        .iter()
        .map(|count| (count.r#type(), count.count))
        .collect();
    assert_eq!(
        counts,
        [
            (pb::RowFindingType::BadKey, 1),
            (pb::RowFindingType::UnknownCell, 1),
            (pb::RowFindingType::WrongFlags, 1),
            (pb::RowFindingType::MetaByte, 1),
            (pb::RowFindingType::Duplicate, 1),
        ]
    );
    assert_eq!(table(&stack).await, damaged, "a check only reads");

    let repairs: Vec<RowRepair> = rows.into_iter().flat_map(|row| row.repairs).collect();
    let changed = Outcome::Effect(Effect::Changed.into());
    let unchanged = Outcome::Effect(Effect::Unchanged.into());
    assert_eq!(
        repair(&stack, repairs.clone()).await,
        [changed.clone(), changed.clone()]
    );
    assert_eq!(
        repair(&stack, repairs.clone()).await,
        [unchanged.clone(), unchanged]
    );
    let (rows, summary) = check(&stack, now()).await.unwrap();
    assert_eq!((rows.len(), summary.findings.len(), summary.rows), (0, 0, 1));
    let undo: Vec<RowRepair> = repairs.iter().rev().map(inverse).collect();
    assert_eq!(repair(&stack, undo).await, [changed.clone(), changed]);
    assert_eq!(table(&stack).await, damaged, "with their timestamps");
}

#[tokio::test]
async fn changes_nothing_that_differs_from_the_plan() {
    let stack = stack().await;
    put(&stack, &[(ROW, "0001", 5, "0005"), (ROW, "03", 5, "01")]).await;
    let (rows, _) = check(&stack, now()).await.unwrap();
    let repairs: Vec<RowRepair> = rows.into_iter().flat_map(|row| row.repairs).collect();
    put(&stack, &[(ROW, "03", 6, "02")]).await;
    let before = table(&stack).await;
    let outcomes = repair(&stack, repairs).await;
    let [Outcome::Error(error)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(
        (error.reason(), error.retryable),
        (ErrorReason::StateChanged, false)
    );
    assert!(error.message.contains("cell 03 of row"), "{}", error.message);
    assert_eq!(table(&stack).await, before);
}

#[tokio::test]
async fn options_select_rows_and_repairs() {
    let stack = stack().await;
    write(&stack, T + 7200).await;
    let later = "0000015047 5ae0000001000001000002000002".replace(' ', "");
    put(&stack, &[(ROW, "0001", 5, "0005"), (&later, "0001", 5, "0005")]).await;
    let all = check(&stack, now()).await.unwrap().0;
    assert_eq!(all.len(), 2);
    let of_metric = FsckRowsRequest {
        metric: "sys.cpu.nice".to_owned(),
        ..now()
    };
    assert_eq!(check(&stack, of_metric).await.unwrap().0, all);
    let resumed = FsckRowsRequest {
        start_after_row_key: all[0].row_key.clone(),
        ..now()
    };
    assert_eq!(check(&stack, resumed).await.unwrap().0, all[1..]);
    let ms = |seconds: u32| i64::from(seconds) * 1000;
    let hour = FsckRowsRequest {
        range: Some(oxtsdb_proto::common::v1::TimeRange {
            start: Some(oxtsdb_proto::common::v1::time_range::Start::StartMs(ms(T + 3600))),
            end: Some(oxtsdb_proto::common::v1::time_range::End::EndMs(ms(T + 9000))),
        }),
        ..now()
    };
    assert_eq!(check(&stack, hour).await.unwrap().0, all[1..]);
    let keys = FsckRowsRequest {
        stop_row_key: all[1].row_key.clone(),
        ..now()
    };
    assert_eq!(check(&stack, keys).await.unwrap().0, all[..1]);
    let left = FsckRowsRequest {
        leave: vec![pb::RowFindingType::Duplicate.into()],
        ..now()
    };
    assert!(check(&stack, left).await.unwrap().0[0].repairs.is_empty());
    let removed = |row: &CheckedRow| {
        let mut changes = row.repairs[0].changes.iter();
        let removed = changes.find(|change| change.new_value.is_none()).unwrap();
        hex::encode(&removed.qualifier)
    };
    // The writer's cell has the newer timestamp.
    assert_eq!(removed(&all[0]), "0000");
    let newest = FsckRowsRequest {
        keep: DuplicateChoice::Newest.into(),
        ..now()
    };
    assert_eq!(removed(&check(&stack, newest).await.unwrap().0[0]), "0001");
    // The points were written just now.
    let (rows, summary) = check(&stack, FsckRowsRequest::default()).await.unwrap();
    assert_eq!((rows.len(), summary.left_alone), (0, 2));
}

#[tokio::test]
async fn unknown_uids_are_found_but_not_repaired() {
    let stack = stack().await;
    let orphan = ROW.replace("000002000002", "000002000009");
    put(&stack, &[(&orphan, "0000", 5, "01")]).await;
    let (rows, summary) = check(&stack, now()).await.unwrap();
    assert_eq!(summary.findings[0].r#type(), pb::RowFindingType::UnknownUid);
    assert!(rows[0].repairs.is_empty());
    let also = FsckRowsRequest {
        also_repair: vec![pb::RowFindingType::UnknownUid.into()],
        ..now()
    };
    let (rows, _) = check(&stack, also).await.unwrap();
    repair(&stack, rows[0].repairs.clone()).await;
    assert_eq!(table(&stack).await.len(), 1);
}

#[tokio::test]
async fn points_in_columns_are_not_checked() {
    let stack = TestStack::with_points().await;
    write(&stack, T).await;
    let (rows, summary) = check(&stack, now()).await.unwrap();
    assert_eq!((rows.len(), summary.rows, summary.has_other_points), (0, 0, true));
    put(&stack, &[(ROW, "03", 5, "01"), (ROW, "010000", 5, "7b")]).await;
    let (rows, _) = check(&stack, now()).await.unwrap();
    assert_eq!(rows[0].repairs[0].changes.len(), 2);
    repair(&stack, rows[0].repairs.clone()).await;
    assert_eq!(table(&stack).await.len(), 0);
}

#[tokio::test]
async fn rejects_invalid_requests_with_their_field() {
    let stack = stack().await;
    let message = async |request: FsckRowsRequest| {
        let status = check(&stack, request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_owned()
    };
    let bad_type = FsckRowsRequest {
        leave: vec![99],
        ..now()
    };
    assert_eq!(
        message(bad_type).await,
        "leave[0]: is 99, expected one of the named values"
    );
    let both = FsckRowsRequest {
        leave: vec![1],
        also_repair: vec![1],
        ..now()
    };
    assert_eq!(message(both).await, "also_repair[0]: is also in `leave`");
    let keys = FsckRowsRequest {
        start_row_key: vec![2].into(),
        stop_row_key: vec![1].into(),
        ..now()
    };
    assert_eq!(message(keys).await, "stop_row_key: is not after start_row_key");
    let long = FsckRowsRequest {
        grace_period: Some(prost_types::Duration {
            seconds: 8 * 24 * 3600,
            nanos: 0,
        }),
        ..FsckRowsRequest::default()
    };
    assert_eq!(message(long).await, "grace_period: is not 0 to 7 days");
    let unknown = FsckRowsRequest {
        metric: "nope".to_owned(),
        ..now()
    };
    assert_eq!(check(&stack, unknown).await.unwrap_err().code(), Code::NotFound);

    let request = Request::new(RepairRowsRequest::default());
    let status = stack.service.handler.repair_rows(request).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::BatchTooLarge));
    let change = RowCellChange {
        qualifier: vec![3].into(),
        ..RowCellChange::default()
    };
    let repairs = vec![
        RowRepair::default(),
        RowRepair {
            row_key: vec![1].into(),
            changes: Vec::new(),
        },
        RowRepair {
            row_key: vec![1].into(),
            changes: vec![change.clone(), change],
        },
    ];
    let messages: Vec<String> = repair(&stack, repairs)
        .await
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Error(error) => error.message,
            Outcome::Effect(effect) => panic!("{effect}"),
        })
        .collect();
    assert_eq!(
        messages,
        [
            "repairs[0].row_key: is empty",
            "repairs[1].changes: has no items, at least 1 is needed",
            "repairs[2].changes[1]: is a cell that another change has",
        ]
    );
}

#[tokio::test]
async fn one_check_runs_at_a_time() {
    let stack = stack().await;
    let permit = stack.service.handler.fsck().start().unwrap();
    let status = check(&stack, now()).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::Overloaded));
    drop(permit);
    check(&stack, now()).await.unwrap();
    tokio::time::sleep(Duration::ZERO).await;
    check(&stack, now()).await.unwrap();
}
