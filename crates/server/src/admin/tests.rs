use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::*;

async fn get(admin: &Admin, method: Method, path: &str) -> (StatusCode, String) {
    let response = serve::respond(admin, &Semaphore::new(1), &method, path).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn serves_metrics_liveness_readiness_and_pages() {
    let admin = Admin::default();
    admin.add_page("/debug/queries", || b"[]".to_vec());
    assert_eq!(get(&admin, Method::GET, "/healthz").await.0, StatusCode::OK);
    let (status, text) = get(&admin, Method::GET, "/readyz").await;
    assert_eq!(
        (status, text.as_str()),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready\nstarting: stores are opened and checked\n"
        )
    );
    admin.readiness.started();
    assert_eq!(
        get(&admin, Method::GET, "/readyz").await,
        (StatusCode::OK, "ready\n".to_owned())
    );
    let (status, text) = get(&admin, Method::GET, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert_eq!(get(&admin, Method::GET, "/debug/queries").await.1, "[]");
    let (status, text) = get(&admin, Method::GET, "/").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        text.contains("/metrics /healthz /readyz /debug/queries"),
        "{text}"
    );
    let (status, text) = get(&admin, Method::POST, "/metrics").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(text.contains("POST"), "{text}");
}

#[tokio::test]
async fn a_failed_page_is_an_error_and_the_next_one_is_served() {
    let admin = Admin::default();
    admin.add_page("/debug/broken", || panic!("a broken page"));
    let rendering = Semaphore::new(1);
    let broken = serve::respond(&admin, &rendering, &Method::GET, "/debug/broken").await;
    assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let metrics = serve::respond(&admin, &rendering, &Method::GET, "/metrics").await;
    assert_eq!(metrics.status(), StatusCode::OK);
}

#[tokio::test]
async fn serves_connections_and_keeps_them_alive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(serve::serve(listener, Admin::default()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut response = Vec::new();
        let read = async {
            while !response.ends_with(b"ok\n") {
                assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0);
            }
        };
        tokio::time::timeout(Duration::from_secs(10), read).await.unwrap();
        assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    task.abort();
}
