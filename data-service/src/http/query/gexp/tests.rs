use serde_json::{Value, json};

use crate::test_stack::service::Service;

/// Recorded from OpenTSDB 2.4.1; see `testdata/README.md`.
const VECTORS: &str = include_str!("../../../../testdata/opentsdb-gexp-vectors.jsonl");

fn without_tsuids(mut answer: Value) -> Value {
    for series in answer
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        series.remove("tsuids");
    }
    answer
}

#[tokio::test]
async fn answers_are_opentsdbs() {
    let (service, vectors) = Service::with_vectors(VECTORS).await;
    let mut compared = 0;
    for vector in vectors {
        let target = vector["get"].as_str().unwrap();
        let answer = service.get(target).await;
        let (status, told) = (json!(answer.status), answer.json());
        assert_eq!(status, vector["status"], "{target}: {told}");
        if answer.status == 200 {
            let expected = without_tsuids(vector["response"].clone());
            assert_eq!(without_tsuids(told), expected, "{target}");
        } else {
            // Details tell OpenTSDB's objects.
            assert_eq!(
                told["error"]["message"], vector["response"]["message"],
                "{target}"
            );
        }
        compared += 1;
    }
    assert_eq!(compared, 83);
}

#[tokio::test]
async fn only_get_has_expressions() {
    let service = Service::start().await;
    let answer = service.post("/api/query/gexp", "{}").await;
    let message = "Expressions are asked for with GET and the parameter exp";
    assert_eq!(
        (answer.status, &answer.json()["error"]["message"]),
        (400, &json!(message))
    );
    let put = "PUT /api/query/gexp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(service.request(put.to_owned(), b"").await.status, 405);
}

#[tokio::test]
async fn expressions_are_limited() {
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
        let answer = service.get(&target).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["message"]),
            (400, &json!(message))
        );
    }
}
