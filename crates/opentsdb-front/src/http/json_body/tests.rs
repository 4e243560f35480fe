use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_query::RequestContext;
use oxtsdb_resources::{MemoryAccount, MemoryPool};
use oxtsdb_test_stack::TestStack;
use serde_json::json;

use super::*;
use crate::http::request_body::{self, BodyLimits};
use crate::http::{ENDPOINTS, HttpApi, endpoint};

async fn body(content: &str, pool: &MemoryPool, compute: &ComputePool) -> RequestBody {
    let request = Request::new(Full::new(Bytes::from(content.to_owned())));
    let limits = BodyLimits {
        max_bytes: 16 << 20,
        pool,
        wait: request_body::WRITE_MEMORY_WAIT,
        compute,
    };
    request_body::read(request, limits).await.unwrap()
}

#[tokio::test]
async fn parses_large_bodies_in_the_computation_pool() {
    let (pool, compute) = (MemoryPool::unlimited("query"), ComputePool::new(1).unwrap());
    let thread = |_: &[u8]| Ok(std::thread::current().id());
    let here = std::thread::current().id();
    for (bytes, is_inline) in [(INLINE_BYTES, true), (INLINE_BYTES + 1, false)] {
        let mut body = body(&" ".repeat(bytes), &pool, &compute).await;
        let parsed_on = parsed(&mut body, &compute, thread).await.unwrap();
        assert_eq!(parsed_on == here, is_inline, "{bytes}");
    }
}

#[tokio::test]
async fn charges_the_parsed_form_before_parsing() {
    let compute = ComputePool::new(1).unwrap();
    let content = format!("[{}1]", "1,".repeat(9_999));
    let pool = MemoryPool::new("query", 1_000_000);
    let mut read = body(&content, &pool, &compute).await;
    assert_eq!(pool.usage().used_bytes, content.len() as u64);
    let error = parsed(&mut read, &compute, |_| -> Result<(), _> {
        panic!("parsed without memory")
    });
    assert!(error.await.unwrap_err().message.contains("--memory-limit-mib"));
    let pool = MemoryPool::new("query", 2 << 20);
    let mut read = body(&content, &pool, &compute).await;
    let used = pool.clone();
    let charged = parsed(&mut read, &compute, move |_| Ok(used.usage().used_bytes)).await;
    assert!(charged.unwrap() >= 1_000_000);
    drop(read);
    assert_eq!(pool.usage().used_bytes, 0);
}

#[tokio::test]
async fn queries_that_wait_for_admission_stay_charged() {
    let memory = MemoryAccount::new(256 << 20, 0);
    let mut settings = DataSettings::default();
    settings.queries.max_concurrent_queries = 1;
    let stack = TestStack::with_memory(settings, &memory).await;
    let service = stack.service;
    let api = HttpApi::new(
        service.writer,
        service.engine.clone(),
        service.uids,
        service.trees,
        None,
        &stack.settings,
        Arc::default(),
    );
    let used = || memory.query().usage().used_bytes;
    let tsuids = vec!["000001000001000001"; 9_000];
    for (path, content) in [
        (
            "/api/query",
            json!({"start": 1, "end": 2, "queries": [{"aggregator": "sum", "tsuids": tsuids}]}),
        ),
        ("/api/query/last", json!({"queries": [{"tsuids": tsuids}]})),
    ] {
        let running = service
            .engine
            .admit(
                RequestContext::local(None),
                oxtsdb_query::QueryDescription::default(),
                None,
            )
            .await
            .unwrap();
        let before = used();
        let request = Request::post(path).body(Full::new(Bytes::from(content.to_string())));
        let waiting = tokio::spawn({
            let api = api.clone();
            async move {
                api.handle(endpoint::find(ENDPOINTS, path), request.unwrap())
                    .await
            }
        });
        let charged = async {
            while used() < before + 900_000 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), charged)
            .await
            .unwrap();
        drop(running);
        let response = waiting.await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let response = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(response, "[]");
        let released = async {
            while used() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), released)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn limits_the_values_of_all_lists_together() {
    let service = oxtsdb_test_stack::service::Service::start().await;
    let one = json!({"aggregator": "sum", "metric": "m", "tsuids": vec![""; 6000]});
    let query = json!({"start": 1, "queries": vec![one; 100]}).to_string();
    for path in ["/api/query", "/api/suggest"] {
        let response = service.post(path, &query).await;
        assert_eq!(
            (response.status, response.json()["error"]["message"].as_str()),
            (400, Some("body has more than 500000 JSON values")),
            "{path}"
        );
    }
}
