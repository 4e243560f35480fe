use oxtsdb_test_stack::service::{HttpResponse, Service};
use serde_json::json;

const T: u32 = 1_356_998_400;

/// Two hosts with three points each.
async fn service() -> Service {
    let service = Service::start().await;
    let point = |second: u32, value: f64, host: &str| json!({"metric": "m", "timestamp": T + second, "value": value, "tags": {"host": host}});
    let points: Vec<_> = (0..3)
        .flat_map(|n| ["a", "b"].map(|host| point(n * 60, f64::from(n), host)))
        .collect();
    assert_eq!(
        service.post("/api/put", json!(points).to_string()).await.status,
        204
    );
    service
}

fn path(query: &str) -> String {
    format!("/q?start={T}&end={}&m=sum:m%7Bhost=*%7D&{query}", T + 120)
}

/// Width and height of a PNG file.
fn size(response: &HttpResponse) -> (u32, u32) {
    assert_eq!(
        response.header("content-type"),
        Some("image/png"),
        "{}",
        response.status
    );
    assert_eq!(response.body[..8], *b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(response.body[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[tokio::test]
async fn a_query_is_drawn_in_the_size_that_it_asks_for() {
    let service = service().await;
    let picture = service.get(&path("png")).await;
    assert_eq!((picture.status, size(&picture)), (200, (1024, 768)));
    let small = service
        .get(&path(
            "wxh=300x200&nokey&ylog&yrange=%5B1:%5D&bgcolor=x000000&fgcolor=xFFFFFF&png",
        ))
        .await;
    assert_eq!((small.status, size(&small)), (200, (300, 200)));
    assert!(small.body.len() < picture.body.len());
    let none = service
        .get(&format!("/q?start={}&end={}&m=sum:m&png", T + 7200, T + 7260))
        .await;
    assert_eq!(none.status, 200, "a picture without points");
}

#[tokio::test]
async fn svg_has_the_names_of_the_series_and_no_markup_of_others() {
    let service = service().await;
    let picture = service
        .get(&path("title=%3Cscript%3Ealert(1)%3C/script%3E&ylabel=%22%26&svg"))
        .await;
    assert_eq!(picture.header("content-type"), Some("image/svg+xml"));
    let policy = picture.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("sandbox"),
        "{policy}"
    );
    let text = picture.text();
    for part in ["m{host=a}", "m{host=b}", "&lt;script>", "\"&amp;"] {
        let escaped = part.replace('>', "&gt;");
        assert!(
            text.contains(part) || text.contains(&escaped) || text.contains(&escaped.replace('"', "&quot;")),
            "{part}: {text}"
        );
    }
    assert!(!text.contains("<script"), "{text}");
}

#[tokio::test]
async fn figures_count_points_and_name_the_tags_that_differ() {
    let service = service().await;
    let mut figures = service.get(&path("json")).await.json();
    assert!(figures["timing"].take().is_u64());
    assert_eq!(
        figures,
        json!({"plotted": 6, "points": 6, "etags": [[]], "timing": null})
    );
    let target = format!(
        "/q?start={}&end={}&m=sum:m&m=max:m&o=&o=axis%20x1y2&json",
        T + 60,
        T + 120
    );
    let mut figures = service.get(&target).await.json();
    figures["timing"].take();
    // The points around the range are read.
    assert_eq!(
        figures,
        json!({"plotted": 4, "points": 12, "etags": [["host"], ["host"]], "timing": null})
    );
}

#[tokio::test]
async fn without_a_form_the_page_opens_with_the_query() {
    let service = service().await;
    let response = service.get("/q?start=1h-ago&m=sum:m%7Bhost=*%7D&o=").await;
    assert_eq!(response.status, 302);
    assert_eq!(
        response.header("location"),
        Some("/#start=1h-ago&m=sum:m%7Bhost=*%7D&o=")
    );
    let page = service.get("/q?start=1h-ago&html&title=%22%3Cb%3E&m=sum:m").await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=UTF-8"))
    );
    let image = "<img alt=\"graph\" src=\"q?start=1h-ago&amp;title=%22%3Cb%3E&amp;m=sum:m&amp;png\">";
    assert!(page.text().contains(image), "{}", page.text());
}

#[tokio::test]
async fn errors_have_the_form_of_the_request() {
    let service = service().await;
    for (parameter, message) in [
        (
            "wxh=99x100",
            "Invalid parameter wxh (\"99x100\"): width and height are at least 100",
        ),
        ("wxh=5000x100", "Invalid parameter wxh (\"5000x100\")"),
        ("wxh=big", "Invalid parameter wxh (\"big\")"),
        (
            "yrange=0:1",
            "Invalid parameter yrange (\"0:1\"): it is [LOW:HIGH]",
        ),
        (
            "y2range=%5B2:1%5D",
            "Invalid parameter y2range (\"[2:1]\"): its lower end is not below its upper end",
        ),
        ("yformat=%25q", "Invalid parameter yformat (\"%q\")"),
        (
            "key=middle",
            "Invalid parameter key (\"middle\"): middle is none of out, left",
        ),
        (
            "bgcolor=red",
            "Invalid parameter bgcolor (\"red\"): six hexadecimal digits",
        ),
        ("style=bars", "Invalid parameter style (\"bars\")"),
        ("smooth=much", "Invalid parameter smooth (\"much\")"),
        ("theme=blue", "Invalid parameter theme (\"blue\")"),
        ("o=&o=", "2 `o' parameters, but 1 `m' parameters."),
        ("tz=Nowhere", "Nowhere"),
    ] {
        let response = service.get(&path(&format!("{parameter}&json"))).await;
        assert_eq!(response.status, 400, "{parameter}");
        let text = response.json()["err"].as_str().unwrap().to_owned();
        assert!(text.contains(message), "{text}");
        let picture = service.get(&path(&format!("{parameter}&png"))).await;
        assert_eq!(picture.status, 400, "{parameter}");
        size(&picture);
    }
    let picture = service.get("/q?start=1h-ago&m=sum:%3Cb%3E&svg").await;
    assert_eq!(
        (picture.status, picture.header("content-type")),
        (400, Some("image/svg+xml"))
    );
    assert!(picture.text().contains("&lt;b"), "{}", picture.text());
    let page = service.get("/q?start=1h-ago&m=sum:%3Cb%3E&ascii").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=UTF-8"));
}

#[tokio::test]
async fn pictures_of_the_past_are_served_again() {
    let service = service().await;
    let first = service.get(&path("png")).await;
    assert_eq!(first.header("cache-control"), Some("private, max-age=86400"));
    assert_eq!(first.header("age"), None);
    let again = service.get(&path("ignore=7&png")).await;
    assert_eq!(again.header("age"), Some("0"));
    assert_eq!(again.body, first.body);
    assert_eq!(service.get(&path("nocache&png")).await.header("age"), None);
    assert_eq!(service.get(&path("title=t&png")).await.header("age"), None);
    assert_eq!(service.get(&path("svg")).await.header("age"), None);
    let future = service
        .get("/q?start=1h-ago&end=2100/01/01-00:00:00&m=sum:m&png")
        .await;
    assert_eq!(future.header("cache-control"), Some("private, max-age=0"));
}

#[tokio::test]
async fn ascii_is_a_line_for_each_point() {
    let service = service().await;
    let response = service.get(&path("ascii")).await;
    assert_eq!(response.header("content-type"), Some("text/plain; charset=UTF-8"));
    let lines: String = ["a", "b"]
        .iter()
        .flat_map(|host| (0..3).map(move |n| format!("m {} {n}.0 host={host}\n", T + n * 60)))
        .collect();
    assert_eq!(response.text(), lines);
    let zoned = "/q?start=2013/01/01-09:00:00&end=2013/01/01-09:00:05&tz=Asia/Tokyo&m=max:m&ascii";
    let lines: String = (0..3).map(|n| format!("m {} {n}.0\n", T + n * 60)).collect();
    assert_eq!(
        service.get(zoned).await.text(),
        lines,
        "also points around the range"
    );
    let missing = service.get("/q?m=sum:m&ascii").await;
    assert_eq!(missing.status, 400);
    assert!(missing.text().contains("Missing parameter"), "{}", missing.text());
}
