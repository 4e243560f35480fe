//! Requests as their bytes, beside the same requests decoded.

use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::{TimeSeries, time_series};
use oxtsdb_proto::decode_request;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use prost::Message as _;

use super::*;
use crate::test_handlers::data_handler;

fn series() -> impl Strategy<Value = TimeSeries> {
    let text = || prop_oneof![8 => "[ab]{1,2}", 1 => "[a é日]{0,3}"];
    let tags = vec((text(), text()), 0..4);
    let name = (text(), tags).prop_map(|(metric, tags)| {
        let tags = tags.into_iter().map(|(key, value)| Tag { key, value });
        let tags = tags.collect();
        time_series::Series::Name(SeriesName { metric, tags })
    });
    let tsuid = prop_oneof![Just(vec![0, 0, 1, 0, 0, 1, 0, 0, 1]), vec(0..2_u8, 0..10)];
    let tsuid = tsuid.prop_map(|tsuid| time_series::Series::Tsuid(tsuid.into()));
    let key = prop_oneof![6 => name.prop_map(Some), 2 => tsuid.prop_map(Some), 1 => Just(None)];
    let timestamp = prop_oneof![4 => 1..9_i64, 1 => any::<i64>()];
    (key, vec(timestamp, 0..4), any::<(u8, i64, f64)>()).prop_map(
        |(series, timestamps, (form, int, double))| {
            let count = timestamps.len();
            let (ints, doubles) = match form % 8 {
                0..=2 => (count, 0),
                3..=5 => (0, count),
                6 => (count + 1, 0),
                _ => (1, 1),
            };
            TimeSeries {
                series,
                timestamps,
                int_values: vec![int; ints],
                values: vec![double; doubles],
            }
        },
    )
}

/// An encoded request with some bytes changed.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), 0..2_usize, vec(any::<u8>(), 0..2));
    let options = (0..9_i32, prop::bool::weighted(0.9), 0..5_u32).prop_map(|(unit, allow_any_time, max)| {
        pb::WriteOptions {
            time_unit: unit.min(2),
            allow_any_time,
            max_errors: Some(max),
            ..options()
        }
    });
    let options = prop_oneof![1 => Just(None), 8 => options.prop_map(Some)];
    let request = (vec(series(), 0..5), options);
    (request, vec(change, 0..3), prop::bool::weighted(0.4)).prop_map(
        |((series, options), changes, is_changed)| {
            let mut message = WriteRequest { series, options }.encode_to_vec();
            for (place, removed, inserted) in changes.into_iter().filter(|_| is_changed) {
                let place = place.index(message.len() + 1);
                let end = (place + removed).min(message.len());
                message.splice(place..end, inserted);
            }
            message
        },
    )
}

/// `Write` of a decoded request.
async fn write_decoded(
    service: &DataServiceHandler,
    request: WriteRequest,
) -> Result<Response<WriteResponse>, Status> {
    let received = Received::from_request(request);
    let known = known(&service.writer, received.points());
    let caller = caller_of(&Request::new(()));
    store(service, &caller, received, known, None).await
}

/// Code, message and details of an error.
type Outcome = Result<pb::WriteResponse, (Code, String, Vec<u8>)>;

fn outcome(result: Result<Response<WriteResponse>, Status>) -> Outcome {
    result.map(Response::into_inner).map_err(|status| {
        (
            status.code(),
            status.message().to_owned(),
            status.details().to_vec(),
        )
    })
}

#[tokio::test]
async fn encoded_and_decoded_requests_have_equal_outcomes() {
    let (one, other) = (TestStack::start().await, TestStack::start().await);
    let mut runner = TestRunner::default();
    let (mut written, mut failed, mut rejected) = (0, 0, 0);
    for _ in 0..1500 {
        let message: Bytes = message().new_tree(&mut runner).unwrap().current().into();
        let decoded = match decode_request(message.clone()) {
            Ok(decoded) => write_decoded(&data_handler(&one), decoded).await,
            Err(status) => Err(status),
        };
        let encoded = write(&data_handler(&other), Request::new(message.clone())).await;
        let (decoded, encoded) = (outcome(decoded), outcome(encoded));
        assert_eq!(encoded, decoded, "{message:?}");
        match encoded {
            Ok(response) => {
                written += response.written;
                failed += response.failed;
            }
            Err(_) => rejected += 1,
        }
    }
    assert!(
        written > 200 && failed > 300 && rejected > 100,
        "{written} {failed} {rejected}"
    );
    for table in ["tsdb", "tsdb-uid", "tsdb-meta"] {
        assert_eq!(other.cells(table).await, one.cells(table).await, "{table}");
    }
}

#[tokio::test]
async fn large_requests_are_decoded_in_the_pool() {
    let stack = TestStack::start().await;
    let series = |number: i64| TimeSeries {
        series: Some(time_series::Series::Name(SeriesName {
            metric: "m".to_owned(),
            tags: vec![Tag {
                key: "host".to_owned(),
                value: "a".to_owned(),
            }],
        })),
        timestamps: vec![1_700_000_000_000 + number; 10],
        int_values: vec![number; 10],
        ..TimeSeries::default()
    };
    let request = WriteRequest {
        series: (0..10_000).map(series).collect(),
        options: Some(options()),
    };
    let response = stack.client().write(request.clone()).await.unwrap().into_inner();
    assert_eq!((response.written, response.failures), (100_000, None));
    let cut = request.encode_to_vec();
    let cut = Bytes::copy_from_slice(&cut[..cut.len() - 1]);
    let status = write(&data_handler(&stack), Request::new(cut)).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::MalformedMessage));
}
