use oxtsdb_data_settings::DataSettings;
use oxtsdb_resources::ClientId;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;
use serde_json::{Value, json};

use super::*;

/// Two hosts with points some seconds ago and one with an old point, in rows.
async fn service() -> (Service, i64) {
    service_of(TestStack::start().await).await
}

/// As [`service`], in rows and in columns.
async fn services() -> [(Service, i64); 2] {
    [service().await, service_of(TestStack::with_points().await).await]
}

async fn service_of(stack: TestStack) -> (Service, i64) {
    let service = Service::from_stack(stack).await;
    let now = now_ms() / 1000;
    // All points are in the current hour, in which their writes are counted.
    let now = now.max(now - now % 3600 + 40);
    let point = |host: &str, time: i64, value: Value| {
        let tags = json!({"host": host, "dc": "x"});
        json!({"metric": "m", "timestamp": time, "value": value, "tags": tags})
    };
    let points = json!([
        point("a", now - 40, json!(1)),
        point("a", now - 30, json!(7.5)),
        point("b", now - 20, json!(-3)),
        point("c", 1_356_998_400, json!(4)),
    ]);
    let response = service.post("/api/put?details", points.to_string()).await;
    assert_eq!(response.status, 200, "{}", response.text());
    (service, now)
}

/// Deletes the counters of the service.
async fn delete_counters(service: &Service) {
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    for tsuid in [A, B, C] {
        batch.row(&hex::decode(tsuid).unwrap()).delete_row();
    }
    service.data_store.write(batch).await.unwrap();
}

/// Writes the counter of a series, at an instant.
async fn count(service: &Service, tsuid: &str, at_ms: i64) {
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = batch.family("name");
    batch
        .row(&hex::decode(tsuid).unwrap())
        .put_at(family, b"ts_ctr", at_ms, &1_i64.to_be_bytes());
    service.data_store.write(batch).await.unwrap();
}

const A: &str = "000001000001000001000002000002";
const B: &str = "000001000001000001000002000003";
const C: &str = "000001000001000001000002000004";

/// Writes a point as a cell of table `tsdb`, past the store of columns.
async fn put_cell(service: &Service, tsuid: &str, seconds: i64, value: u8) {
    let tsuid = hex::decode(tsuid).unwrap();
    let (base, offset) = (seconds - seconds % 3600, seconds % 3600);
    let base = u32::try_from(base).unwrap().to_be_bytes();
    let qualifier = u16::try_from(offset << 4).unwrap().to_be_bytes();
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    batch
        .row(&[&tsuid[..3], &base, &tsuid[3..]].concat())
        .put(family, &qualifier, &[value]);
    service.store.write(batch).await.unwrap();
}

#[tokio::test]
async fn back_scan_reads_from_the_current_hour_back() {
    for (service, now) in services().await {
        finds_the_last_points_of_a_back_scan(service, now).await;
    }
}

async fn finds_the_last_points_of_a_back_scan(service: Service, now: i64) {
    let bare = format!(
        r#"[{{"timestamp":{},"value":"7.5","tsuid":"{A}"}}]"#,
        (now - 30) * 1000
    );
    let target = "/api/query/last?timeseries=m%7Bhost=a,dc=x%7D&back_scan=1";
    assert_eq!(service.get(target).await.text(), bare);
    assert_eq!(
        service
            .get(&format!("/api/query/last?tsuids={A}&back_scan=1"))
            .await
            .text(),
        bare
    );

    let resolved = format!(
        r#"[{{"metric":"m","timestamp":{},"value":"-3","tags":{{"dc":"x","host":"b"}},"tsuid":"{B}"}}]"#,
        (now - 20) * 1000
    );
    let query = json!({"metric": "m", "tags": {"host": "b", "dc": "x"}});
    let body = json!({"queries": [query], "resolveNames": true, "backScan": 1});
    assert_eq!(
        service.post("/api/query/last", body.to_string()).await.text(),
        resolved
    );

    for nothing in ["timeseries=m%7Bhost=a%7D", "timeseries=m%7Bhost=c,dc=x%7D"] {
        let response = service
            .get(&format!("/api/query/last?{nothing}&back_scan=2"))
            .await;
        assert_eq!((response.status, response.text()), (200, "[]"), "{nothing}");
    }
}

#[tokio::test]
async fn counters_select_the_hour_to_read() {
    for (service, now) in services().await {
        finds_the_last_points_in_counted_hours(service, now).await;
    }
}

async fn finds_the_last_points_in_counted_hours(service: Service, now: i64) {
    let last = async |what: &str| {
        let response = service.get(&format!("/api/query/last?{what}")).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let values: Vec<String> = response
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|point| point["value"].as_str().unwrap().to_owned())
            .collect();
        values.join(" ")
    };
    // C was written in this hour, but its point is in another one.
    assert_eq!(last("timeseries=m").await, "7.5 -3");
    delete_counters(&service).await;
    assert_eq!(last("timeseries=m").await, "", "nothing was counted");
    count(&service, A, (now - 30) * 1000).await;
    count(&service, B, (now - 20) * 1000).await;
    assert_eq!(last("timeseries=m").await, "7.5 -3");
    assert_eq!(last("timeseries=m%7Bhost=b%7D").await, "-3");
    assert_eq!(last(&format!("tsuids={B},{A}&back_scan=-1")).await, "-3 7.5");
    // The metric is read once, and each target has its series, in the order of the request.
    let targets =
        "timeseries=m%7Bhost=b%7D&timeseries=m&timeseries=m%7Bdc=x,host=a%7D&timeseries=m%7Bhost=b,dc=x%7D";
    assert_eq!(last(targets).await, "-3 7.5 -3 7.5 -3");
    assert_eq!(
        last(&format!("{targets}&tsuids={A}")).await,
        "-3 7.5 -3 7.5 -3 7.5"
    );
    count(&service, C, 1_356_998_400_000).await;
    assert_eq!(last("timeseries=m").await, "7.5 -3 4");
    // Each series in its own hour, in the order of the request.
    assert_eq!(last(&format!("tsuids={C},{B},{A},{B}")).await, "4 -3 7.5 -3");
    // A cell is the last point if it is newer than the others of its series.
    put_cell(&service, A, now - 29, 11).await;
    put_cell(&service, B, now - 21, 12).await;
    put_cell(&service, C, 1_356_998_401, 13).await;
    assert_eq!(last("timeseries=m").await, "11 -3 13");
    assert_eq!(last(&format!("tsuids={C},{B},{A}")).await, "13 -3 11");
    // A point that was written long after its timestamp is not found.
    count(&service, C, now * 1000).await;
    assert_eq!(last("timeseries=m").await, "11 -3");
}

#[tokio::test]
async fn rejects_invalid_requests_with_opentsdbs_messages() {
    let (service, _) = service().await;
    for (what, message) in [
        ("", "Missing sub queries"),
        ("timeseries=m&back_scan=x", "Unable to parse back_scan parameter"),
        (
            "timeseries=m&back_scan=1",
            "Tags cannot be null or empty when getting a TSUID",
        ),
        (
            "timeseries=nope&back_scan=1",
            "Tags cannot be null or empty when getting a TSUID",
        ),
        ("timeseries=nope", "No such name for 'metrics': 'nope'"),
        ("timeseries=m%7Bhost=*%7D", "No such name for 'tagv': '*'"),
        ("timeseries=m%7Bhost", "Missing '}' at the end of: m{host"),
        (
            "timeseries=m%7Bhost%7D",
            "When parsing tag 'host': invalid tag: host",
        ),
        ("timeseries=", "Metric cannot be null or empty"),
        (
            "timeseries=m&back_scan=9000",
            "Backscan is 9000 hours, at most 8784 are allowed",
        ),
    ] {
        let response = service.get(&format!("/api/query/last?{what}")).await;
        let actual = response.json()["error"]["message"].clone();
        assert_eq!((response.status, actual), (400, json!(message)), "{what}");
    }
    for (body, message) in [
        ("", "Missing message content"),
        ("{}", "Missing sub queries"),
        (
            r#"{"queries":[{"metric":"m"}],"x":1}"#,
            "Unable to parse the given JSON",
        ),
        (r#"{"queries":[{}]}"#, "Metric cannot be null or empty"),
        (
            &format!(r#"{{"queries":[{}{{}}]}}"#, "{},".repeat(10_000)),
            "query has 10001 series, at most 10000 are allowed",
        ),
        (
            &format!(r#"{{"queries":[{{"tsuids":[{}""]}}]}}"#, "\"\",".repeat(500_000)),
            "body has more than 500000 JSON values",
        ),
    ] {
        let response = service.post("/api/query/last", body).await;
        let actual = response.json()["error"]["message"].clone();
        assert_eq!((response.status, actual), (400, json!(message)), "{body:.60}");
    }
}

#[tokio::test]
async fn names_the_query_timeout() {
    let mut settings = DataSettings::default();
    settings.queries.max_concurrent_queries = 1;
    settings.queries.query_timeout_seconds = 1;
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let engine = stack.service.engine.clone();
    // A caller that runs nothing gets a permit beyond the limit, once: another one holds that, too.
    let other = RequestContext {
        client: ClientId::Principal(1),
        deadline: None,
    };
    let admit = |request| engine.admit(request, oxtsdb_query::QueryDescription::default(), None);
    let running = [
        admit(RequestContext::local(None)).await.unwrap(),
        admit(other).await.unwrap(),
    ];
    let service = Service::from_stack(stack).await;
    let response = service.get("/api/query/last?timeseries=m&back_scan=0").await;
    assert_eq!(
        (response.status, response.json()["error"]["message"].as_str()),
        (
            504,
            Some("query was not answered within 1 s, the limit of --query-timeout-seconds")
        )
    );
    drop(running);
}
