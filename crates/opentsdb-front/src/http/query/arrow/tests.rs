use oxtsdb_arrow_stream::MEDIA_TYPE;
use oxtsdb_arrow_stream::testing::{TableRow, read, read_batches};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use serde_json::{Value as Json, json};
use uid_service::UidSettings;

const T: i64 = 1_356_998_400;

async fn put(service: &Service, points: Json) {
    let response = service.post("/api/put?details", points.to_string()).await;
    assert_eq!(response.status, 200, "{}", response.text());
}

fn point(metric: &str, second: i64, value: Json, host: &str) -> Json {
    json!({"metric": metric, "timestamp": T + second, "value": value, "tags": {"host": host, "dc": "lga"}})
}

async fn two_hosts() -> Service {
    let service = Service::start().await;
    let points = json!([
        point("m", 0, json!(0.5), "a"),
        point("m", 10, json!(2.5), "a"),
        point("m", 0, json!(i64::MAX), "b"),
        point("n", 0, json!(7), "b"),
    ]);
    put(&service, points).await;
    service
}

async fn get(service: &Service, query: &str) -> HttpResponse {
    let head = format!(
        "GET /api/query?start={T}&end={}&{query} HTTP/1.1\r\nAccept: {MEDIA_TYPE}\r\n",
        T + 3600
    );
    service.request(head, b"").await
}

fn rows(response: &HttpResponse) -> Vec<TableRow> {
    assert_eq!(response.header("content-type"), Some(MEDIA_TYPE));
    read(&response.body).unwrap()
}

fn row(series: i32, second: i64, value: f64, host: &str) -> TableRow {
    TableRow {
        metric: "m".to_owned(),
        timestamp_ms: (T + second) * 1000,
        value: Some(value),
        integer: None,
        tags: [("dc", "lga"), ("host", host)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        query: 0,
        series,
    }
}

#[tokio::test]
async fn a_result_has_a_row_for_each_point() {
    let service = two_hosts().await;
    let response = get(&service, "m=none:m&m=sum:n").await;
    let mut rows = rows(&response);
    for row in &mut rows {
        row.tags.sort();
    }
    let integer = |metric: &str, integer: i64| TableRow {
        metric: metric.to_owned(),
        integer: Some(integer),
        ..row(1, 0, integer as f64, "b")
    };
    let expected = [
        row(0, 0, 0.5, "a"),
        row(0, 10, 2.5, "a"),
        integer("m", i64::MAX),
        TableRow {
            query: 1,
            series: 2,
            ..integer("n", 7)
        },
    ];
    assert_eq!(rows, expected);
    assert!(
        response.header("content-length").is_some(),
        "a small result is sent whole"
    );
}

#[tokio::test]
async fn a_posted_query_has_the_same_result() {
    let service = two_hosts().await;
    let body = json!({
        "start": T, "end": T + 3600, "queries": [{"aggregator": "sum", "metric": "m", "tags": {"host": "*"}}]
    })
    .to_string();
    let head = format!("POST /api/query HTTP/1.1\r\nAccept: {MEDIA_TYPE}\r\n");
    let posted = service.request(head, body.as_bytes()).await;
    assert_eq!(rows(&posted), rows(&get(&service, "m=sum:m%7Bhost=*%7D").await));
    assert_eq!(rows(&posted).len(), 3);
}

#[tokio::test]
async fn an_error_has_opentsdbs_form() {
    let service = two_hosts().await;
    let unknown = get(&service, "m=sum:x").await;
    assert_eq!(unknown.status, 400);
    assert_eq!(
        unknown.json()["error"]["message"],
        "No such name for 'metrics': 'x'"
    );
    // The first sub-query has a result.
    put(
        &service,
        json!([
            point("large", 0, json!(1.7e308), "a"),
            point("large", 0, json!(1.7e308), "b")
        ]),
    )
    .await;
    let infinite = get(&service, "m=sum:m&m=sum:large").await;
    assert_eq!(infinite.status, 400, "{}", infinite.text());
}

#[tokio::test]
async fn a_result_without_points_has_no_rows() {
    let service = two_hosts().await;
    let target = format!("start={}&m=sum:m", T + 1800);
    assert_eq!(rows(&get(&service, &target).await), []);
}

#[tokio::test]
async fn nan_is_null_or_left_out_as_in_json() {
    let service = two_hosts().await;
    let values = async |service: &Service, fill: &str| {
        let response = get(service, &format!("m=sum:10s-avg-{fill}:n&end={}", T + 20)).await;
        let values = rows(&response).into_iter().map(|row| row.value);
        values.collect::<Vec<_>>()
    };
    let nan = values(&service, "nan").await;
    assert!(
        nan.len() > 1 && nan[0] == Some(7.0) && nan[1].unwrap().is_nan(),
        "{nan:?}"
    );
    let null = values(&service, "null").await;
    assert_eq!((null.len(), null[0], null[1]), (nan.len(), Some(7.0), None));

    let mut settings = DataSettings::default();
    settings.http.http_omit_nan = true;
    let service = Service::start_with(settings, UidSettings::default()).await;
    put(&service, json!([point("n", 0, json!(7), "b")])).await;
    assert_eq!(values(&service, "nan").await, [Some(7.0)]);
}

#[tokio::test]
async fn a_large_result_has_batches_of_bounded_size() {
    let mut settings = DataSettings::default();
    settings.http.http_buffer_results = true;
    let service = Service::start_with(settings, UidSettings::default()).await;
    for host in ["a", "b"] {
        for from in [0, 10_000] {
            let points = (from..from + 10_000).map(|second| point("m", second, json!(second), host));
            put(&service, points.collect()).await;
        }
    }
    let response = get(&service, &format!("m=none:m&end={}", T + 20_000)).await;
    let batches = read_batches(&response.body).unwrap();
    let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
    assert_eq!(sizes, [8192, 8192, 8192, 8192, 7232]);
    let rows = batches.concat();
    let of_host = |series: i32| rows.iter().filter(move |row| row.series == series);
    for series in 0..2 {
        let integers: Vec<_> = of_host(series).map(|row| row.integer).collect();
        assert_eq!(integers, (0..20_000).map(Some).collect::<Vec<_>>());
    }
}
