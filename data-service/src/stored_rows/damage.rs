//! Cells and row keys that cannot be decoded: each is an error with its table, row key and qualifier, and no result
//! omits them silently.

use std::collections::HashMap;

use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, series_key};
use oxtsdb_proto::data::v1::QueryLastRequest;
use oxtsdb_proto::data::v1::query_last_request::{Target, target};
use oxtsdb_proto::error::reason_of;
use oxtsdb_query::language::time::now_ms;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;

async fn tsdb() -> Tsdb {
    Tsdb::start(
        DataSettings::default(),
        UidSettings::default(),
        &["m"],
        &["host", "dc"],
        &["a", "b"],
    )
    .await
}

fn metadata(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_damaged_cell_is_an_error_with_its_place() {
    let row = "00000150e22700000001000001";
    let damaged: [(Cell, &str, &str); 7] = [
        // V70
        (
            ("000b", "ffffffff40200000", 1),
            "000B",
            "expected its first 4 bytes to be zero",
        ),
        (
            ("0000", "010203040506070809", 1),
            "0000",
            "has a value of 9 bytes",
        ),
        (("f0007d01", "01", 1), "F0007D01", "has 1 bytes"),
        // Values that end early, of one type and of several, and that do not end.
        (("000000100020", "0102", 1), "000000100020", "found 2"),
        (("000000110020", "0102", 1), "000000110020", "found 2"),
        (("00000010", "01020304", 1), "00000010", "found 4"),
        (
            ("050000", "00000100a101", 1),
            "050000",
            "ends within the point at byte 3",
        ),
    ];
    for (cell, qualifier, what) in damaged {
        let tsdb = tsdb().await;
        tsdb.plant(row, &[cell, ("0fa0", "01", 1)]).await;
        let status = tsdb.query("m", "host").await.unwrap_err();
        assert_eq!(status.code(), Code::DataLoss, "{status}");
        assert_eq!(reason_of(&status), Some(ErrorReason::CorruptCell));
        assert!(status.message().contains(what), "{status}");
        let row_key = row.to_uppercase();
        let place = metadata(&[("table", "tsdb"), ("row_key", &row_key), ("qualifier", qualifier)]);
        assert_eq!(status.get_details_error_info().unwrap().metadata, place);

        let over_http = tsdb.http_query("m", "host", "a").await;
        assert_eq!(over_http.status, 500);
        assert!(over_http.text().contains(&row_key) && over_http.text().contains(what));

        // ScanRows returns the damaged cell with its error, and all others.
        let rows = tsdb.scan("m").await;
        let errors: Vec<_> = rows[0]
            .cells
            .iter()
            .filter_map(|cell| cell.error.as_ref())
            .collect();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].metadata, place);
        assert_eq!(rows[0].cells.len(), 2);
    }
}

/// In the current hour: `QueryLast` looks back for a year at most.
#[tokio::test]
async fn a_damaged_last_point_is_an_error_of_its_target() {
    let tsdb = tsdb().await;
    let hour = now_ms() / 1000 / 3600 * 3600;
    let row = format!("000001{hour:08x}000001000001");
    tsdb.plant(&row, &[("000000100020", "0102", 1)]).await;
    let targets = [vec![0, 0, 1, 0, 0, 1, 0, 0, 1], vec![0, 0, 1, 0, 0, 1, 0, 0, 2]].map(|tsuid| Target {
        target: Some(target::Target::Series(SeriesKey {
            key: Some(series_key::Key::Tsuid(tsuid.into())),
        })),
    });
    let request = QueryLastRequest {
        targets: targets.to_vec(),
        ..QueryLastRequest::default()
    };
    let messages = tsdb.grpc.clone().query_last(request).await.unwrap().into_inner();
    let messages: Vec<_> = messages.try_collect().await.unwrap();
    let errors: Vec<_> = messages.iter().flat_map(|message| &message.errors).collect();
    let [failed] = errors[..] else {
        panic!("{messages:?}")
    };
    let error = failed.error.as_ref().unwrap();
    assert_eq!((failed.target, error.reason()), (0, ErrorReason::CorruptCell));
    let row_key = row.to_uppercase();
    let place = [
        ("table", "tsdb"),
        ("row_key", &row_key),
        ("qualifier", "000000100020"),
    ];
    assert_eq!(error.metadata, metadata(&place));
}

#[tokio::test]
async fn an_invalid_row_key_is_an_error_with_its_place() {
    for (row, what) in [
        // Of other UID widths, without tags, tags in descending order, not at the start of an hour.
        ("00000150e227000000010001", "expected a multiple of 6"),
        ("00000150e22700", "has no tags"),
        ("00000150e22700000002000001000001000001", "tag"),
        ("00000150e22701000001000001", "expected a multiple of 3600"),
    ] {
        let tsdb = tsdb().await;
        tsdb.plant(row, &[("0000", "01", 1)]).await;
        let status = tsdb.query("m", "host").await.unwrap_err();
        assert_eq!(status.code(), Code::DataLoss, "{row}: {status}");
        assert!(status.message().contains(what), "{row}: {status}");
        let row_key = row.to_uppercase();
        let place = metadata(&[("table", "tsdb"), ("row_key", &row_key), ("qualifier", "")]);
        assert_eq!(status.get_details_error_info().unwrap().metadata, place);
        let rows = tsdb.scan("m").await;
        assert_eq!(rows.len(), 1, "ScanRows returns it");
    }
}
