//! The search from end to end: HTTP over a socket, gRPC, edits, restarts, other writers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data_service::SeriesMetaHandler;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::data::v1::search_metadata_response::result::Metadata;
use oxtsdb_proto::data::v1::series_meta_service_server::SeriesMetaService as _;
use oxtsdb_proto::data::v1::{MetadataKind, SearchMetadataRequest, SearchMetadataResponse};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_schema::{UidKind, UidMeta};
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Request, Status};
use uid_service::UidSettings;

const POINTS: &str = r#"[
    {"metric":"sys.cpu.user","timestamp":1356998400,"value":1,"tags":{"host":"web01"}},
    {"metric":"sys.cpu.nice","timestamp":1356998400,"value":1,"tags":{"host":"web02"}},
    {"metric":"df.bytes","timestamp":1356998400,"value":1,"tags":{"host":"web01","mount":"/var"}}]"#;

fn settings(folder: Option<&TempDir>) -> DataSettings {
    let mut settings = DataSettings::default();
    settings.series_index.enable_tsuid_tracking = true;
    settings.series_index.enable_realtime_ts = true;
    settings.text_search.text_search = folder.map(|folder| PathBuf::from(folder.path()));
    settings.text_search.text_search_pause_seconds = 1;
    settings
}

/// Requests a search until it has `total` results.
async fn found(service: &Service, target: &str, total: u64) -> Value {
    for _ in 0..400 {
        let response = service.get(&format!("/api/search/{target}")).await;
        if response.status == 200 && response.json()["totalResults"] == json!(total) {
            return response.json();
        }
        assert!(matches!(response.status, 200 | 503), "{}", response.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let last = service.get(&format!("/api/search/{target}")).await;
    panic!("{target}: {}", last.text());
}

#[tokio::test]
async fn http_responds_in_opentsdbs_form() {
    let folder = TempDir::new().unwrap();
    let mut settings = settings(Some(&folder));
    // Only announced documents are found.
    settings.text_search.text_search_pause_seconds = 600;
    let service = Service::start_with(settings, UidSettings::default()).await;
    assert_eq!(service.post("/api/put", POINTS).await.status, 204);
    let search_until = async |target: &str, total| found(&service, target, total).await;

    let mut series = search_until("tsmeta?query=metric.name:sys.cpu*%20AND%20host:web01", 1).await;
    assert!(series["time"].take().is_number());
    let first = &mut series["results"][0];
    assert_eq!(
        (&first["metric"]["name"], &first["tags"][1]["name"]),
        (&json!("sys.cpu.user"), &json!("web01"))
    );
    *first = json!(0);
    assert_eq!(
        series,
        json!({"type": "TSMETA", "query": "metric.name:sys.cpu* AND host:web01", "metric": "*", "limit": 25,
            "time": null, "results": [0], "startIndex": 0, "totalResults": 1})
    );
    assert_eq!(
        search_until("tsuids?query=df.bytes", 1).await["results"],
        json!(["000003000001000001000002000003"])
    );
    assert_eq!(
        search_until("tsmeta_summary?query=mount:%22/var%22", 1).await["results"],
        json!([{"tags": {"host": "web01", "mount": "/var"}, "metric": "df.bytes",
            "tsuid": "000003000001000001000002000003"}])
    );
    let body = json!({"query": "type:METRIC", "limit": 2, "startIndex": 2});
    let page = service.post("/api/search/uidmeta", body.to_string()).await.json();
    assert_eq!(
        (
            &page["totalResults"],
            page["results"].as_array().unwrap().len(),
            &page["startIndex"]
        ),
        (&json!(3), 1, &json!(2))
    );

    // Edits are found, and what is gone is not.
    let meta = json!({"uid": "000001", "type": "metric", "description": "Time in user mode", "custom": {"owner": "Ops"}});
    assert_eq!(
        service.post("/api/uid/uidmeta", meta.to_string()).await.status,
        200
    );
    let result = &search_until("uidmeta?query=custom.owner:ops", 1).await["results"][0];
    assert_eq!(
        (&result["uid"], &result["custom"]),
        (&json!("000001"), &json!({"owner": "Ops"}))
    );
    let meta = json!({"tsuid": "000001000001000001", "notes": "replaced \"disk\""});
    assert_eq!(
        service.post("/api/uid/tsmeta", meta.to_string()).await.status,
        200
    );
    search_until("tsmeta?query=notes:disk", 1).await;
    for (tsuid, description) in [("", "Deploy of all"), ("000001000001000001", "Disk full")] {
        let note = json!({"startTime": 1_356_998_405, "tsuid": tsuid, "description": description});
        assert_eq!(
            service.post("/api/annotation", note.to_string()).await.status,
            200
        );
    }
    assert_eq!(
        search_until("annotation?query=%22disk%20full%22", 1).await["results"],
        json!([{"tsuid": "000001000001000001", "description": "Disk full", "notes": "", "startTime": 1_356_998_405,
            "endTime": 0}])
    );
    search_until("annotation?query=deploy", 1).await;
    let head = "DELETE /api/annotation?start_time=1356998405 HTTP/1.1\r\n".to_owned();
    assert_eq!(service.request(head, b"").await.status, 204);
    search_until("annotation?query=*", 1).await;
    // Deleted by a range, which is not announced: found to be gone by a search.
    let range =
        json!({"tsuids": ["000001000001000001"], "startTime": 1_356_998_400, "endTime": 1_356_998_500});
    let head = "DELETE /api/annotation/bulk HTTP/1.1\r\n".to_owned();
    assert_eq!(
        service.request(head, range.to_string().as_bytes()).await.status,
        200
    );
    search_until("annotation?query=*", 0).await;

    for (target, status, message) in [
        ("uidmeta", 400, "Missing parameter <code>query</code>"),
        ("uidmeta?query=(a", 400, "Unable to parse query"),
        (
            "uidmeta?query=a&start_index=-1",
            400,
            "The start index is negative",
        ),
        (
            "uidmeta?query=a&start_index=10000",
            400,
            "results 10000 to 10001 were requested, only the first 10000 can be reached",
        ),
    ] {
        let response = service.get(&format!("/api/search/{target}")).await;
        let error = &response.json()["error"]["message"];
        assert_eq!(
            (response.status, error.as_str()),
            (status, Some(message)),
            "{target}"
        );
    }
}

async fn search(stack: &TestStack, request: SearchMetadataRequest) -> Result<SearchMetadataResponse, Status> {
    let service = &stack.service;
    let (engine, uids) = (service.engine.clone(), service.uids.clone());
    let handler = SeriesMetaHandler::new(engine, &service.writer, uids, service.text_search.clone());
    let response = handler.search_metadata(Request::new(request)).await;
    response.map(tonic::Response::into_inner)
}

fn request(kind: MetadataKind, query: &str) -> SearchMetadataRequest {
    SearchMetadataRequest {
        kind: kind.into(),
        query: query.to_owned(),
        ..SearchMetadataRequest::default()
    }
}

/// Searches until there are `total` results.
async fn found_by_grpc(
    stack: &TestStack,
    kind: MetadataKind,
    query: &str,
    total: u64,
) -> SearchMetadataResponse {
    let mut last = None;
    for _ in 0..400 {
        let response = search(stack, request(kind, query)).await;
        match response {
            Ok(response) if response.total_results == total => return response,
            Err(error) if error.code() != Code::Unavailable => panic!("{error}"),
            response => last = Some(response),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{query}: {last:?}");
}

async fn assign(stack: &TestStack, names: &[&str]) {
    let names: Vec<(UidKind, &str)> = names.iter().map(|name| (UidKind::Metric, *name)).collect();
    stack.uid_client.get_or_create_uids(&names, true).await.unwrap();
}

#[tokio::test]
async fn grpc_returns_pages_and_typed_errors() {
    let folder = TempDir::new().unwrap();
    let stack = TestStack::with(settings(Some(&folder)), UidSettings::default()).await;
    // At the UID service: the next pass finds them.
    assign(&stack, &["a.one", "a.two", "a.three"]).await;
    found_by_grpc(&stack, MetadataKind::Uid, "name:a.*", 3).await;
    let mut page = request(MetadataKind::Uid, "name:a.*");
    page.page_size = 2;
    let mut names = Vec::new();
    loop {
        let response = search(&stack, page.clone()).await.unwrap();
        names.extend(response.results.iter().map(|result| match &result.metadata {
            Some(Metadata::Uid(meta)) => meta.name.clone(),
            other => panic!("{other:?}"),
        }));
        page.page_token = response.next_page_token;
        if page.page_token.is_empty() {
            break;
        }
    }
    names.sort_unstable();
    assert_eq!(names, ["a.one", "a.three", "a.two"]);

    let token = search(
        &stack,
        SearchMetadataRequest {
            page_size: 1,
            ..request(MetadataKind::Uid, "name:a.*")
        },
    );
    let token = token.await.unwrap().next_page_token;
    for (request, field) in [
        (request(MetadataKind::Unspecified, "a"), "kind"),
        (request(MetadataKind::Uid, "(a"), "query"),
        (
            SearchMetadataRequest {
                page_size: -1,
                ..request(MetadataKind::Uid, "a")
            },
            "page_size",
        ),
        (
            SearchMetadataRequest {
                page_token: token,
                ..request(MetadataKind::Uid, "other")
            },
            "page_token",
        ),
    ] {
        let error = search(&stack, request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(field), "{error}");
    }
    let off = TestStack::with(settings(None), UidSettings::default()).await;
    let error = search(&off, request(MetadataKind::Uid, "a")).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn an_index_is_used_again_and_follows_other_writers() {
    let folder = TempDir::new().unwrap();
    let store = MemoryStore::new();
    let start = async |settings: DataSettings| {
        let same: Arc<dyn oxtsdb_row_store::RowStore> = Arc::new(store.clone());
        TestStack::over(
            store.clone(),
            Arc::clone(&same),
            same,
            settings,
            UidSettings::default(),
        )
        .await
    };
    // Without search: nothing is announced.
    let other = start(settings(None)).await;
    assign(&other, &["first", "second"]).await;
    let note = json!({"startTime": 1_356_998_405, "tsuid": "000001000001000001", "description": "early"});
    let service = Service::from_stack(other).await;
    assert_eq!(
        service.post("/api/annotation", note.to_string()).await.status,
        200
    );
    drop(service);

    let stack = start(settings(Some(&folder))).await;
    found_by_grpc(&stack, MetadataKind::Uid, "*", 2).await;
    found_by_grpc(&stack, MetadataKind::Annotation, "early", 1).await;
    let uid = stack
        .uid_client
        .get_or_create_uids(&[(UidKind::Metric, "first")], true)
        .await
        .unwrap();
    let uid = uid[0].as_ref().unwrap().uid;
    let mut meta = UidMeta::new(UidKind::Metric, uid);
    meta.description = "edited elsewhere".to_owned();
    stack.uid_client.update_uid_meta(&meta, None).await.unwrap();
    found_by_grpc(&stack, MetadataKind::Uid, "elsewhere", 1).await;
    stack
        .uid_client
        .rename(UidKind::Metric, "second", "third", None)
        .await
        .unwrap();
    found_by_grpc(&stack, MetadataKind::Uid, "third", 1).await;
    found_by_grpc(&stack, MetadataKind::Uid, "second", 0).await;
    let TestStack { trigger, service, .. } = stack;
    let has_ended = service.text_search.as_ref().unwrap().ended();
    drop(service);
    trigger.shut_down().await;
    while !has_ended() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let other = start(settings(None)).await;
    other
        .uid_client
        .delete(UidKind::Metric, "third", None)
        .await
        .unwrap();
    let stack = start(settings(Some(&folder))).await;
    found_by_grpc(&stack, MetadataKind::Uid, "third", 0).await;
    found_by_grpc(&stack, MetadataKind::Uid, "first", 1).await;
    found_by_grpc(&stack, MetadataKind::Annotation, "early", 1).await;
}
