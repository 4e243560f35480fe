use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::{PointRuns, TimeSeries, TimestampPrecision, time_series};

use super::*;

/// Points of one series without values.
fn series(metric: &str, tags: &[(&str, &str)], timestamps: &[i64]) -> TimeSeries {
    let tags = tags.iter().map(|(key, value)| Tag {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    let name = SeriesName {
        metric: metric.to_owned(),
        tags: tags.collect(),
    };
    TimeSeries {
        series: Some(time_series::Series::Name(name)),
        timestamps: timestamps.to_vec(),
        ..TimeSeries::default()
    }
}

fn ints(metric: &str, tags: &[(&str, &str)], timestamps: &[i64], values: &[i64]) -> TimeSeries {
    TimeSeries {
        int_values: values.to_vec(),
        ..series(metric, tags, timestamps)
    }
}

fn doubles(metric: &str, tags: &[(&str, &str)], timestamps: &[i64], values: &[f64]) -> TimeSeries {
    TimeSeries {
        values: values.to_vec(),
        ..series(metric, tags, timestamps)
    }
}

fn request(series: Vec<TimeSeries>) -> WriteRequest {
    WriteRequest {
        series,
        options: Some(options()),
    }
}

const HOST: [(&str, &str); 1] = [("host", "a")];

#[tokio::test]
async fn stores_good_points_and_lists_bad_ones() {
    let stack = TestStack::start().await;
    let all = vec![
        ints("m", &HOST, &[1000, 0], &[1, 1]),
        ints("", &HOST, &[1000], &[1]),
        series("m", &HOST, &[1000]),
        doubles("m", &HOST, &[1000, 1500], &[f64::NAN, 0.5]),
        TimeSeries {
            series: None,
            ..ints("m", &HOST, &[1000, 2000], &[1, 1])
        },
        doubles("m", &HOST, &[2000], &[4.2]),
    ];
    let mut client = stack.client();
    let response = client.write(request(all.clone())).await.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (3, 6));
    let failures = response.failures.unwrap();
    let expected = [
        (
            1,
            1,
            ErrorReason::InvalidTimestamp,
            "timestamp 0 ms is out of range, expected 1 to 4294967295999",
        ),
        (2, 1, ErrorReason::InvalidName, "metric: name is empty"),
        (
            3,
            1,
            ErrorReason::InvalidField,
            "1 timestamps and 0 values, expected one value for each timestamp",
        ),
        (4, 1, ErrorReason::InvalidValue, "value is NaN or Infinite: NaN"),
        (6, 2, ErrorReason::InvalidField, "series is missing"),
    ];
    assert_eq!(errors(&failures), expected);
    let runs = PointRuns {
        first: vec![1, 6],
        count: vec![4, 2],
    };
    assert_eq!(failures.permanent, Some(runs.clone()));
    assert_eq!(failures.retryable, None);
    let expected = [
        "00000100000000000001000001 t:0010 01",
        "00000100000000000001000001 t:002f 4010cccccccccccd",
        "00000100000000000001000001 t:f001770b 3f000000",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);

    let by_tsuid = TimeSeries {
        series: Some(time_series::Series::Tsuid(vec![0, 0, 1, 0, 0, 1, 0, 0, 1].into())),
        ..ints("", &[], &[1000], &[1])
    };
    let response = client.write(request(vec![by_tsuid])).await.unwrap().into_inner();
    assert_eq!((response.written, response.failures), (1, None));
    assert_eq!(stack.cells("tsdb").await, expected, "the same cell by its TSUID");

    for (max_errors, described) in [(2, 2), (0, 0)] {
        let request = WriteRequest {
            series: all.clone(),
            options: Some(pb::WriteOptions {
                max_errors: Some(max_errors),
                ..options()
            }),
        };
        let response = client.write(request).await.unwrap().into_inner();
        let failures = response.failures.unwrap();
        assert_eq!((response.failed, failures.errors.len()), (6, described));
        assert_eq!(failures.permanent, Some(runs.clone()), "all points are listed");
    }
}

#[tokio::test]
async fn unit_and_precision_decide_the_qualifier() {
    let stack = TestStack::start().await;
    let write = async |time_unit: TimeUnit, precision: TimestampPrecision, timestamp| {
        let request = WriteRequest {
            series: vec![ints("m", &HOST, &[timestamp], &[1])],
            options: Some(pb::WriteOptions {
                time_unit: time_unit.into(),
                precision: precision.into(),
                ..options()
            }),
        };
        stack.client().write(request).await.unwrap().into_inner().written
    };
    let (seconds, milliseconds) = (TimeUnit::Seconds, TimeUnit::Milliseconds);
    assert_eq!(
        write(milliseconds, TimestampPrecision::Milliseconds, 1000).await,
        1
    );
    assert_eq!(write(milliseconds, TimestampPrecision::Seconds, 2000).await, 1);
    assert_eq!(write(milliseconds, TimestampPrecision::Seconds, 2001).await, 0);
    assert_eq!(write(seconds, TimestampPrecision::Auto, 3).await, 1);
    assert_eq!(write(seconds, TimestampPrecision::Milliseconds, 4).await, 1);
    let expected = [
        "00000100000000000001000001 t:0020 01",
        "00000100000000000001000001 t:0030 01",
        "00000100000000000001000001 t:f000fa00 01",
        "00000100000000000001000001 t:f003e800 01",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
}

#[tokio::test]
async fn rejects_implausible_times() {
    let stack = TestStack::start().await;
    let write = async |time_unit: TimeUnit, timestamp| {
        let request = WriteRequest {
            series: vec![ints("m", &HOST, &[timestamp], &[1])],
            options: Some(pb::WriteOptions {
                time_unit: time_unit.into(),
                ..pb::WriteOptions::default()
            }),
        };
        let response = stack.client().write(request).await.unwrap().into_inner();
        let failures = response.failures.unwrap_or_default();
        let error = failures.errors.first();
        error.map(|error| error.error.clone().unwrap())
    };
    assert_eq!(write(TimeUnit::Milliseconds, 1_700_000_000_000).await, None);
    assert_eq!(write(TimeUnit::Seconds, 1_700_000_000).await, None);
    let seconds = write(TimeUnit::Milliseconds, 1_700_000_000).await.unwrap();
    assert_eq!(seconds.reason(), ErrorReason::ImplausibleTimestamp);
    assert!(seconds.message.contains("1970-01-20T16:13:20Z"), "{seconds:?}");
    assert!(seconds.message.contains("correct the time_unit"), "{seconds:?}");
    let milliseconds = write(TimeUnit::Seconds, 1_700_000_000_000).await.unwrap();
    assert_eq!(milliseconds.reason(), ErrorReason::InvalidTimestamp);
    assert_eq!(
        milliseconds.message,
        "timestamp 1700000000000 s is out of range, expected 1 to 4294967295"
    );
    assert_eq!(stack.cells("tsdb").await.len(), 1, "one instant in both units");
}

#[tokio::test]
async fn requires_a_time_unit() {
    let stack = TestStack::start().await;
    for options in [None, Some(pb::WriteOptions::default())] {
        let request = WriteRequest {
            series: vec![ints("m", &HOST, &[1000], &[1])],
            options,
        };
        let status = stack.client().write(request).await.unwrap_err();
        assert_eq!(
            status.message(),
            "options.time_unit: is not given, expected TIME_UNIT_SECONDS or TIME_UNIT_MILLISECONDS"
        );
    }
    let status = stack
        .client()
        .write_columns(WriteColumnsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
}

#[tokio::test]
async fn accepts_1_to_100000_points() {
    let stack = TestStack::start().await;
    for count in [0, 100_001_usize] {
        let timestamps: Vec<i64> = (1..).take(count).collect();
        let series = ints("m", &HOST, &timestamps, &vec![1; count]);
        let status = stack.client().write(request(vec![series])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(reason_of(&status), Some(ErrorReason::BatchTooLarge));
        assert_eq!(
            status.message(),
            format!("series: has {count} points, expected 1 to 100000")
        );
    }
    let timestamps: Vec<i64> = (1..=100_000).collect();
    let series = ints("m", &HOST, &timestamps, &vec![1; 100_000]);
    let response = stack.client().write(request(vec![series])).await.unwrap();
    assert_eq!(response.into_inner().written, 100_000);
}

#[tokio::test]
async fn rejects_a_message_over_the_limit() {
    let mut settings = DataSettings::default();
    settings.connections.max_message_mib = 1;
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let series = ints(&"n".repeat(2 << 20), &HOST, &[1000], &[1]);
    let status = stack.client().write(request(vec![series])).await.unwrap_err();
    // The server's layers, which are not part of this stack, replace code and reason.
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn stores_cached_series_without_the_uid_service() {
    let (stack, gate) = Gate::uid_stack().await;
    gate.release(1);
    let known = ints("m", &HOST, &[1000], &[1]);
    let unknown = ints("m", &[("host", "new")], &[1000, 2000], &[1, 2]);
    let mut client = stack.client();
    let response = client.write(request(vec![known.clone()])).await.unwrap();
    assert_eq!(response.into_inner().written, 1);
    let both = request(vec![unknown.clone(), known]);
    let response = client.write(both).await.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (1, 2));
    let failures = response.failures.unwrap();
    assert_eq!(
        failures.retryable,
        Some(PointRuns {
            first: vec![0],
            count: vec![2]
        })
    );
    assert_eq!(failures.permanent, None);
    let status = client.write(request(vec![unknown])).await.unwrap_err();
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::UidServiceUnavailable),
        "{status:?}"
    );
}
