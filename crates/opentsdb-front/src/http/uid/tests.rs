//! Behaviour that OpenTSDB's recorded responses (`tests/testdata/recorded/uid.jsonl`) do not show.

use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::Service;
use uid_service::UidSettings;

async fn service() -> Service {
    let mut settings = DataSettings::default();
    settings.series_index.enable_realtime_ts = true;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let point = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(service.post("/api/put", point).await.status, 204);
    service
}

#[tokio::test]
async fn concurrent_edits_of_different_fields_all_take_effect() {
    let service = std::sync::Arc::new(service().await);
    for (path, target, first, second) in [
        (
            "/api/uid/uidmeta",
            r#""uid":"000001","type":"metric""#,
            "notes",
            "displayName",
        ),
        (
            "/api/uid/tsmeta",
            r#""tsuid":"000001000001000001""#,
            "units",
            "dataType",
        ),
    ] {
        let edits = (0..20).map(|number| {
            let service = std::sync::Arc::clone(&service);
            let field = if number % 2 == 0 { first } else { second };
            let body = format!(r#"{{{target},"{field}":"{number}"}}"#);
            async move { service.post(path, body).await.status }
        });
        let statuses = futures::future::join_all(edits).await;
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
        let query = if path.ends_with("uidmeta") {
            "uid=000001&type=metric"
        } else {
            "tsuid=000001000001000001"
        };
        let meta = service.get(&format!("{path}?{query}")).await.json();
        assert!(meta[first] != "" && meta[second] != "", "{meta}");
    }
}

#[tokio::test]
async fn a_series_without_tags_is_an_error() {
    let service = service().await;
    let response = service
        .post("/api/uid/tsmeta?m=m&create=true", r#"{"notes":"x"}"#)
        .await;
    assert_eq!(response.status, 400);
    assert!(response.text().contains("has no tags"), "{}", response.text());
}

#[tokio::test]
async fn damaged_documents_are_errors_and_can_be_deleted() {
    use oxtsdb_row_store::{RowStore as _, WriteBatch};

    let service = service().await;
    for (table, row, qualifier, path) in [
        (
            "tsdb-uid",
            &[0, 0, 1][..],
            &b"metric_meta"[..],
            "/api/uid/uidmeta?uid=000001&type=metric",
        ),
        (
            "tsdb-meta",
            &[0, 0, 1, 0, 0, 1, 0, 0, 1],
            b"ts_meta",
            "/api/uid/tsmeta?tsuid=000001000001000001",
        ),
    ] {
        let mut batch = WriteBatch::new(table.parse().unwrap());
        let family = batch.family("name");
        batch.row(row).put(family, qualifier, b"{broken");
        service.store.write(batch).await.unwrap();
        let response = service.get(path).await;
        assert_eq!(response.status, 500);
        assert!(response.text().contains("damaged"), "{}", response.text());
        assert_eq!(
            service
                .get(&format!("{path}&method_override=delete"))
                .await
                .status,
            204
        );
        let expected = if table == "tsdb-uid" { 200 } else { 404 };
        assert_eq!(service.get(path).await.status, expected);
    }
}

#[tokio::test]
async fn lists_are_cut_into_batches() {
    let service = service().await;
    let points: Vec<String> = (0..700)
        .map(|number| {
            format!(
                r#"{{"metric":"m","timestamp":1356998400,"value":1,"tags":{{"host":"h{number}","dc":"x"}}}}"#
            )
        })
        .collect();
    assert_eq!(
        service
            .post("/api/put", format!("[{}]", points.join(",")))
            .await
            .status,
        204
    );
    let count = async |query: &str| {
        let response = service.get(&format!("/api/uid/tsmeta?m={query}")).await;
        response.json().as_array().unwrap().len()
    };
    assert_eq!(count("m").await, 701);
    assert_eq!(count("m%7Bdc=x%7D").await, 700);
    assert_eq!(count("m%7Bdc=x,host=h7%7D").await, 1);
}
