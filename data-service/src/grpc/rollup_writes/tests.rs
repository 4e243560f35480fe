use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::data_service_server::DataService as _;
use oxtsdb_proto::data::v1::{TimeUnit, WriteOptions};
use oxtsdb_proto::error::reason_of;
use oxtsdb_test_stack::TestStack;
use uid_service::UidSettings;

use super::*;

const T: i64 = 1_356_998_400;

async fn stack() -> TestStack {
    let mut settings = DataSettings::default();
    let config = r#"{"aggregationIds": {"sum": 0, "count": 1}, "intervals": [
        {"table": "tsdb", "preAggregationTable": "r1m-agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
        {"table": "r1h", "preAggregationTable": "r1h-agg", "interval": "1h", "rowSpan": "1d"}]}"#;
    settings.rollups.rollups_config = Some(config.to_owned());
    TestStack::with(settings, UidSettings::default()).await
}

fn series(aggregate: [&str; 3], values: &[(i64, i64)]) -> RollupSeries {
    let [interval, aggregator, group_by] = aggregate.map(str::to_owned);
    let tag = Tag {
        key: "host".to_owned(),
        value: "a".to_owned(),
    };
    RollupSeries {
        name: Some(SeriesName {
            metric: "m".to_owned(),
            tags: vec![tag],
        }),
        interval,
        aggregator,
        group_by,
        timestamps: values.iter().map(|(time, _)| *time).collect(),
        values: Vec::new(),
        int_values: values.iter().map(|(_, value)| *value).collect(),
    }
}

fn request(unit: TimeUnit, series: Vec<RollupSeries>) -> Request<WriteRollupsRequest> {
    Request::new(WriteRollupsRequest {
        series,
        options: Some(WriteOptions {
            time_unit: unit.into(),
            ..WriteOptions::default()
        }),
    })
}

#[tokio::test]
async fn stores_the_cells_of_opentsdb() {
    let stack = stack().await;
    let doubles = RollupSeries {
        values: vec![3.5],
        int_values: Vec::new(),
        ..series(["1h", "sum", ""], &[(T + 7200, 0)])
    };
    let all = vec![
        series(["1h", "sum", ""], &[(T, 42), (T + 3605, 300)]),
        series(["1h", "COUNT", "Max"], &[(T, 7)]),
        series(["", "", "sum"], &[(T + 61, 9)]),
        doubles,
    ];
    let response = stack
        .service
        .handler
        .write_rollups(request(TimeUnit::Seconds, all))
        .await;
    let response = response.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (5, 0));
    let row = "00000150e22700000001000001";
    assert_eq!(
        stack.cells("r1h").await,
        [
            format!("{row} t:000000 2a"),
            format!("{row} t:000011 012c"),
            format!("{row} t:00002b 40600000"),
        ]
    );
    assert_eq!(
        stack.cells("r1h-agg").await,
        [format!("{row}000002000002 t:010000 07")]
    );
    assert_eq!(
        stack.cells("r1m-agg").await,
        [format!("{row}000002000003 t:03d0 09")]
    );
}

#[tokio::test]
async fn values_fail_by_themselves() {
    let stack = stack().await;
    let all = vec![
        series(["5m", "sum", ""], &[(T * 1000, 1)]),
        series(["1h", "sum", ""], &[(T * 1000, 1), (T * 1000 + 1, 1), (0, 1)]),
        series(["1h", "avg", ""], &[(T * 1000, 1)]),
        RollupSeries {
            values: vec![f64::NAN],
            int_values: Vec::new(),
            ..series(["1h", "sum", ""], &[(T * 1000, 0)])
        },
    ];
    let response = stack
        .service
        .handler
        .write_rollups(request(TimeUnit::Milliseconds, all))
        .await;
    let response = response.unwrap().into_inner();
    assert_eq!((response.written, response.failed), (1, 5));
    let errors = response.failures.unwrap().errors;
    let messages: Vec<_> = errors
        .iter()
        .map(|error| error.error.as_ref().unwrap().message.as_str())
        .collect();
    for (message, expected) in messages.iter().zip([
        "No rollups configured for the interval: 5m",
        "whole second",
        "out of range",
        "No ID found mapping to aggregator: avg",
        "NaN",
    ]) {
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn errors_name_field_and_rule() {
    let stack = stack().await;
    let error = async |series: Vec<RollupSeries>| {
        let response = stack
            .service
            .handler
            .write_rollups(request(TimeUnit::Seconds, series))
            .await;
        let status = response.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_owned()
    };
    let valid = || series(["1h", "sum", ""], &[(T, 1)]);
    let unnamed = RollupSeries {
        name: None,
        ..valid()
    };
    assert!(error(vec![unnamed]).await.contains("series[0].name"));
    let both = RollupSeries {
        values: vec![1.0],
        ..valid()
    };
    assert!(error(vec![valid(), both]).await.contains("series[1]"));
    let fewer = RollupSeries {
        int_values: Vec::new(),
        ..valid()
    };
    assert!(error(vec![fewer]).await.contains("1 timestamps and 0 values"));
    assert!(error(Vec::new()).await.contains("expected 1 to 10000"));

    let without = TestStack::start().await;
    let response = without
        .service
        .handler
        .write_rollups(request(TimeUnit::Seconds, vec![valid()]))
        .await;
    let status = response.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&status), Some(ErrorReason::RollupsNotConfigured));
}
