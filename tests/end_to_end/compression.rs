//! gzip: both services accept it, respond without it, and bound what a message decompresses to.

use oxtsdb_proto::common::v1::{ErrorReason, UidKind};
use oxtsdb_proto::data::v1::tree_service_client::TreeServiceClient;
use oxtsdb_proto::data::v1::{
    AggregateFunction, ListTreesRequest, QueryRequest, TimeSeries, WriteRequest, time_series,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_tests::read_back::{always, call_error, sub_query};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::{any_time, write_request};
use oxtsdb_tests::{Options, Tsdb};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Bytes of a message that gzip reduces to less than a mebibyte.
const BOMB_BYTES: usize = 48 << 20;

/// The limit of both services.
const LIMIT_BYTES: u64 = 16 << 20;

fn is_gzip(metadata: &MetadataMap) -> bool {
    metadata
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding == "gzip")
}

#[tokio::test(flavor = "multi_thread")]
async fn both_services_accept_gzip_and_respond_without() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let samples = [Sample::int("zipped", &[("host", "a")], 1_500_000_000_000, 1)];
    let mut data = tsdb.data().send_compressed(Gzip).accept_compressed(Gzip);
    let response = data.write(write_request(&samples)).await?;
    assert!(!is_gzip(response.metadata()), "{:?}", response.metadata());
    assert_eq!(response.into_inner().written, 1);

    let names = GetOrCreateUidsRequest {
        names: vec![UidName {
            kind: UidKind::Metric.into(),
            name: "zipped".to_owned(),
            tag_key: String::new(),
        }],
        explicit: false,
        ..Default::default()
    };
    let mut uid = tsdb.uids().send_compressed(Gzip).accept_compressed(Gzip);
    let response = uid.get_or_create_uids(names).await?;
    assert!(!is_gzip(response.metadata()), "{:?}", response.metadata());
    assert!(!response.into_inner().results[0].created);

    // Look-ups too, which have a limit of their own.
    let mut trees = TreeServiceClient::new(tsdb.data_channel()).send_compressed(Gzip);
    let response = trees.list_trees(ListTreesRequest::default()).await?;
    assert!(response.into_inner().trees.is_empty());

    let query = QueryRequest {
        range: Some(always()),
        queries: vec![sub_query("zipped", AggregateFunction::Sum)],
        ..QueryRequest::default()
    };
    let mut stream = data.query(query).await?;
    assert!(!is_gzip(stream.metadata()), "{:?}", stream.metadata());
    assert!(stream.get_mut().message().await?.is_some());
    Ok(())
}

fn is_too_large(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(
        reason_of(status),
        Some(ErrorReason::MessageTooLarge),
        "{status:?}"
    );
    assert!(status.get_details_retry_info().is_none(), "{status:?}");
    let info = status.get_details_error_info();
    let limit = info.and_then(|info| info.metadata.get("limit").cloned());
    assert_eq!(limit, Some(LIMIT_BYTES.to_string()), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_gzip_bombs_without_decompressing_them() -> anyhow::Result<()> {
    let options = Options::default().flag("--memory-limit-mib", "256");
    let mut tsdb = Tsdb::start_with(options).await?;
    let before = tsdb.process().peak_memory()?;
    let bomb = TimeSeries {
        series: Some(time_series::Series::Tsuid(vec![0; BOMB_BYTES].into())),
        ..TimeSeries::default()
    };
    let request = WriteRequest {
        series: vec![bomb],
        options: Some(any_time()),
    };
    let mut data = tsdb.data().send_compressed(Gzip);
    for _ in 0..3 {
        is_too_large(&call_error(data.write(request.clone()).await)?);
    }
    drop(request);
    let request = GetOrCreateUidsRequest {
        names: vec![UidName {
            kind: UidKind::Metric.into(),
            name: "x".repeat(BOMB_BYTES),
            tag_key: String::new(),
        }],
        explicit: false,
        ..Default::default()
    };
    let mut uid = tsdb.uids().send_compressed(Gzip);
    is_too_large(&call_error(uid.get_or_create_uids(request).await)?);
    let grown = tsdb.process().peak_memory()?.saturating_sub(before);
    assert!(grown < 96 << 20, "{grown} bytes");
    Ok(())
}
