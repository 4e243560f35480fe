//! Histograms over gRPC: writes, and queries of them.

use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::common::v1::{ErrorReason, SeriesName, Tag, TimeRange, time_range};
use oxtsdb_proto::data::v1::data_service_server::DataService as _;
use oxtsdb_proto::data::v1::query_response::Frame;
use oxtsdb_proto::data::v1::query_response::histogram_part::Part;
use oxtsdb_proto::data::v1::sub_query::{HistogramResults, MetricSource, Source};
use oxtsdb_proto::data::v1::{
    AggregateFunction, HistogramBounds, QueryRequest, SubQuery, TimeUnit, WriteOptions, histogram,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_test_stack::TestStack;
use uid_service::UidSettings;

use super::*;

const T: i64 = 1_356_998_400;

async fn stack() -> TestStack {
    let mut settings = DataSettings::default();
    let config = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;
    settings.histograms.histograms_config = Some(config.to_owned());
    TestStack::with(settings, UidSettings::default()).await
}

fn histogram_with_counts(counts: &[(f32, f32, i64)]) -> pb::Histogram {
    let bucket = |(lower, upper, count): &(f32, f32, i64)| histogram::Bucket {
        bounds: Some(HistogramBounds {
            lower: *lower,
            upper: *upper,
        }),
        count: *count,
    };
    pb::Histogram {
        buckets: counts.iter().map(bucket).collect(),
        underflow: 2,
        overflow: 7,
    }
}

fn series(host: &str, histograms: Vec<(i64, pb::Histogram)>) -> HistogramSeries {
    let (timestamps, histograms) = histograms.into_iter().unzip();
    let tag = Tag {
        key: "host".to_owned(),
        value: host.to_owned(),
    };
    HistogramSeries {
        series: Some(SeriesMessage::Name(SeriesName {
            metric: "m".to_owned(),
            tags: vec![tag],
        })),
        timestamps,
        histograms,
    }
}

fn request(series: Vec<HistogramSeries>) -> Request<WriteHistogramsRequest> {
    Request::new(WriteHistogramsRequest {
        series,
        options: Some(WriteOptions {
            time_unit: TimeUnit::Seconds.into(),
            ..WriteOptions::default()
        }),
    })
}

#[tokio::test]
async fn writes_opentsdbs_bytes_and_reports_failures_by_place() {
    let stack = stack().await;
    let handler = &stack.service.handler;
    let good = histogram_with_counts(&[(1.0, 2.5, 300), (0.0, 1.0, 5)]);
    let series = vec![
        series("web01", vec![(T + 5, good.clone()), (-1, good.clone())]),
        series("", vec![(T, good)]),
    ];
    let response = handler
        .write_histograms(request(series))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((response.written, response.failed), (1, 2));
    let failures = response.failures.unwrap();
    assert_eq!(failures.permanent.unwrap().first, [1]);
    let errors: Vec<u64> = failures.errors.iter().map(|error| error.first).collect();
    assert_eq!(errors, [1, 2]);
    assert_eq!(
        oxtsdb_test_stack::cells(&stack.store, "tsdb").await,
        ["00000150e22700000001000001 t:060005 2a0002000000003f800000053f80000040200000ac020207"]
    );
}

#[tokio::test]
async fn rejects_requests_that_cannot_be_stored() {
    let stack = stack().await;
    let handler = &stack.service.handler;
    let reason = async |series: Vec<HistogramSeries>| {
        let error = handler.write_histograms(request(series)).await.unwrap_err();
        (error.code(), reason_of(&error), error.message().to_owned())
    };
    let (code, why, _) = reason(Vec::new()).await;
    assert_eq!(
        (code, why),
        (Code::InvalidArgument, Some(ErrorReason::BatchTooLarge))
    );
    let mut uneven = series("a", vec![(T, histogram_with_counts(&[]))]);
    uneven.timestamps.push(T);
    let (code, _, message) = reason(vec![uneven]).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(message.contains("2 timestamps and 1 histograms"), "{message}");
    let unconfigured = TestStack::with(DataSettings::default(), UidSettings::default()).await;
    let good = request(vec![series("a", vec![(T, histogram_with_counts(&[]))])]);
    let error = unconfigured
        .service
        .handler
        .write_histograms(good)
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&error), Some(ErrorReason::HistogramsNotConfigured));
}

#[tokio::test]
async fn queries_return_percentiles_and_buckets_of_groups() {
    let stack = stack().await;
    let handler = &stack.service.handler;
    let of_a = series(
        "a",
        vec![
            (T, histogram_with_counts(&[(0.0, 1.0, 1)])),
            (T + 10, histogram_with_counts(&[(0.0, 1.0, 2)])),
        ],
    );
    let of_b = series("b", vec![(T + 10, histogram_with_counts(&[(1.0, 3.0, 6)]))]);
    handler.write_histograms(request(vec![of_a, of_b])).await.unwrap();
    let query = |results: HistogramResults| {
        Request::new(QueryRequest {
            range: Some(TimeRange {
                start: Some(time_range::Start::StartMs(T * 1000)),
                end: Some(time_range::End::EndMs(T * 1000 + 60_000)),
            }),
            queries: vec![SubQuery {
                source: Some(Source::Metric(MetricSource {
                    metric: "m".to_owned(),
                    ..MetricSource::default()
                })),
                aggregator: Some(AggregateFunction::Sum.into()),
                histograms: Some(results),
                ..SubQuery::default()
            }],
            ..QueryRequest::default()
        })
    };
    let results = HistogramResults {
        percentiles: vec![50.0],
        buckets: true,
    };
    let frames = handler.query(query(results)).await.unwrap().into_inner();
    let frames: Vec<_> = frames.try_collect().await.unwrap();
    let (mut series, mut ints, mut doubles) = (Vec::new(), Vec::new(), Vec::new());
    for frame in frames.into_iter().filter_map(|frame| frame.frame) {
        match frame {
            Frame::Series(head) => series.push((head.metric, head.histogram_part.unwrap().part.unwrap())),
            Frame::Points(points) if points.values.is_empty() => ints.push(points.int_values),
            Frame::Points(points) => doubles.push(points.values),
            Frame::Done(done) => assert_eq!(done.series_count, 4),
            Frame::Statistics(statistics) => assert_eq!((statistics.points, statistics.series), (3, 2)),
            Frame::Annotations(_) => panic!("no annotations are requested"),
        }
    }
    let bucket = Part::Bucket(HistogramBounds {
        lower: 0.0,
        upper: 1.0,
    });
    let expected = [
        ("m_pct_50.0", Part::Percentile(50.0)),
        ("m_UNDERFLOW", Part::Underflow(true)),
        ("m_0.0_1.0", bucket),
        ("m_OVERFLOW", Part::Overflow(true)),
    ];
    assert_eq!(series, expected.map(|(name, part)| (name.to_owned(), part)));
    assert_eq!(doubles, [[0.5, 2.0]]);
    assert_eq!(ints, [[2, 4], [1, 2], [7, 14]]);
    let wrong = HistogramResults {
        percentiles: vec![101.0],
        buckets: false,
    };
    let error = handler.query(query(wrong)).await.err().unwrap();
    assert!(
        error
            .message()
            .contains("queries[0].histograms: Invalid percentile"),
        "{}",
        error.message()
    );
}
