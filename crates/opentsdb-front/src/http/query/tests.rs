use std::collections::BTreeMap;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::Service;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uid_service::UidSettings;

const T: u32 = 1_356_998_400;

async fn put(service: &Service, points: Value) {
    let response = service.post("/api/put?details", points.to_string()).await;
    assert_eq!(response.status, 200, "{}", response.text());
}

fn point(second: u32, value: Value, host: &str) -> Value {
    json!({"metric": "m", "timestamp": T + second, "value": value, "tags": {"host": host, "dc": "lga"}})
}

async fn two_hosts() -> Service {
    let service = Service::start().await;
    let points = json!([
        point(0, json!(1), "a"),
        point(10, json!(2.5), "a"),
        point(0, json!(10), "b"),
        point(10, json!(20), "b")
    ]);
    put(&service, points).await;
    service
}

fn body(changes: Value) -> String {
    let mut body = json!({
        "start": T, "end": T + 3600, "queries": [{"aggregator": "sum", "metric": "m", "tags": {"host": "*"}}]
    });
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

#[tokio::test]
async fn responses_have_opentsdbs_form() {
    let service = two_hosts().await;
    let a = r#"{"metric":"m","tags":{"dc":"lga","host":"a"},"aggregateTags":[],"dps":{"1356998400":1.0,"1356998410":2.5}}"#;
    let b = r#"{"metric":"m","tags":{"dc":"lga","host":"b"},"aggregateTags":[],"dps":{"1356998400":10,"1356998410":20}}"#;
    let both = format!("[{a},{b}]");
    let response = service.post("/api/query", body(json!({}))).await;
    assert_eq!((response.status, response.text()), (200, both.as_str()));
    assert_eq!(
        response.header("content-type"),
        Some("application/json; charset=UTF-8")
    );
    let target = format!("/api/query?start={T}&end={}&m=sum:m%7Bhost=*%7D", T + 3600);
    assert_eq!(service.get(&target).await.text(), both);

    let sum = r#"[{"metric":"m","tags":{"dc":"lga"},"aggregateTags":["host"],"dps":[[1356998400000,11.0],[1356998410000,22.5]]}]"#;
    let response = service
        .get(&format!(
            "/api/query?start={T}&end={}&m=sum:m&arrays&ms",
            T + 3600
        ))
        .await;
    assert_eq!(response.text(), sum);
    let plain = json!({"queries": [{"aggregator": "sum", "metric": "m"}], "msResolution": "true"});
    assert_eq!(service.post("/api/query?arrays", body(plain)).await.text(), sum);

    let response = service.post("/api/query?jsonp=f", body(json!({}))).await;
    assert_eq!(response.text(), format!("f({both})"));
}

#[tokio::test]
async fn returns_tsuids_and_statistics_on_request() {
    let service = two_hosts().await;
    let all = json!({"showTSUIDs": true, "showStats": true, "showSummary": true});
    let response = service.post("/api/query", body(all)).await.json();
    assert_eq!(response[0]["tsuids"], json!(["000001000001000001000002000002"]));
    assert_eq!(response[1]["stats"], json!({"emittedDPs": 2, "queryIndex": 0}));
    let summary = &response[2]["statsSummary"];
    assert_eq!(summary["emittedDPs"], json!(4));
    assert!(summary["totalTime"].is_f64());

    let tsuid = response[0]["tsuids"][0].as_str().unwrap().to_lowercase();
    let target = format!(
        "/api/query?start={T}&end={}&tsuid=none:{tsuid}&show_tsuids",
        T + 3600
    );
    let by_tsuid = service.get(&target).await.json();
    assert_eq!(by_tsuid.as_array().unwrap().len(), 1);
    assert_eq!(by_tsuid[0]["dps"], response[0]["dps"]);
}

#[tokio::test]
async fn responses_repeat_their_sub_queries() {
    let service = two_hosts().await;
    let defaults = r#""explicitTags":false,"useFuzzyFilter":true,"preAggregate":false,"rollupUsage":null,"rollupTable":"raw","showHistogramBuckets":false,"useMultiGets":true"#;
    let shown = async |response: String| {
        let start = response.find("\"query\":").unwrap() + "\"query\":".len();
        let end = response.find(",\"dps\"").unwrap();
        response[start..end].to_owned()
    };
    let query = json!({"aggregator": "sum", "metric": "m", "downsample": "1m-avg", "rate": true, "tags": {"host": "*"}});
    let changes = json!({"showQuery": true, "queries": [query]});
    let response = service.post("/api/query", body(changes)).await;
    assert_eq!(
        shown(response.text().to_owned()).await,
        format!(
            r#"{{"aggregator":"sum","metric":"m","tsuids":null,"downsample":"1m-avg","rate":true,"filters":[{{"tagk":"host","filter":"*","group_by":true,"type":"wildcard"}}],"percentiles":null,"index":0,"rateOptions":null,"filterTagKs":["AAAC"],{defaults},"tags":{{"host":"wildcard(*)"}},"histogramQuery":false}}"#
        )
    );
    let target = format!(
        "/api/query?start={T}&end={}&show_query&m=sum:rate%7Bcounter,,5%7D:m%7Bhost=a%7D%7Bdc=lga%7D",
        T + 3600
    );
    assert_eq!(
        shown(service.get(&target).await.text().to_owned()).await,
        format!(
            r#"{{"aggregator":"sum","metric":"m","tsuids":null,"downsample":null,"rate":true,"filters":[{{"tagk":"dc","filter":"lga","group_by":false,"type":"literal_or"}},{{"tagk":"host","filter":"a","group_by":true,"type":"literal_or"}}],"percentiles":null,"index":0,"rateOptions":{{"counter":true,"counterMax":9223372036854775807,"resetValue":5,"dropResets":false}},"filterTagKs":["AAAB","AAAC"],{defaults},"tags":{{"host":"literal_or(a)"}},"histogramQuery":false}}"#
        )
    );
    let tsuid = "000001000001000001000002000002";
    let target = format!(
        "/api/query?start={T}&end={}&show_query&tsuid=sum:{tsuid}",
        T + 3600
    );
    assert_eq!(
        shown(service.get(&target).await.text().to_owned()).await,
        format!(
            r#"{{"aggregator":"sum","metric":null,"tsuids":["{tsuid}"],"downsample":null,"rate":false,"filters":[],"percentiles":null,"index":0,"rateOptions":null,"filterTagKs":null,{defaults},"tags":{{}},"histogramQuery":false}}"#
        )
    );
    // A source that another one overrides is repeated too.
    for (query, sources) in [
        (
            json!({"metric": "m", "tsuids": []}),
            r#""metric":"m","tsuids":[]"#.to_owned(),
        ),
        (
            json!({"metric": "nosuch", "tsuids": [tsuid]}),
            format!(r#""metric":"nosuch","tsuids":["{tsuid}"]"#),
        ),
    ] {
        let mut query = query;
        query["aggregator"] = json!("sum");
        let changes = json!({"showQuery": true, "queries": [query]});
        let response = service.post("/api/query", body(changes)).await;
        let shown = shown(response.text().to_owned()).await;
        assert!(shown.contains(&sources), "{shown}");
    }
}

#[tokio::test]
async fn rejects_invalid_queries() {
    let service = two_hosts().await;
    for (changes, message) in [
        (json!({"start": null}), "Missing start time"),
        (json!({"start": ""}), "Missing start time"),
        (
            json!({"start": "x"}),
            "Invalid time: x. Invalid character 'x' in x",
        ),
        (
            json!({"start": T, "end": T}),
            "End time [1356998400000] must be greater than the start time [1356998400000]",
        ),
        (json!({"queries": []}), "Missing queries"),
        (
            json!({"queries": [{"metric": "m"}]}),
            "Missing the aggregation function",
        ),
        (
            json!({"queries": [{"aggregator": "bogus", "metric": "m"}]}),
            "No such aggregation function: bogus",
        ),
        (
            json!({"queries": [{"aggregator": "sum"}]}),
            "Missing the metric or tsuids, provide at least one",
        ),
        (
            json!({"queries": [{"aggregator": "sum", "metric": "x"}]}),
            "No such name for 'metrics': 'x'",
        ),
        (
            json!({"queries": [{"aggregator": "sum", "metric": "m", "tags": {"x": "*"}}]}),
            "No such name for 'tagk': 'x'",
        ),
        (
            json!({"queries": [{"aggregator": "sum", "metric": "m", "tags": {"host": "a|x"}}]}),
            "No such name for 'tagv': 'x'",
        ),
        (
            json!({"queries": [{"aggregator": "sum", "metric": "m", "downsample": "1m"}]}),
            "Invalid downsampling specifier '1m': must provide at least interval and function",
        ),
        (json!({"queries": {}}), "Unable to parse the given JSON"),
        (json!({"queries": [1]}), "Unable to parse the given JSON"),
        (json!({"msResolution": "maybe"}), "Unable to parse the given JSON"),
        (json!({"delete": true}), "Bad request"),
        (
            json!({"queries": [{"aggregator": "sum", "tsuids": ["000001"]}]}),
            "UID was empty",
        ),
        (
            json!({"queries": [{"aggregator": "sum", "metric": "m", "filters": [
                {"type": "regexp", "tagk": "host", "filter": "(a{100}){1000}"}]}]}),
            "Invalid regexp filter '(a{100}){1000}': is a program of more than 131072 bytes, ask for fewer \
             repetitions",
        ),
        (
            json!({"timezone": "+05:00", "start": "2013/01/01"}),
            "Invalid timezone name: +05:00",
        ),
    ] {
        let response = service.post("/api/query", body(changes.clone())).await;
        let actual = response.json()["error"]["message"].clone();
        assert_eq!((response.status, actual), (400, json!(message)), "{changes}");
    }
    for (filter, details) in [
        (
            json!({"type": "bogus", "tagk": "host", "filter": "a"}),
            "Could not find a tag value filter of the type: bogus",
        ),
        (
            json!({"type": "wildcard", "tagk": "host", "filter": "a"}),
            "Filter must contain an asterisk",
        ),
        (
            json!({"type": "literal_or", "tagk": "host", "filter": "|"}),
            "Filter must contain more than just a pipe",
        ),
        (
            json!({"type": "regexp", "tagk": "host", "filter": "(a)\\1"}),
            "Invalid regexp filter '(a)\\1': has a back reference, which is not supported",
        ),
        (
            json!({"type": "literal_or", "tagk": "", "filter": "a"}),
            "The tagk cannot be null or empty",
        ),
        (
            json!({"type": "literal_or", "tagk": "host"}),
            "Filter cannot be null or empty",
        ),
    ] {
        let queries = json!([{"aggregator": "sum", "metric": "m", "filters": [filter]}]);
        let response = service
            .post("/api/query", body(json!({"queries": queries})))
            .await;
        let error = &response.json()["error"];
        assert_eq!(
            (response.status, &error["message"]),
            (400, &json!("Unable to parse the given JSON"))
        );
        assert_eq!(error["details"], json!(details));
    }
    for (parameters, status, message) in [
        ("", 400, "Missing parameter <code>start</code>"),
        ("start=1h-ago", 400, "Missing sub queries"),
        (
            "start=x&m=bogus:m",
            400,
            "Invalid time: x. Invalid character 'x' in x",
        ),
        (
            "start=1h-ago&m=bogus:m",
            400,
            "No such aggregation function: bogus",
        ),
        ("start=1h-ago&m=", 400, "The query string was empty"),
        (
            "start=1h-ago&m=sum",
            400,
            "Invalid parameter m=sum (not enough :-separated parts)",
        ),
        ("start=x&m=sum:m%7Bhost", 400, "Missing '}' at the end of: m{host"),
        (
            "start=1h-ago&m=sum:m%7Bhost%7D",
            400,
            "When parsing tag 'host': invalid tag: host",
        ),
        (
            "start=1h-ago&m=sum:m%7B%7D%7Bhost=wildcard(a)%7D",
            400,
            "When parsing filter 'host=wildcard(a)': Filter must contain an asterisk",
        ),
        ("start=1h-ago&m=sum:", 400, "Metric cannot be null or empty"),
        ("start=1h-ago&tsuid=sum:00", 400, "begin 0, end 6, length 2"),
        (
            "start=1h-ago&tsuid=sum:000001000001000001,000002000001000001",
            400,
            "One or more TSUIDs did not share the same metric [000001] [000002]",
        ),
        ("start=1969/01/01&m=sum:m", 400, "Invalid timestamp: -31536000000"),
        (
            "start=1h-ago&end=99999999999999&m=sum:m",
            400,
            "Invalid timestamp: 99999999999999",
        ),
    ] {
        let response = service.get(&format!("/api/query?{parameters}")).await;
        let actual = response.json()["error"]["message"].clone();
        assert_eq!(
            (response.status, actual),
            (status, json!(message)),
            "{parameters}"
        );
    }
    for (body, message) in [
        ("{}", "Missing queries"),
        ("null", "Missing query, found null"),
        (r#"{"start":1,"queries":null}"#, "Missing queries"),
    ] {
        let response = service.post("/api/query", body).await;
        let actual = response.json()["error"]["message"].clone();
        assert_eq!((response.status, actual), (400, json!(message)), "{body}");
    }
    let response = service.post("/api/query", "").await;
    assert_eq!(
        response.text(),
        r#"{"error":{"code":400,"message":"Missing message content","details":"Supply valid JSON formatted data in the body of your request"}}"#
    );
    let response = service
        .request("DELETE /api/query HTTP/1.1\r\n".to_owned(), b"")
        .await;
    assert_eq!(
        response.text(),
        r#"{"error":{"code":400,"message":"Bad request","details":"Deleting data is not enabled (tsd.http.query.allow_delete=false)"}}"#
    );
}

#[tokio::test]
async fn duplicate_timestamps_fail_unless_fix_duplicates_is_set() {
    let points = json!([point(0, json!(1), "a"), point(0, json!(300), "a")]);
    let service = Service::start().await;
    put(&service, points.clone()).await;
    let response = service.post("/api/query", body(json!({}))).await;
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(response.status, 400);
    assert!(
        message.starts_with("Duplicate timestamp for key=[0, 0, 1, 80, -30, 39, 0, 0, 0, 1,"),
        "{message}"
    );
    assert!(
        message.ends_with("; set tsd.storage.fix_duplicates=true to fix automatically or run Fsck"),
        "{message}"
    );

    let mut settings = DataSettings::default();
    settings.queries.fix_duplicates = true;
    let service = Service::start_with(settings, UidSettings::default()).await;
    put(&service, json!([point(0, json!(1), "a")])).await;
    put(&service, json!([point(0, json!(300), "a")])).await;
    let response = service.post("/api/query", body(json!({}))).await;
    assert_eq!(response.status, 200, "{}", response.text());
}

#[tokio::test]
async fn rejects_queries_above_the_point_limit() {
    let mut settings = DataSettings::default();
    settings.queries.query_max_points = Some(3);
    let service = Service::start_with(settings, UidSettings::default()).await;
    let points: Vec<Value> = (0..10).map(|second| point(second, json!(1), "a")).collect();
    put(&service, json!(points)).await;
    let response = service.post("/api/query", body(json!({}))).await;
    assert_eq!(response.status, 413);
    assert_eq!(
        response.json()["error"]["message"],
        "Sorry, you have attempted to fetch more than our limit of 3 data points. Please try \
         filtering using more tags or decrease your time range."
    );
}

#[tokio::test]
async fn deletes_the_points_of_a_query_where_that_is_allowed() {
    let target = |to: u32| format!("/api/query?start={T}&end={}&m=sum:m%7Bhost=*%7D", T + to);
    let dps = |response: &Value| -> Vec<usize> {
        let groups = response.as_array().unwrap().iter();
        groups
            .map(|group| group["dps"].as_object().unwrap().len())
            .collect()
    };
    let request = async |service: &Service, method: &str, target: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\n");
        service.request(head, b"").await
    };
    let service = two_hosts().await;
    let refused = request(&service, "DELETE", &target(5)).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["message"].as_str()),
        (400, Some("Bad request"))
    );
    let read = service
        .get(&format!("{}&method_override=delete", target(5)))
        .await;
    assert_eq!((read.status, dps(&read.json())), (200, vec![1, 1]));
    assert_eq!(dps(&service.get(&target(60)).await.json()), [2, 2], "only read");

    let mut settings = DataSettings::default();
    settings.http.http_allow_delete = true;
    for deletes in [("DELETE", ""), ("GET", "&method_override=DELETE"), ("POST", "")] {
        let service = Service::start_with(settings.clone(), UidSettings::default()).await;
        let points: Vec<Value> = (0..4).map(|index| point(index * 5, json!(index), "a")).collect();
        put(&service, json!(points)).await;
        let response = match deletes {
            ("POST", _) => {
                service
                    .post("/api/query", body(json!({"end": T + 5, "delete": true})))
                    .await
            }
            (method, parameters) => request(&service, method, &format!("{}{parameters}", target(5))).await,
        };
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(
            dps(&response.json()),
            [2],
            "the result has what is deleted: {deletes:?}"
        );
        let left = service.get(&target(60)).await.json();
        assert_eq!(
            left[0]["dps"],
            json!({"1356998410": 2, "1356998415": 3}),
            "{deletes:?}"
        );
    }
    let service = Service::start_with(settings, UidSettings::default()).await;
    put(&service, json!([point(0, json!(1), "a")])).await;
    for path in ["/api/query/last", "/api/query/exp", "/api/query/gexp"] {
        assert_eq!(request(&service, "DELETE", path).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn lists_aggregators_and_filters() {
    let service = Service::start().await;
    let aggregators = service.get("/api/aggregators").await.json();
    let names: Vec<&str> = aggregators
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    for name in ["sum", "min", "max", "avg", "count", "none"] {
        assert!(names.contains(&name), "{name}");
    }
    let filters = service.get("/api/config/filters").await.json();
    assert!(filters["literal_or"]["examples"].is_string());
}

/// An element of a response, in a form that compares as OpenTSDB's clients compare.
#[derive(Debug, PartialEq, PartialOrd, Deserialize)]
struct Element {
    metric: String,
    tags: BTreeMap<String, String>,
    #[serde(rename = "aggregateTags")]
    aggregate_tags: Vec<String>,
    dps: Text,
}

/// JSON text, which keeps repeated keys and the type of numbers. Doubles compare by value, since Java 17 prints
/// some of them with one digit more than needed.
#[derive(Debug, PartialEq, PartialOrd)]
struct Text(String);

impl Text {
    fn from_json(json: &str) -> Text {
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | 'E');
        let mut text = String::new();
        let mut rest = json;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            match number.parse::<f64>() {
                Ok(double) if number.contains('.') => text.push_str(&format!("{double:?}")),
                _ => text.push_str(number),
            }
            let end = after.find(is_number).unwrap_or(after.len());
            let (between, next) = after.split_at(end);
            text.push_str(between);
            rest = next;
        }
        Text(text)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Text::from_json(raw.get()))
    }
}

fn elements(text: &str) -> Vec<Element> {
    let mut elements: Vec<Element> =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for element in &mut elements {
        element.aggregate_tags.sort();
    }
    elements.sort_by(|a, b| a.partial_cmp(b).unwrap());
    elements
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    points: Vec<Box<RawValue>>,
    query: Box<RawValue>,
    response: Box<RawValue>,
}

#[tokio::test]
async fn recorded_queries_return_the_recorded_responses() {
    let vectors = include_str!("../../../testdata/opentsdb-query-vectors.jsonl");
    let service = Service::start().await;
    let mut wrong = Vec::new();
    for line in vectors.lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        for point in &vector.points {
            let response = service.post("/api/put", point.get()).await;
            assert_eq!(response.status, 204, "{}: {}", vector.name, response.text());
        }
        let response = service.post("/api/query", vector.query.get()).await;
        assert_eq!(response.status, 200, "{}: {}", vector.name, response.text());
        if elements(response.text()) != elements(vector.response.get()) {
            wrong.push(format!(
                "{}\n  is  {}\n  not {}",
                vector.name,
                response.text(),
                vector.response.get()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Grafana's server decodes the points of a result as numbers: it takes `"NaN"` for an error, and `null` for 0.
#[tokio::test]
async fn points_without_a_value_are_omitted_if_set() {
    let mut settings = DataSettings::default();
    settings.http.http_omit_nan = true;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let points = [10, 30].map(|second| point(second, json!(1.5), "a"));
    put(&service, json!(points)).await;
    for fill in ["nan", "null", "none"] {
        let query = format!("start={T}&end={}&m=sum:10s-sum-{fill}:m", T + 50);
        let as_map = service.get(&format!("/api/query?{query}")).await;
        let as_arrays = service.get(&format!("/api/query?{query}&arrays")).await;
        let (first, last) = (T + 10, T + 30);
        let expected = json!({first.to_string(): 1.5, last.to_string(): 1.5});
        assert_eq!(as_map.json()[0]["dps"], expected, "{fill}: {}", as_map.text());
        let expected = json!([[first, 1.5], [last, 1.5]]);
        assert_eq!(as_arrays.json()[0]["dps"], expected, "{fill}");
    }
}
