//! `docs/compatibility.md` lists the endpoints and methods that the server has.

use http::Method;
use oxtsdb_test_stack::service::Service;

use super::ENDPOINTS;
use super::endpoint::find;

const DOCUMENT: &str = include_str!("../../../../docs/compatibility.md");

/// Endpoints and their methods, of all tables with a column of methods.
fn rows() -> Vec<(String, Vec<Method>)> {
    let mut rows = Vec::new();
    let mut columns: Option<(usize, usize)> = None;
    for line in DOCUMENT.lines() {
        if !line.starts_with('|') {
            columns = None;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let place = |name: &str| cells.iter().position(|cell| *cell == name);
        if let (Some(endpoint), Some(methods)) = (place("Endpoint"), place("Methods")) {
            columns = Some((endpoint, methods));
            continue;
        }
        let Some((endpoint, methods)) = columns.filter(|_| !line.starts_with("|--")) else {
            continue;
        };
        let path = cells[endpoint].trim_matches('`').to_owned();
        let methods = cells[methods].split(", ").filter(|method| *method != "none");
        rows.push((path, methods.map(|method| method.parse().unwrap()).collect()));
    }
    rows
}

#[test]
fn the_document_lists_the_endpoints_and_methods_of_the_server() {
    let rows = rows();
    assert!(rows.len() > 50, "{}", rows.len());
    for (path, methods) in &rows {
        let endpoint = find(ENDPOINTS, path);
        if methods.is_empty() {
            // Paths below a query are queries, as in OpenTSDB.
            let is_served = matches!(endpoint, Ok(Some(_))) && !path.starts_with("/api/query");
            assert!(!is_served, "{path} is served");
            continue;
        }
        let endpoint = endpoint
            .unwrap()
            .unwrap_or_else(|| panic!("{path} is not served"));
        for method in methods {
            assert!(endpoint.operation(method).is_ok(), "{method} {path}");
        }
    }
    for row in oxtsdb_access::operation::HTTP {
        let is_listed = rows.iter().any(|(path, methods)| {
            let below = path.strip_prefix(row.path);
            !methods.is_empty() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        assert!(is_listed, "{} is not in docs/compatibility.md", row.path);
    }
}

#[tokio::test]
async fn serializers_have_the_documented_form() {
    let service = Service::start().await;
    let response = service.get("/api/serializers").await;
    assert_eq!(response.status, 200);
    let list = response.json();
    let [json] = &list.as_array().unwrap()[..] else {
        panic!("{list}");
    };
    assert_eq!(json["serializer"], "json");
    assert_eq!(json["class"], "net.opentsdb.tsd.HttpJsonSerializer");
    assert_eq!(json["request_content_type"], "application/json");
    assert_eq!(json["response_content_type"], "application/json; charset=UTF-8");
    for (list, name) in [("parsers", "PutV1"), ("formatters", "QueryAsyncV1")] {
        assert!(
            json[list].as_array().unwrap().iter().any(|one| one == name),
            "{json}"
        );
    }
    assert_eq!(service.post("/api/serializers", "").await.status, 405);
}
