//! Points that `/api/put` rejects, with OpenTSDB's texts.

use std::io::Write as _;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::sample::Sample;
use serde_json::{Value, json};

use super::points::*;

#[tokio::test(flavor = "multi_thread")]
async fn put_rejects_points_with_opentsdbs_messages() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = |metric: Value, timestamp: Value, value: Value, tags: Value| json!({"metric": metric, "timestamp": timestamp, "value": value, "tags": tags});
    let seconds = json!(T / 1000);
    let host = json!({"host": "a"});
    let nine: serde_json::Map<String, Value> =
        (0..9).map(|number| (format!("k{number}"), json!("v"))).collect();
    let m = || json!("m");
    let cases: Vec<(Value, &str)> = vec![
        (
            point(json!(""), seconds.clone(), json!(1), host.clone()),
            "Metric name was empty",
        ),
        (
            json!({"timestamp": 1, "value": 1, "tags": {"host": "a"}}),
            "Metric name was empty",
        ),
        (point(m(), json!(0), json!(1), host.clone()), "Invalid timestamp"),
        (point(m(), json!(-1), json!(1), host.clone()), "Invalid timestamp"),
        (
            point(m(), seconds.clone(), json!(""), host.clone()),
            "Empty value",
        ),
        (point(m(), seconds.clone(), json!(1), json!({})), "Missing tags"),
        (
            point(m(), seconds.clone(), json!("abc"), host.clone()),
            "Unable to parse value to a number",
        ),
        (
            point(m(), seconds.clone(), json!("NaN"), host.clone()),
            "Unable to parse value to a number",
        ),
        (
            point(m(), seconds.clone(), json!("9223372036854775808"), host.clone()),
            "Unable to parse value to a number",
        ),
        (
            point(m(), seconds.clone(), json!("1e400"), host.clone()),
            "value is NaN or Infinite: Infinity for metric=m timestamp=1500000000",
        ),
        (
            point(m(), json!(10_000_000_000_000_i64), json!(1), host.clone()),
            "bad timestamp=10000000000000 when trying to add value=[1]/0 to metric=m, tags={host=a}",
        ),
        (
            point(m(), seconds.clone(), json!(1), Value::Object(nine)),
            "Too many tags: 9 maximum allowed: 8, tags: {",
        ),
        (
            point(json!("a b"), seconds.clone(), json!(1), host.clone()),
            "Invalid metric name (\"a b\"): illegal character:   (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
        ),
        (
            point(m(), seconds.clone(), json!(1), json!({"ho st": "a"})),
            "Invalid tag name with value [a] (\"ho st\"): illegal character:   (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
        ),
        (
            point(m(), seconds.clone(), json!(1), json!({"host": "a b"})),
            "Invalid tag value with key [host] (\"a b\"): illegal character:   (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
        ),
        (
            point(m(), seconds, json!(1), json!({"host": ""})),
            "Invalid tag value with key [host] (\"\"): empty string",
        ),
    ];
    let good = |number: i64| Sample::int(GOOD, &[("path", "http")], T + number * 1000, number).to_json();
    for (number, (bad, text)) in cases.iter().enumerate() {
        let number = i64::try_from(number)?;
        let body = json!([good(2 * number), bad, good(2 * number + 1)]);
        let answer = tsdb.http().post("/api/put?details", &body).await?;
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
        let answer = answer.json()?;
        assert_eq!(
            (&answer["success"], &answer["failed"]),
            (&json!(2), &json!(1)),
            "{bad}: {answer}"
        );
        let error = answer["errors"][0]["error"].as_str().context("an error text")?;
        // Of nine tags the text ends with a list in the order of a hash table.
        assert!(
            error == *text || (text.ends_with('{') && error.starts_with(text)),
            "{bad}: `{error}` is not `{text}`"
        );
        assert_eq!(
            answer["errors"][0]["datapoint"]["tags"], bad["tags"],
            "{bad}: the point is shown"
        );
    }
    check_good(&tsdb, "http", cases.len() * 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn put_rejects_bad_bodies_with_opentsdbs_envelope() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let cases: &[(&str, &str)] = &[
        ("[]", "No datapoints found in content"),
        ("", "Missing request content"),
        ("put m 1 1 a=b", "The JSON must start as an object or an array"),
        (r#"{"metric":"m""#, "Unable to parse the given JSON"),
        (r#"[{"metric":]"#, "Unable to parse the given JSON"),
        (
            r#"{"metric":"m","timestamp":{"a":1},"value":1,"tags":{"a":"b"}}"#,
            "Unable to parse the given JSON",
        ),
    ];
    for (body, message) in cases {
        let answer = tsdb
            .http()
            .post_bytes("/api/put", &[], body.as_bytes().to_vec())
            .await?;
        assert_eq!(answer.status, 400, "`{body}`: {answer:?}");
        assert_eq!(answer.error_message()?, *message, "`{body}`");
    }

    let answer = tsdb.http().get("/api/put").await?;
    assert_eq!(
        (answer.status, answer.error_message()?.as_str()),
        (405, "Method not allowed")
    );
    let answer = tsdb.http().get("/api/nonsense").await?;
    assert_eq!(
        (answer.status, answer.error_message()?.as_str()),
        (404, "Endpoint not found")
    );

    // Nested so deep that a parser which calls itself would run out of stack.
    for open in ["[", "{\"a\":"] {
        let body = open.repeat(200_000).into_bytes();
        let answer = tsdb.http().post_bytes("/api/put", &[], body).await?;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(tsdb.http().get("/api/version").await?.status, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_and_a_null_point_are_treated_as_opentsdb_does() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut point = Sample::int(GOOD, &[("path", "unknown")], T, 0).to_json();
    point["comment"] = json!({"any": ["thing", 1, null]});
    let answer = tsdb
        .http()
        .post("/api/put?details", &json!([point, null]))
        .await?;
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = answer.json()?;
    assert_eq!((&answer["success"], &answer["failed"]), (&json!(1), &json!(1)));
    assert_eq!(
        answer["errors"][0]["error"],
        "Unexpected null datapoint encountered in set."
    );
    check_good(&tsdb, "unknown", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn accepts_gzip_and_rejects_broken_gzip() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = Sample::int(GOOD, &[("path", "gzip")], T, 0).to_json();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(point.to_string().as_bytes())?;
    let whole = encoder.finish()?;
    let gzip = [("Content-Encoding", "gzip")];

    let half = whole[..whole.len() / 2].to_vec();
    let mut damaged = whole.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 0xff;
    for broken in [half, damaged, b"no gzip at all".to_vec()] {
        let answer = tsdb.http().post_bytes("/api/put", &gzip, broken).await?;
        assert_eq!(answer.status, 400, "{answer:?}");
        answer.error_message()?;
    }
    let answer = tsdb.http().post_bytes("/api/put", &gzip, whole).await?;
    assert_eq!(answer.status, 204, "{answer:?}");
    check_good(&tsdb, "gzip", 1).await
}
