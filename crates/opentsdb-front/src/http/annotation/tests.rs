use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use uid_service::UidSettings;

const SERIES: &str = "000001000001000001";

async fn send(service: &Service, method: &str, target: &str, body: &str) -> HttpResponse {
    service
        .request(format!("{method} {target} HTTP/1.1\r\n"), body.as_bytes())
        .await
}

/// Sends requests, each with the expected status and body (of an error its message and details), as OpenTSDB 2.4.1
/// responds.
async fn expect(service: &Service, exchanges: &[(&str, &str, &str, u16, &str)]) {
    for (method, target, body, status, expected) in exchanges {
        let response = send(service, method, &format!("/api/{target}"), body).await;
        let shown = match response.status {
            400.. => {
                let error = &response.json()["error"];
                let details = error["details"].as_str().map(|details| format!(" | {details}"));
                format!(
                    "{}{}",
                    error["message"].as_str().unwrap(),
                    details.unwrap_or_default()
                )
            }
            _ => response.text().to_owned(),
        };
        let place = format!("{method} {target} {body}");
        assert_eq!((response.status, shown.as_str()), (*status, *expected), "{place}");
    }
}

#[tokio::test]
async fn merges_replaces_and_deletes() {
    let service = Service::start().await;
    expect(
        &service,
        &[
            ("GET", "annotation?start_time=1356998405", "", 404, "Unable to locate annotation in storage"),
            (
                "POST",
                "annotation",
                r#"{"startTime":1356998405,"description":"g1"}"#,
                200,
                r#"{"tsuid":"","description":"g1","notes":"","startTime":1356998405,"endTime":0}"#,
            ),
            ("POST", "annotation", r#"{"startTime":1356998405}"#, 304, ""),
            ("POST", "annotation", r#"{"startTime":1356998405,"description":"","custom":null}"#, 304, ""),
            (
                "POST",
                "annotation",
                r#"{"startTime":1356998405000,"notes":"n","custom":{"b":"1","a":2,"é":null}}"#,
                200,
                r#"{"tsuid":"","description":"g1","notes":"n","custom":{"a":"2","é":null,"b":"1"},"startTime":1356998405,"endTime":0}"#,
            ),
            (
                "POST",
                "annotation",
                r#"{"startTime":1356998405,"description":null,"custom":{}}"#,
                200,
                r#"{"tsuid":"","notes":"n","custom":{},"startTime":1356998405,"endTime":0}"#,
            ),
            (
                "GET",
                "annotation?start_time=2013/01/01-00:00:05",
                "",
                200,
                r#"{"tsuid":"","notes":"n","custom":{},"startTime":1356998405,"endTime":0}"#,
            ),
            ("PUT", "annotation", r#"{"startTime":1356998405,"endTime":0}"#, 304, ""),
            (
                "PUT",
                "annotation",
                r#"{"startTime":1356998405,"description":"put"}"#,
                200,
                r#"{"tsuid":"","description":"put","notes":"","startTime":1356998405,"endTime":0}"#,
            ),
            ("DELETE", "annotation", r#"{"startTime":1356998405}"#, 204, ""),
            ("DELETE", "annotation?start_time=1356998405", "", 204, ""),
            ("GET", "annotation", r#"{"startTime":1356998405}"#, 404, "Unable to locate annotation in storage"),
        ],
    )
    .await;
}

#[tokio::test]
async fn fields_of_the_query_string_and_method_override() {
    let service = Service::start().await;
    let written = r#"{"tsuid":"000001000001000001","description":"q s","notes":"n","startTime":1356998500,"endTime":1356998600}"#;
    let target = format!(
        "annotation?start_time=1356998500123&description=q+s&notes=n&end_time=1356998600&tsuid={SERIES}"
    );
    let overridden = format!("{target}&method_override=post");
    let replaced = format!("annotation?start_time=1356998500&notes=r&method_override=PUT&tsuid={SERIES}");
    let deleted = format!("annotation?start_time=1356998500&method_override=delete&tsuid={SERIES}");
    expect(
        &service,
        &[
            ("POST", &target, "", 200, written),
            ("GET", &overridden, "", 200, written),
            (
                "GET",
                &replaced,
                "",
                200,
                r#"{"tsuid":"000001000001000001","description":"","notes":"r","startTime":1356998500,"endTime":0}"#,
            ),
            ("POST", "annotation?start_time=1356998500&method_override=delete", "", 304, ""),
            ("GET", &deleted, "", 204, ""),
            ("GET", "annotation?start_time=1&method_override=x", "", 405, "Unknown or unsupported method override value"),
            ("GET", "annotation?start_time=1&method_override", "", 405, "Missing method override value"),
        ],
    )
    .await;
    assert_eq!(service.cells().await, [""; 0], "deleted");
}

#[tokio::test]
async fn rejects_with_opentsdbs_texts() {
    let service = Service::start().await;
    let no_start = "The start timestamp has not been set | The start timestamp has not been set";
    let not_hex =
        "contains illegal character for hexBinary: zz | contains illegal character for hexBinary: zz";
    expect(
        &service,
        &[
            ("GET", "annotation", "", 400, "Missing start time"),
            ("GET", "annotation?start_time=0", "", 400, "Missing start time"),
            ("GET", "annotations", "", 400, "Missing start time"),
            (
                "GET",
                "annotation?start_time=abc",
                "",
                400,
                "Invalid time: abc. Invalid character 'a' in abc | Invalid time: abc. Invalid character 'a' in abc",
            ),
            ("POST", "annotation", r#"{"description":"x"}"#, 400, no_start),
            ("POST", "annotation", r#"{"startTime":-1,"description":"x"}"#, 400, no_start),
            ("POST", "annotation", r#"{"startTime":1,"tsuid":"zz","notes":"x"}"#, 400, not_hex),
            (
                "POST",
                "annotation",
                r#"{"startTime":1,"tsuid":"000001","notes":"x"}"#,
                400,
                "TSUID `000001` has 3 bytes, expected 3 and one or more times 6 bytes | \
                 TSUID `000001` has 3 bytes, expected 3 and one or more times 6 bytes",
            ),
            (
                "DELETE",
                "annotation",
                r#"{"startTime":0}"#,
                400,
                "Unable to delete Annotation information | The start timestamp has not been set",
            ),
            (
                "GET",
                "annotation/bulk",
                "",
                405,
                "Method not allowed | The HTTP method [GET] is not permitted for this endpoint",
            ),
            (
                "POST",
                "annotation/bulk",
                "",
                400,
                "Missing message content | Supply valid JSON formatted data in the body of your request",
            ),
            (
                "POST",
                "annotation/bulk",
                r#"[{"startTime":1356998460,"description":"ok"},{"description":"no start"}]"#,
                400,
                "The start timestamp has not been set | Annotation error: TSUID:  Start: 0  Description: no start",
            ),
            ("GET", "annotation?start_time=1356998460", "", 404, "Unable to locate annotation in storage"),
            ("DELETE", "annotation/bulk", "{}", 400, "Missing the start time value"),
            (
                "DELETE",
                "annotation/bulk",
                r#"{"startTime":1,"tsuids":[]}"#,
                400,
                "Missing the TSUIDs or global annotations flag",
            ),
            (
                "DELETE",
                "annotation/bulk",
                r#"{"startTime":2,"endTime":1,"global":true}"#,
                400,
                "The end timestamp cannot be less than the start timestamp | \
                 The end timestamp cannot be less than the start timestamp",
            ),
            ("DELETE", "annotation/bulk", "", 400, "Missing parameter <code>start_time</code>"),
            ("DELETE", "annotation/bulk?start_time=1&tsuids=", "", 400, "UID was empty | UID was empty"),
        ],
    )
    .await;
    for body in ["{", "[]", "null", r#"{"startTime":1,"description":{}}"#] {
        let response = send(&service, "POST", "/api/annotation", body).await;
        let message = response.json()["error"]["message"].clone();
        assert_eq!(
            (response.status, message.as_str()),
            (400, Some("Unable to parse the given JSON")),
            "{body}"
        );
    }
}

/// Descriptions of a list of annotations.
fn descriptions(response: &HttpResponse) -> Vec<String> {
    let list = response.json();
    let list = list.as_array().unwrap().iter();
    list.map(|annotation| annotation["description"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn lists_global_annotations_by_their_numbers() {
    let service = Service::start().await;
    let start = 1_356_998_400;
    let annotation = |begin: i64, end: i64, name: &str| {
        format!(r#"{{"startTime":{begin},"endTime":{end},"description":"{name}"}}"#)
    };
    let documents = [
        annotation(start + 10, 0, "10"),
        annotation(start + 20, start + 25, "20-25"),
        annotation(start + 30, start + 90, "30-90"),
        annotation((start + 45) * 1000 + 500, 0, "45.5"),
        annotation((start + 46) * 1000 + 500, (start + 47) * 1000, "46.5-47"),
        annotation(start + 60, 0, "60"),
        annotation(start - 10, 0, "-10"),
        annotation(start + 3600, 0, "3600"),
    ];
    let body = format!("[{}]", documents.join(","));
    let response = send(&service, "POST", "/api/annotation/bulk", &body).await;
    assert_eq!(descriptions(&response).len(), documents.len());
    for (from, to, expected) in [
        (0, 100, &["45.5", "10", "20-25", "30-90", "60"][..]),
        (15, 35, &["45.5", "20-25", "60"]),
        (-15, 12, &["-10", "45.5", "10", "60"]),
        (0, 3600, &["45.5", "10", "20-25", "30-90", "60", "3600"]),
    ] {
        let target = format!(
            "/api/annotations?start_time={}&end_time={}",
            start + from,
            start + to
        );
        assert_eq!(descriptions(&service.get(&target).await), expected, "{from} {to}");
    }
    let response = service.get(&format!("/api/annotations?start_time={start}")).await;
    assert_eq!(descriptions(&response).len(), 6, "until now");
}

#[tokio::test]
async fn deletes_ranges_of_series_and_global_ones() {
    let service = Service::start().await;
    let other = "000001000001000002";
    let documents = [
        (1, SERIES),
        (2, SERIES),
        (3, SERIES),
        (599, SERIES),
        (2, other),
        (2, ""),
        (1000, ""),
    ];
    let documents = documents.map(|(second, tsuid)| {
        format!(
            r#"{{"startTime":{},"tsuid":"{tsuid}","description":"d"}}"#,
            1_369_140_000 + second
        )
    });
    let body = format!("[{}]", documents.join(","));
    assert_eq!(
        send(&service, "POST", "/api/annotation/bulk", &body).await.status,
        200
    );
    expect(
        &service,
        &[
            (
                "DELETE",
                "annotation/bulk",
                r#"{"startTime":1369140002,"endTime":1369140003,"tsuids":["000001000001000001"]}"#,
                200,
                r#"{"tsuids":["000001000001000001"],"global":false,"startTime":1369140002000,"endTime":1369140003000,"totalDeleted":2}"#,
            ),
            (
                "DELETE",
                "annotation/bulk?start_time=1369140000&end_time=1369141000&global&tsuids=000001000001000002",
                "",
                200,
                r#"{"tsuids":["000001000001000002"],"global":true,"startTime":1369140000000,"endTime":1369141000000,"totalDeleted":3}"#,
            ),
            (
                "GET",
                "annotation/bulk?method_override=delete&start_time=1369140000&end_time=1369140500&tsuids=000001000001000001,000001000001000001",
                "",
                200,
                r#"{"tsuids":["000001000001000001","000001000001000001"],"global":false,"startTime":1369140000000,"endTime":1369140500000,"totalDeleted":1}"#,
            ),
        ],
    )
    .await;
    assert_eq!(service.cells().await.len(), 1, "the one after 599 seconds");
}

#[tokio::test]
async fn what_a_bulk_edit_returns_counts_as_memory_of_a_query() {
    let mut settings = DataSettings::default();
    settings.queries.query_max_memory_mib = Some(1);
    let service = Service::start_with(settings, UidSettings::default()).await;
    let notes = "n".repeat(100_000);
    let large = format!(r#"{{"startTime":1356998405,"notes":"{notes}"}}"#);
    assert_eq!(
        send(&service, "POST", "/api/annotation", &large).await.status,
        200
    );
    let edits = |count: usize| {
        let edits =
            (0..count).map(|number| format!(r#"{{"startTime":1356998405,"description":"d{number}"}}"#));
        format!("[{}]", edits.collect::<Vec<_>>().join(","))
    };
    let few = send(&service, "POST", "/api/annotation/bulk", &edits(3)).await;
    assert_eq!((few.status, few.json().as_array().unwrap().len()), (200, 3));
    let many = send(&service, "POST", "/api/annotation/bulk", &edits(30)).await;
    assert_eq!(many.status, 413, "{}", many.text().len());
}
