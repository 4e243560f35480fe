use oxtsdb_test_stack::service::{Service, status_for};
use serde_json::{Value, json};

/// Recorded from OpenTSDB 2.4.1; see `testdata/README.md`.
const VECTORS: &str = include_str!("../../../../testdata/opentsdb-gexp-vectors.jsonl");

fn without_tsuids(mut response: Value) -> Value {
    for series in response
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        series.remove("tsuids");
    }
    response
}

#[tokio::test]
async fn responses_match_opentsdb() {
    let (service, vectors) = Service::with_vectors(VECTORS).await;
    let mut compared = 0;
    for vector in vectors {
        let target = vector["get"].as_str().unwrap();
        let response = service.get(target).await;
        let (status, actual) = (u64::from(response.status), response.json());
        assert_eq!(status, status_for(&vector["status"]), "{target}: {actual}");
        if response.status == 200 {
            let expected = without_tsuids(vector["response"].clone());
            assert_eq!(without_tsuids(actual), expected, "{target}");
        } else {
            // OpenTSDB's details show its own objects.
            assert_eq!(
                actual["error"]["message"], vector["response"]["message"],
                "{target}"
            );
        }
        compared += 1;
    }
    assert_eq!(compared, 83);
}

#[tokio::test]
async fn rejects_other_methods_than_get() {
    let service = Service::start().await;
    let response = service.post("/api/query/gexp", "{}").await;
    let message = "Expressions are asked for with GET and the parameter exp";
    assert_eq!(
        (response.status, &response.json()["error"]["message"]),
        (400, &json!(message))
    );
    let put = "PUT /api/query/gexp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(service.request(put.to_owned(), b"").await.status, 405);
}

#[tokio::test]
async fn limits_depth_and_number_of_expressions() {
    let service = Service::start().await;
    let deep = format!("{}sum:m{}", "absolute(".repeat(65), ")".repeat(65));
    for (expression, message) in [
        (deep, "Calls are nested deeper than 64 levels"),
        (
            format!("{}exp=b", "a&exp=".repeat(100)),
            "request has 101 expressions, at most 100 are allowed",
        ),
    ] {
        let target = format!("/api/query/gexp?start=1&end=2&exp={expression}");
        let response = service.get(&target).await;
        assert_eq!(
            (response.status, &response.json()["error"]["message"]),
            (400, &json!(message))
        );
    }
}
