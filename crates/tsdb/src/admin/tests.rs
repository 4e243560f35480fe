use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;

/// A server that sends the same bytes to each connection, and closes it.
fn serve(response: Vec<u8>) -> AdminListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(&response);
        }
    });
    AdminListener::new(url, Duration::from_secs(5))
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

const METRICS: &str = "# TYPE oxtsdb_memory_limit_bytes gauge\noxtsdb_memory_limit_bytes 7\n# EOF\n";

#[test]
fn urls_have_a_host_and_a_port() {
    for (text, url) in [
        ("http://h:4245", "http://h:4245"),
        ("https://h:4245/", "https://h:4245"),
        ("http://[::1]:4245", "http://[::1]:4245"),
    ] {
        assert_eq!(text.parse::<AdminUrl>().unwrap().to_string(), url);
    }
    for text in [
        "",
        "h:4245",
        "http://h",
        "http://:4245",
        "http://h:0",
        "http://h:99999",
        "ftp://h:4245",
        "http://h:4245/metrics",
        "http://h:4245/?x",
        "http://u:p@h:4245",
        "http://a b:1",
        "unix:///run/x",
    ] {
        let error = text.parse::<AdminUrl>().unwrap_err();
        assert!(error.contains("http://HOST:PORT"), "{text}: {error}");
    }
}

#[tokio::test]
async fn reads_metrics_readiness_and_queries() {
    let metrics = serve(http("200 OK", METRICS)).metrics().await.unwrap();
    assert_eq!(metrics.value("oxtsdb_memory_limit_bytes", &[]), Some(7.0));
    assert!(
        serve(http("200 OK", "ready\n"))
            .readiness()
            .await
            .unwrap()
            .is_empty()
    );
    let reasons = serve(http("503 Service Unavailable", "not ready\na\nb\n"))
        .readiness()
        .await;
    assert_eq!(reasons.unwrap(), ["a", "b"]);
    assert!(
        serve(http("404 Not Found", "no page"))
            .queries()
            .await
            .unwrap()
            .is_none()
    );
    let page = r#"{"completed":[],"running":[{"id":7,"query":{"start":"1","end":"2","queries":[{"index":0,"m":"sum:m"}]},
        "queryStartTimestamp":1,"stats":{"totalTime":1500,"series":1,"rowsFromStorage":2,"bytesFromStorage":3,
        "dpsPreFilter":4,"memoryBytes":5}}]}"#;
    let queries = serve(http("200 OK", page)).queries().await.unwrap().unwrap();
    let query = &queries.running[0];
    assert_eq!(
        (query.id, query.text().as_str(), query.elapsed_ms()),
        (7, "sum:m", 1500)
    );
    assert_eq!((query.series(), query.rows(), query.bytes()), (1, 2, 3));
    assert_eq!((query.points(), query.memory()), (4, 5));
}

#[tokio::test]
async fn other_servers_are_wrong_and_missing_ones_are_away() {
    let large = "x".repeat(usize::try_from(MAX_BYTES).unwrap() + 1);
    let foreign = "# TYPE up gauge\nup 1\n# EOF\n";
    for (response, expected) in [
        (
            http("404 Not Found", "{\"error\":1}"),
            "/metrics responded 404: {\"error\":1}",
        ),
        (http("301 Moved", ""), "/metrics responded 301"),
        (http("200 OK", foreign), "has no oxtsdb_memory_limit_bytes"),
        (
            http("200 OK", "# TYPE a gauge\na one\n# EOF\n"),
            "line 2: the value is not a number: `a one`",
        ),
        (http("200 OK", &large), "more than 8388608 bytes"),
        // The beginning of HTTP/2, and of a telnet server.
        (
            b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0".to_vec(),
            "is not HTTP/1.1",
        ),
        (
            b"unknown command: GET.  Try `help'.\n".to_vec(),
            "is not HTTP/1.1",
        ),
    ] {
        let error = serve(response).metrics().await.unwrap_err();
        assert!(!error.is_away(), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let error = serve(http("502 Bad Gateway", "no upstream"))
        .metrics()
        .await
        .unwrap_err();
    assert!(
        error.is_away() && error.reason().contains("502: no upstream"),
        "{error}"
    );
    // Port 1 is reserved, and nothing listens on it.
    let url: AdminUrl = "http://127.0.0.1:1".parse().unwrap();
    let error = AdminListener::new(url, Duration::from_secs(5))
        .metrics()
        .await
        .unwrap_err();
    assert!(
        error.is_away() && error.to_string().contains("refused"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_hangs_is_away_after_the_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: AdminUrl = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let error = AdminListener::new(url, Duration::from_millis(50))
        .metrics()
        .await
        .unwrap_err();
    assert!(
        error.is_away() && error.to_string().contains("no response in time"),
        "{error}"
    );
}

#[test]
fn each_target_is_called_once() {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        targets: AdminTargets,
    }
    let command = |urls| <Command as clap::Parser>::try_parse_from(["x", "--admin", urls]);
    let targets = command("http://a:1,http://b:2,http://a:1/").unwrap().targets;
    let listeners = targets.listeners(Duration::from_secs(1));
    let urls: Vec<String> = listeners
        .iter()
        .map(|listener| listener.url().to_string())
        .collect();
    assert_eq!(urls, ["http://a:1", "http://b:2"]);
    assert!(command("http://a:1,").is_err());
}
