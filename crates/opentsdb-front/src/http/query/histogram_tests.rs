//! Queries of histograms, compared with results of OpenTSDB 2.4.1.

use oxtsdb_row_store::WriteBatch;
use oxtsdb_schema::data_table;
use oxtsdb_test_stack::service::{Service, status_for};
use serde_json::{Value, json};

/// Histograms and points in the first line, then queries from `m` or with a body, each with the response. Points are
/// arrays: OpenTSDB can return several for one second.
const RECORDED: &str = include_str!("../../../testdata/histogram_queries.jsonl");

/// A service with the recorded histograms, and the queries.
async fn recorded() -> (Service, Vec<Value>) {
    let service = Service::with_histograms().await;
    let (written, queries) = RECORDED.split_once('\n').unwrap();
    let written: Value = serde_json::from_str(written).unwrap();
    // One by one: UIDs are assigned in this order.
    for histogram in written["histograms"].as_array().unwrap() {
        assert_eq!(
            service
                .post("/api/histogram", &histogram.to_string())
                .await
                .status,
            204
        );
    }
    assert_eq!(
        service
            .post("/api/put", &written["points"].to_string())
            .await
            .status,
        204
    );
    let queries = queries.lines().map(|line| serde_json::from_str(line).unwrap());
    (service, queries.collect())
}

fn normalized(response: &mut Value) {
    if let Some(error) = response.get("error") {
        *response = json!({"message": error["message"]});
        return;
    }
    for group in response.as_array_mut().unwrap() {
        let tags = group["aggregateTags"].as_array_mut().unwrap();
        tags.sort_by_key(ToString::to_string);
        if let Some(Value::Object(query)) = group.get_mut("query") {
            query.remove("rollupUsage");
        }
    }
}

#[tokio::test]
async fn results_are_those_of_the_recorded_opentsdb() {
    let (service, queries) = recorded().await;
    assert!(queries.len() > 60);
    for recorded in queries {
        let response = match recorded["m"].as_str() {
            Some(m) => {
                let m: String = m.bytes().map(|byte| format!("%{byte:02X}")).collect();
                service
                    .get(&format!(
                        "/api/query?arrays&start=1356998400&end=1357002000&m={m}"
                    ))
                    .await
            }
            None => {
                service
                    .post("/api/query?arrays", &recorded["body"].to_string())
                    .await
            }
        };
        let request = recorded.get("m").unwrap_or(&recorded["body"]);
        assert_eq!(
            u64::from(response.status),
            status_for(&recorded["status"]),
            "{request}: {}",
            response.text()
        );
        let mut body = response.json();
        normalized(&mut body);
        if let (Some(query), Some(expected)) = (body[0].get("tsuids"), recorded["response"][0].get("tsuids"))
        {
            assert_eq!(
                query.as_array().unwrap().len(),
                expected.as_array().unwrap().len()
            );
            continue;
        }
        assert_eq!(body, recorded["response"], "{request}");
    }
}

#[tokio::test]
async fn damaged_histograms_are_left_out() {
    let (service, _) = recorded().await;
    let query = "/api/query?arrays&start=1356998400&end=1356998430&m=none:percentiles[50]:q1";
    let points = async || service.get(query).await.json()[0]["dps"].clone();
    assert_eq!(
        points().await,
        json!([[1_356_998_400, 2.625], [1_356_998_430, 2.625]])
    );
    for (qualifier, value) in [
        (&[6, 0, 0][..], &[42, 0, 1, 0][..]),
        (&[6, 0, 1], &[7, 0, 0, 0, 0]),
        (&[6, 0, 2, 3], &[]),
        (&[6, 0xff, 0xff], &[42, 0, 0, 0, 0]),
        (&[6], &[42, 0, 0, 0, 0]),
    ] {
        let mut batch = WriteBatch::new(data_table::DATA_TABLE.parse().unwrap());
        let family = batch.family("t");
        let row = hex::decode("00000150e22700000001000001").unwrap();
        batch.row(&row).put(family, qualifier, value);
        service.data_store.write(batch).await.unwrap();
    }
    assert_eq!(points().await, json!([[1_356_998_430, 2.625]]));
}
