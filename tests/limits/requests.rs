//! Requests within the limit of bytes that would decode to gigabytes.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::future::join_all;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::raw_grpc::{self, RawChannel};
use oxtsdb_tests::refusal;
use tokio::time::timeout;
use tonic::Code;

use crate::support::{MOST_BYTES, RESPONSE_TIMEOUT, Target};

/// Bytes of a request: a little less than the limit of 16 MiB.
const BYTES: usize = (16 << 20) - 1024;

/// Concurrent gRPC requests of a kind. Over HTTP it is one: a debug build takes seconds to count elements
/// of JSON.
const AT_A_TIME: usize = 3;

/// A field of a message: its number, and the bytes of its value.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut message = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 0x7f {
        message.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    message.push(u8::try_from(length).unwrap_or_default());
    message.extend(value);
    message
}

/// Millions of empty elements of a field, wrapped in the fields of `path` from the inside out.
fn empty_elements(number: u8, path: &[u8]) -> Bytes {
    let elements = [number << 3 | 2, 0].repeat(BYTES / 2);
    path.iter()
        .fold(elements, |message, number| field(*number, &message))
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_rejects_millions_of_empty_elements() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    let address = target.tsdb.data_address();
    const QUERY: &str = "/oxtsdb.data.v1.DataService/Query";
    const EXPLAIN: &str = "/oxtsdb.data.v1.DataService/Explain";
    const EXPRESSIONS: &str = "/oxtsdb.data.v1.DataService/QueryExpressions";
    const LAST: &str = "/oxtsdb.data.v1.DataService/QueryLast";
    let requests = [
        ("queries", QUERY, empty_elements(2, &[])),
        ("queries of query", EXPLAIN, empty_elements(2, &[1])),
        ("filters of a query", EXPLAIN, empty_elements(2, &[1, 2, 1])),
        ("inputs", EXPRESSIONS, empty_elements(2, &[])),
        ("expressions", EXPRESSIONS, empty_elements(3, &[])),
        ("outputs", EXPRESSIONS, empty_elements(4, &[])),
        ("filters of an input", EXPRESSIONS, empty_elements(2, &[1, 2, 2])),
        ("names of a function", EXPRESSIONS, empty_elements(1, &[3, 3])),
        ("targets", LAST, empty_elements(1, &[])),
    ];
    for (what, path, message) in requests {
        let begun = Instant::now();
        let calls = (0..AT_A_TIME).map(|_| {
            let message = message.clone();
            async move {
                let channel = RawChannel::connect(address).await?;
                let call = raw_grpc::call(channel, RawChannel::origin(address)?, path, message);
                anyhow::Ok(timeout(RESPONSE_TIMEOUT, call).await.context("no response")?)
            }
        });
        for response in join_all(calls).await {
            let context = || format!("{what} of {path}");
            match response.with_context(context)? {
                Ok(_) => anyhow::bail!("{} were accepted", context()),
                Err(status) => {
                    refusal::check_status(&status).with_context(context)?;
                    // Overload is a rejection too.
                    if status.code() == Code::InvalidArgument {
                        ensure!(
                            reason_of(&status) == Some(ErrorReason::BatchTooLarge),
                            "{status:?}"
                        );
                    }
                }
            }
        }
        println!("  {:.1} s: {what} of {path}", begun.elapsed().as_secs_f64());
        target.memory.check_below(MOST_BYTES).context(what)?;
    }
    target.check_with(bystander).await
}

/// JSON with elements that fill its last array.
fn filled(begin: &str, element: &str, end: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(BYTES);
    body.extend(begin.as_bytes());
    body.extend(element.as_bytes());
    while body.len() + element.len() + end.len() + 1 < BYTES {
        body.push(b',');
        body.extend(element.as_bytes());
    }
    body.extend(end.as_bytes());
    body
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn http_rejects_millions_of_empty_elements() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    let one_query = r#"{"start":1,"queries":[{"aggregator":"sum","metric":"m""#;
    let requests = [
        ("/api/query", r#"{"start":1,"queries":["#.to_owned(), "{}", "]}"),
        ("/api/query", format!(r#"{one_query},"filters":["#), "{}", "]}]}"),
        (
            "/api/query",
            format!(r#"{one_query},"tsuids":["#),
            r#""0000FF0000FF0000FF""#,
            "]}]}",
        ),
        ("/api/query/last", r#"{"queries":["#.to_owned(), "{}", "]}"),
        (
            "/api/query/last",
            r#"{"queries":[{"tsuids":["#.to_owned(),
            r#""0000FF0000FF0000FF""#,
            "]}]}",
        ),
        ("/api/query/exp", r#"{"expressions":["#.to_owned(), "{}", "]}"),
        (
            "/api/query/exp",
            r#"{"filters":[{"id":"f","tags":["#.to_owned(),
            "{}",
            "]}]}",
        ),
        ("/api/put", "[".to_owned(), "{}", "]"),
    ];
    for (path, begin, element, end) in requests {
        let body = filled(&begin, element, end);
        let context = || format!("{path} with {begin}{element},{element},...");
        let begun = Instant::now();
        let response = target.post(path, &body).await.with_context(context)?;
        refusal::check_response(&response).with_context(context)?;
        println!("  {:.1} s: {}", begun.elapsed().as_secs_f64(), context());
        target.memory.check_below(MOST_BYTES).with_context(context)?;
    }
    target.check_with(bystander).await
}
