use oxtsdb_data_settings::DataSettings;
use oxtsdb_schema::data_table::TREE_TABLE;
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use serde_json::{Value, json};
use uid_service::UidSettings;

async fn service() -> Service {
    let mut settings = DataSettings::default();
    settings.series_index.enable_realtime_ts = true;
    settings.trees.enable_tree_processing = true;
    Service::from_stack(TestStack::with(settings, UidSettings::default()).await).await
}

async fn send(service: &Service, method: &str, target: &str, body: &Value) -> HttpResponse {
    service
        .request(
            format!("{method} {target} HTTP/1.1\r\n"),
            body.to_string().as_bytes(),
        )
        .await
}

fn message(response: &HttpResponse) -> (u16, String) {
    let text = response.json()["error"]["message"].as_str().unwrap().to_owned();
    (response.status, text)
}

#[tokio::test]
async fn a_tree_is_created_edited_and_deleted() {
    let service = service().await;
    let created = service
        .post(
            "/api/tree",
            r#"{"name":"By DC","description":"d","ENABLED":"true"}"#,
        )
        .await;
    let expected = r#"{"name":"By DC","description":"d","notes":"","enabled":true,"rules":null,"created":0,"treeId":1,"strictMatch":false,"storeFailures":false}"#;
    assert_eq!((created.status, created.text()), (200, expected));
    assert_eq!(service.get("/api/tree?treeid=1").await.text(), expected);
    let edited = service
        .get("/api/tree?treeid=1&notes=n&method_override=post")
        .await;
    assert_eq!(
        (edited.json()["notes"].clone(), edited.json()["name"].clone()),
        (json!("n"), json!("By DC"))
    );
    let unchanged = service.post("/api/tree", r#"{"treeId":1}"#).await;
    assert_eq!((unchanged.status, unchanged.text()), (304, ""));
    let put = send(&service, "PUT", "/api/tree", &json!({"treeId": 1, "notes": "p"})).await;
    assert_eq!(
        (put.json()["name"].clone(), put.json()["enabled"].clone()),
        (json!(""), json!(false))
    );
    let by_query = service.get("/api/tree?name=q&method_override=post").await.json();
    assert!(by_query["created"].as_i64().unwrap() > 1_700_000_000);
    assert_eq!(
        service
            .get("/api/v1/TREE/")
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    for (target, expected) in [
        ("/api/tree?treeid=99", (404, "Unable to locate tree: 99")),
        ("/api/tree?treeid=x", (400, "Unable to parse 'tree' value")),
        ("/api/tree?treeid=65536", (400, "Invalid Tree ID")),
        (
            "/api/tree?description=x&method_override=post",
            (400, "Tree was missing the name"),
        ),
        (
            "/api/tree?treeid=99&notes=x&method_override=put",
            (404, "Unable to locate tree: 99"),
        ),
        ("/api/tree/bogus", (404, "This endpoint is not supported")),
    ] {
        let (status, text) = message(&service.get(target).await);
        assert_eq!((status, text.as_str()), expected, "{target}");
    }
    let broken = service.post("/api/tree", "{").await;
    assert_eq!(
        message(&broken),
        (400, "Unable to parse the given JSON".to_owned())
    );
    assert_eq!(
        send(&service, "DELETE", "/api/tree", &json!({"treeId": 1}))
            .await
            .status,
        204
    );
    assert_eq!(service.get("/api/tree?treeid=1").await.status, 200);
    let target = "/api/tree?treeid=1&definition=true&method_override=delete";
    assert_eq!(service.get(target).await.status, 204);
    assert_eq!(service.get(target).await.status, 404);
}

#[tokio::test]
async fn rules_are_edited_one_by_one_and_together() {
    let service = service().await;
    service.post("/api/tree", r#"{"name":"t"}"#).await;
    let posted = service
        .post(
            "/api/tree/rule",
            r#"{"treeId":1,"level":0,"order":0,"type":"tagk","field":"host"}"#,
        )
        .await;
    let expected = r#"{"type":"TAGK","field":"host","regex":"","separator":"","description":"","notes":"","level":0,"order":0,"treeId":1,"customField":"","regexGroupIdx":0,"displayFormat":""}"#;
    assert_eq!((posted.status, posted.text()), (200, expected));
    for (path, body) in [
        ("/api/tree/rule", r#"["TAGK","host",null,null,null,null,0,1,1]"#),
        (
            "/api/tree/rules",
            r#"[["TAGK","host",null,null,null,null,0,1,1]]"#,
        ),
        ("/api/tree/test", r#"[1,["000001000001000001"]]"#),
    ] {
        let array = service.post(path, body).await;
        let expected = (400, "Unable to parse the given JSON".to_owned());
        assert_eq!(message(&array), expected, "{path}");
    }
    let again = service
        .get("/api/tree/rule?treeid=1&level=0&order=0&type=TAGK&method_override=post")
        .await;
    assert_eq!(again.status, 304);
    for (target, expected) in [
        ("?treeid=1&level=5&order=0", "Unable to locate rule: [1:5:0:null]"),
        ("?treeid=1&order=0", "Missing parameter <code>level</code>"),
        (
            "?treeid=1&level=x&order=0",
            "Unable to parse the 'level' parameter",
        ),
        (
            "?treeid=1&level=1&order=0&type=tagk&method_override=post",
            "Missing field name required for TAGK rule",
        ),
        (
            "?treeid=1&level=1&order=0&field=x&method_override=post",
            "Missing rule type",
        ),
        (
            "?treeid=1&level=1&order=0&type=bogus&method_override=post",
            "Unable to parse the 'type' parameter",
        ),
        ("?treeid=9&level=1&order=0", "Unable to locate tree: 9"),
        ("?treeid=0&level=1&order=0", "Invalid Tree ID"),
    ] {
        let response = service.get(&format!("/api/tree/rule{target}")).await;
        assert_eq!(message(&response).1, expected, "{target}");
    }
    let bad = service
        .post(
            "/api/tree/rule",
            r#"{"treeId":1,"level":1,"order":0,"type":"METRIC","regex":"a(b"}"#,
        )
        .await;
    let (status, text) = message(&bad);
    assert_eq!(status, 400);
    assert!(
        text.starts_with("rule [1:1:0] has a regex that ") && text.ends_with("(at index 1)"),
        "{text}"
    );
    let rules = json!([
        {"treeId": 1, "level": 0, "order": 0, "notes": "n"},
        {"treeId": 1, "level": 1, "order": 2, "type": "METRIC"},
    ]);
    assert_eq!(
        send(&service, "POST", "/api/tree/rules", &rules).await.status,
        204
    );
    let tree = service.get("/api/tree?treeid=1").await.json();
    assert_eq!(tree["rules"]["0"]["0"]["field"], "host");
    assert_eq!(
        (
            &tree["rules"]["0"]["0"]["notes"],
            &tree["rules"]["1"]["2"]["type"]
        ),
        (&json!("n"), &json!("METRIC"))
    );
    let replaced = json!([{"treeId": 1, "level": 3, "order": 0, "type": "METRIC"}]);
    assert_eq!(
        send(&service, "PUT", "/api/tree/rules", &replaced).await.status,
        204
    );
    let tree = service.get("/api/tree?treeid=1").await.json();
    assert_eq!(
        tree["rules"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["3"]
    );
    let two = json!([{"treeId": 1, "type": "METRIC"}, {"treeId": 2, "type": "METRIC"}]);
    let (_, text) = message(&send(&service, "POST", "/api/tree/rules", &two).await);
    assert_eq!(text, "All rules must belong to the same tree");
    let (_, text) = message(&send(&service, "POST", "/api/tree/rules", &json!([])).await);
    assert_eq!(text, "Missing tree rules");
    let (status, text) = message(&service.get("/api/tree/rules?treeid=1").await);
    assert_eq!((status, &*text), (400, "Unsupported HTTP request method"));
    assert_eq!(
        send(&service, "DELETE", "/api/tree/rules?treeid=1", &Value::Null)
            .await
            .status,
        400
    );
    assert_eq!(
        service
            .get("/api/tree/rules?treeid=1&method_override=delete")
            .await
            .status,
        204
    );
    assert_eq!(
        service.get("/api/tree?treeid=1").await.json()["rules"],
        Value::Null
    );
}

#[tokio::test]
async fn new_series_appear_in_branches_and_problems() {
    let service = service().await;
    let tree = r#"{"name":"t","enabled":true,"storeFailures":true,"strictMatch":true}"#;
    service.post("/api/tree", tree).await;
    let rules = json!([
        {"treeId": 1, "level": 0, "type": "TAGK", "field": "dc"},
        {"treeId": 1, "level": 1, "type": "METRIC"},
    ]);
    assert_eq!(
        send(&service, "POST", "/api/tree/rules", &rules).await.status,
        204
    );
    let point = |host: &str, dc: &str| {
        let mut tags = json!({"host": host});
        if !dc.is_empty() {
            tags["dc"] = json!(dc);
        }
        json!({"metric": "sys.cpu", "timestamp": 1_356_998_400, "value": 1, "tags": tags})
    };
    for (host, dc) in [
        ("web01", "lax"),
        ("web02", "lax"),
        ("web01", "Ams"),
        ("web03", ""),
    ] {
        assert_eq!(
            send(&service, "POST", "/api/put", &point(host, dc)).await.status,
            204
        );
    }
    let expected = 3 + 2 + 2;
    let placed = async || {
        let cells = oxtsdb_test_stack::cells(&service.store, TREE_TABLE).await;
        let is_placed = |cell: &&String| {
            let qualifier = cell.split(' ').nth(1).unwrap();
            ["branch", "leaf:", "tree_collision:", "tree_not_matched:"]
                .iter()
                .any(|prefix| qualifier.starts_with(&format!("t:{}", hex::encode(prefix))))
        };
        cells.iter().filter(is_placed).count()
    };
    while placed().await < expected {
        tokio::task::yield_now().await;
    }
    let root = service.get("/api/tree/branch?treeid=1").await;
    let expected = r#"{"leaves":null,"branches":[{"leaves":null,"branches":null,"path":{"0":"ROOT","1":"Ams"},"displayName":"Ams","treeId":1,"branchId":"0001000101A7","depth":1},{"leaves":null,"branches":null,"path":{"0":"ROOT","1":"lax"},"displayName":"lax","treeId":1,"branchId":"00010001A1A3","depth":1}],"path":{"0":"ROOT"},"displayName":"ROOT","treeId":1,"branchId":"0001","depth":0}"#;
    assert_eq!(root.text(), expected);
    let lax = service.get("/api/tree/branch?branch=00010001a1a3").await.json();
    let leaf = &lax["leaves"][0];
    assert_eq!(
        (leaf["metric"].as_str(), leaf["tags"]["dc"].as_str()),
        (Some("sys.cpu"), Some("lax"))
    );
    assert_eq!(lax["branches"], Value::Null);
    let collisions = service.get("/api/tree/collisions?treeid=1").await.json();
    assert_eq!(collisions.as_object().unwrap().len(), 1);
    let (loser, holder) = collisions.as_object().unwrap().iter().next().unwrap();
    assert_eq!(*holder, leaf["tsuid"]);
    let of_one = service
        .post(
            "/api/tree/collisions",
            json!({"treeId": 1, "tsuids": [loser]}).to_string(),
        )
        .await;
    assert_eq!(of_one.json(), collisions);
    let not_matched = service.get("/api/tree/notmatched?treeid=1").await.json();
    assert_eq!(
        not_matched.as_object().unwrap().values().collect::<Vec<_>>(),
        ["[1:0:0:TAGK]"]
    );
    for (target, expected) in [
        ("branch", (400, "Missing or invalid branch and tree IDs")),
        (
            "branch?treeid=9",
            (404, "Unable to locate branch '0009' for tree '9'"),
        ),
        (
            "branch?branch=000100000001",
            (404, "Unable to locate branch '000100000001' for tree '1'"),
        ),
        (
            "branch?branch=0001000001",
            (404, "Unable to locate branch '0001000001' for tree '1'"),
        ),
        ("branch?branch=001", (400, "Branch ID was too short")),
        (
            "branch?treeid=1&method_override=post",
            (400, "Unsupported HTTP request method"),
        ),
        ("collisions?treeid=9", (404, "Unable to locate tree: 9")),
        ("notmatched", (400, "Missing parameter <code>treeid</code>")),
    ] {
        let (status, text) = message(&service.get(&format!("/api/tree/{target}")).await);
        assert_eq!((status, text.as_str()), expected, "{target}");
    }
}
