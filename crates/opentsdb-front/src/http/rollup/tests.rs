use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;
use serde_json::{Value, json};
use uid_service::UidSettings;

/// The configuration of the vectors.
const CONFIG: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
    "intervals": [
        {"table": "tsdb", "preAggregationTable": "r1m-agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
        {"table": "r1h", "preAggregationTable": "r1h-agg", "interval": "1h", "rowSpan": "1d"},
        {"table": "r1d", "preAggregationTable": "r1d-agg", "interval": "1d", "rowSpan": "1n"}
    ]}"#;

const T: i64 = 1_356_998_400;

fn settings() -> DataSettings {
    let mut settings = DataSettings::default();
    settings.rollups.rollups_config = Some(CONFIG.to_owned());
    settings
}

async fn service() -> Service {
    Service::start_with(settings(), UidSettings::default()).await
}

/// Services with points in rows and in columns.
async fn services() -> [Service; 2] {
    let columns = TestStack::with_points_and(settings()).await;
    [service().await, Service::from_stack(columns).await]
}

/// A value of host `a`.
fn value(interval: &str, aggregator: &str, offset: i64, value: impl Into<Value>) -> Value {
    json!({"metric": "sys.cpu.user", "timestamp": T + offset, "value": value.into(), "tags": {"host": "web01"},
        "interval": interval, "aggregator": aggregator})
}

async fn write(service: &Service, values: &[Value]) {
    let response = service
        .post("/api/rollup?details", serde_json::to_vec(values).unwrap())
        .await;
    assert_eq!(response.status, 200, "{}", response.text());
}

/// The table and the points of the groups of a query over two days.
async fn query(service: &Service, m: &str) -> Vec<(String, Vec<(i64, f64)>)> {
    let target = format!("/api/query?start={T}&end={}&m={m}&show_query", T + 172_799);
    let response = service.get(&target).await;
    assert_eq!(response.status, 200, "{m}: {}", response.text());
    let groups = response.json();
    let groups = groups.as_array().unwrap().iter().map(|group| {
        let table = group["query"]["rollupTable"].as_str().unwrap().to_owned();
        let points = group["dps"].as_object().unwrap().iter();
        let points = points.map(|(time, value)| (time.parse::<i64>().unwrap() - T, value.as_f64().unwrap()));
        (table, points.collect())
    });
    groups.collect()
}

fn one(table: &str, points: &[(i64, f64)]) -> Vec<(String, Vec<(i64, f64)>)> {
    vec![(table.to_owned(), points.to_vec())]
}

#[tokio::test]
async fn stores_rollups_byte_for_byte_as_opentsdb() {
    let service = service().await;
    let mut group = value("1h", "sum", 7200, 70_000);
    group["groupByAggregator"] = json!("max");
    let pre_aggregate = json!({"metric": "sys.cpu.user", "timestamp": T + 61, "value": 9, "tags": {"host": "web01"},
        "groupByAggregator": "sum"});
    write(
        &service,
        &[
            value("1h", "sum", 0, 42),
            value("1h", "count", 18_000, 60),
            value("1h", "SUM", 82_859, 3.5),
            pre_aggregate,
            group,
            value("1m", "min", 120, -9),
        ],
    )
    .await;
    let row = "00000150e22700000001000001";
    let cells = async |table| oxtsdb_test_stack::cells(&service.store, table).await;
    assert_eq!(
        cells("r1h").await,
        [
            format!("{row} t:000000 2a"),
            format!("{row} t:00017f 400c000000000000"),
            format!("{row} t:010050 3c"),
        ]
    );
    assert_eq!(cells("r1m-agg").await, [format!("{row}000002000002 t:03d0 09")]);
    assert_eq!(
        cells("r1h-agg").await,
        [format!("{row}000002000003 t:000023 00011170")]
    );
    assert_eq!(service.cells().await, [format!("{row} t:020020 f7")]);
}

#[tokio::test]
async fn queries_read_the_rollups_of_the_longest_interval() {
    for service in services().await {
        let put = r#"{"metric":"sys.cpu.user","timestamp":1356998401,"value":7,"tags":{"host":"web01"}}"#;
        assert_eq!(service.post("/api/put", put).await.status, 204);
        let mut values = Vec::new();
        for hour in 0..48 {
            values.push(value("1h", "sum", hour * 3600, hour * 10));
            values.push(value("1h", "count", hour * 3600, hour % 3));
            values.push(value("1h", "max", hour * 3600, hour));
        }
        write(&service, &values).await;
        let hours = |of: fn(i64) -> f64| (0..48).map(|hour| (hour * 3600, of(hour))).collect::<Vec<_>>();
        assert_eq!(
            query(&service, "sum:1h-sum:sys.cpu.user").await,
            one("1h", &hours(|hour| (hour * 10) as f64))
        );
        // Two hours are a multiple of an hour: of 1, 2 and 0 counts, 10 to 470 in all.
        assert_eq!(
            query(&service, "sum:2h-count:sys.cpu.user").await[0].1[..3],
            [(0, 1.0), (7200, 2.0), (14_400, 3.0)]
        );
        // (0 + 10) / 1, (20 + 30) / 2, (40 + 50) / 3.
        assert_eq!(
            query(&service, "sum:2h-avg:sys.cpu.user").await[0].1[..3],
            [(0, 10.0), (7200, 25.0), (14_400, 30.0)]
        );
        // Nothing was counted.
        assert_eq!(query(&service, "sum:1h-avg:sys.cpu.user").await[0].1[0], (0, 0.0));
        assert_eq!(
            query(&service, "max:12h-mimmax:sys.cpu.user{host=*}").await,
            one(
                "1h",
                &[(0, 11.0), (43_200, 23.0), (86_400, 35.0), (129_600, 47.0)]
            )
        );
        // Points, not rollups.
        for m in [
            "sum:1m-sum:sys.cpu.user",
            "sum:90m-sum:sys.cpu.user",
            "sum:rollup_raw:1h-sum:sys.cpu.user",
        ] {
            assert_eq!(query(&service, m).await[0].0, "raw", "{m}");
        }
        assert_eq!(query(&service, "sum:sys.cpu.user").await, one("raw", &[(1, 7.0)]));
    }
}

#[tokio::test]
async fn rollups_without_series_fall_back_as_requested() {
    for service in services().await {
        let put = r#"{"metric":"sys.cpu.user","timestamp":1356998401,"value":7,"tags":{"host":"web01"}}"#;
        assert_eq!(service.post("/api/put", put).await.status, 204);
        assert_eq!(query(&service, "sum:1d-sum:sys.cpu.user").await, []);
        let fallback = "sum:rollup_fallback:1d-sum:sys.cpu.user";
        assert_eq!(query(&service, fallback).await, one("raw", &[(0, 7.0)]));
        let raw = "sum:rollup_fallback_raw:1d-sum:sys.cpu.user";
        assert_eq!(query(&service, raw).await, one("raw", &[(0, 7.0)]));
        write(
            &service,
            &[value("1h", "sum", 3600, 5), value("1h", "sum", 7200, 6)],
        )
        .await;
        assert_eq!(query(&service, fallback).await, one("1h", &[(0, 11.0)]));
        assert_eq!(query(&service, raw).await, one("raw", &[(0, 7.0)]));
        write(&service, &[value("1d", "sum", 86_400, 4)]).await;
        assert_eq!(query(&service, fallback).await, one("1d", &[(86_400, 4.0)]));
        let response = service
            .get(&format!("/api/query?start={T}&m=sum:1h-dev:sys.cpu.user"))
            .await;
        assert_eq!(response.status, 400);
        assert!(
            response.text().contains("No ID found mapping to aggregator: dev"),
            "{}",
            response.text()
        );
    }
}

#[tokio::test]
async fn queries_read_pre_aggregates_on_request() {
    let service = service().await;
    let mut group = value("1h", "sum", 3600, 100);
    group["groupByAggregator"] = json!("sum");
    let point = json!({"metric": "sys.cpu.user", "timestamp": T + 61, "value": 9, "tags": {"host": "web01"},
        "groupByAggregator": "sum"});
    write(&service, &[group, point]).await;
    let flag = query(&service, "sum:pre-agg:1h-sum:sys.cpu.user").await;
    assert_eq!(flag, one("1h", &[(3600, 100.0)]));
    let tag = query(&service, "sum:1h-sum:sys.cpu.user{_aggregate=SUM}").await;
    assert_eq!(tag, one("1h", &[(3600, 100.0)]));
    assert_eq!(
        query(&service, "sum:pre-agg:sys.cpu.user").await,
        one("raw", &[(61, 9.0)])
    );
}

#[tokio::test]
async fn errors_have_the_texts_of_opentsdb() {
    let service = service().await;
    let error = async |change: &dyn Fn(&mut Value)| {
        let mut value = value("1h", "sum", 0, 1);
        change(&mut value);
        let body = serde_json::to_vec(&value).unwrap();
        let response = service.post("/api/rollup?details", body).await;
        assert_eq!(response.status, 400);
        response.json()["errors"][0]["error"].as_str().unwrap().to_owned()
    };
    for (field, given, expected) in [
        ("interval", json!(null), "Missing interval"),
        ("aggregator", json!(""), "Missing aggregator"),
        (
            "aggregator",
            json!("avg"),
            "No ID found mapping to aggregator: avg",
        ),
        ("interval", json!("5m"), "Unexpected exception"),
        ("metric", json!(""), "Metric name was empty"),
        ("timestamp", json!(0), "Invalid timestamp"),
        ("value", json!(null), "Empty value"),
        ("value", json!("x"), "Unable to parse value to a number"),
        ("tags", json!({}), "Missing tags"),
        (
            "timestamp",
            json!(1_356_998_400_000_i64),
            "bad timestamp=1356998400000 when trying to add value=[1]/0 to metric=sys.cpu.user, tags={host=web01}",
        ),
        (
            "groupByAggregator",
            json!("avg"),
            "Derived group by aggregations are not allowed avg with metric sys.cpu.user {host=web01, _aggregate=AVG}",
        ),
        (
            "groupByAggregator",
            json!("total"),
            "Invalid group by aggregator total with metric sys.cpu.user {host=web01, _aggregate=TOTAL}",
        ),
        (
            "tags",
            json!({"_aggregate": "MAX"}),
            "Given tag value for _aggregate of MAX did not match the group by aggregator of null for sys.cpu.user \
             {_aggregate=MAX}",
        ),
    ] {
        assert_eq!(
            error(&|value| value[field] = given.clone()).await,
            expected,
            "{field}"
        );
    }
    let mixed = serde_json::to_vec(&[value("5m", "sum", 0, 1), value("1h", "sum", 0, 1)]).unwrap();
    let response = service.post("/api/rollup?summary", mixed).await;
    assert_eq!(
        (response.status, response.text()),
        (400, r#"{"success":1,"failed":1}"#)
    );
    let plain = Service::start().await;
    let body = serde_json::to_vec(&value("1h", "sum", 0, 1)).unwrap();
    let response = plain.post("/api/rollup?details", body).await;
    assert!(
        response
            .text()
            .contains("No rollup or aggregations were configured")
    );
    assert_eq!(plain.get("/api/rollup").await.status, 405);
}

#[tokio::test]
async fn damaged_rows_name_table_row_and_cell() {
    let service = service().await;
    write(&service, &[value("1h", "sum", 0, 42)]).await;
    let mut batch = oxtsdb_row_store::WriteBatch::new("r1h".parse().unwrap());
    let family = batch.family("t");
    let key = hex::decode("00000150e22700000001000001").unwrap();
    batch.row(&key).put(family, &[0, 0, 0x13], &[1]);
    service.data_store.write(batch).await.unwrap();
    let response = service
        .get(&format!("/api/query?start={T}&m=sum:1h-sum:sys.cpu.user"))
        .await;
    let text = response.text();
    for part in ["table `r1h`", "row `00000150E22700000001000001`", "cell `000013`"] {
        assert!(response.status == 500 && text.contains(part), "{text}");
    }
}
