//! The admin listener: metrics with exact numbers, liveness, readiness, running queries.

use anyhow::{Context as _, ensure};
use oxtsdb_tests::metrics::{Metrics, documented};
use oxtsdb_tests::sample::{ColumnsBuilder, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::{columns_request, write_request};
use oxtsdb_tests::{Tsdb, UidProgram, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const T: i64 = 1_700_000_000_000;

fn points(metric: &str, count: i64) -> Vec<Sample> {
    let point = |n| Sample::int(metric, &[("host", "a")], T + n * 1000, n);
    (0..count).map(point).collect()
}

/// Sends 10 points over `Write`, 20 over `WriteColumns`, 300 over a stream of 3 frames, 7 over HTTP in 2 requests,
/// and 5 over telnet; and to each but the stream one that is rejected.
async fn write(tsdb: &Tsdb) -> anyhow::Result<()> {
    let mut samples = points("metrics.write", 10);
    samples.push(Sample::int("no such#name", &[("host", "a")], T, 1));
    let response = tsdb.data().write(write_request(&samples)).await?.into_inner();
    ensure!((response.written, response.failed) == (10, 1), "{response:?}");
    let mut samples = points("metrics.columns", 20);
    samples.push(Sample::int("no such#name", &[("host", "a")], T, 1));
    let request = columns_request(ColumnsBuilder::default().columns(&samples));
    let response = tsdb.data().write_columns(request).await?.into_inner();
    ensure!((response.written, response.failed) == (20, 1), "{response:?}");
    let mut stream = WriteStream::open(&mut tsdb.data()).await?;
    for frame in points("metrics.stream", 300).chunks(100) {
        stream.send(frame).await?;
    }
    ensure!(stream.all_written().await? == 300);
    stream.close().await?;
    let http = points("metrics.http", 7);
    let bodies = http.split_at(4);
    for body in [bodies.0, bodies.1] {
        let body: Vec<Value> = body.iter().map(Sample::to_json).collect();
        let response = tsdb.http().post("/api/put", &Value::from(body)).await?;
        ensure!(response.status == 204, "{response:?}");
    }
    let bad = json!([{"metric": "metrics.http", "timestamp": 1, "value": "x", "tags": {"host": "a"}}]);
    let response = tsdb.http().post("/api/put", &bad).await?;
    ensure!(response.status == 400, "{response:?}");
    let mut telnet = tsdb.telnet().await?;
    let lines: String = points("metrics.telnet", 5)
        .iter()
        .map(Sample::to_telnet_line)
        .collect();
    telnet.send(lines.as_bytes()).await?;
    telnet
        .send(b"put metrics.telnet 1700000000 x host=a\nversion\nnonsense\nexit\n")
        .await?;
    let replies = telnet.rest().await?;
    ensure!(replies.contains("unknown command"), "{replies}");
    Ok(())
}

fn is(metrics: &Metrics, sample: &str, expected: f64) -> anyhow::Result<()> {
    let value = metrics.value(sample);
    let alike = metrics
        .samples()
        .iter()
        .filter(|(other, _)| other.split('{').next() == sample.split('{').next());
    ensure!(
        value.to_bits() == expected.to_bits(),
        "{sample} is {value}, expected {expected}; there are {:#?}",
        alike.collect::<Vec<_>>()
    );
    Ok(())
}

/// The value of a statistic of `/api/stats`.
async fn statistic(tsdb: &Tsdb, metric: &str, tag: Option<(&str, &str)>) -> anyhow::Result<u64> {
    let all = tsdb.http().get("/api/stats").await?.json()?;
    let all = all.as_array().context("an array")?;
    let statistic = all.iter().find(|statistic| {
        statistic["metric"] == metric && tag.is_none_or(|(key, value)| statistic["tags"][key] == value)
    });
    let value = &statistic.with_context(|| format!("no {metric} {tag:?} in {all:#?}"))?["value"];
    Ok(value.as_str().context("values are texts")?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_points_and_requests_of_all_protocols_exactly() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    write(&tsdb).await?;
    // A stream's call ends behind its last message, and a line is counted behind its reply.
    let call = |method: &str, code: &str| {
        format!(
            "oxtsdb_requests_total{{protocol=\"grpc\",method=\"oxtsdb.data.v1.DataService/{method}\",code=\"{code}\"}}"
        )
    };
    let admin = tsdb.admin();
    let metrics = until("the stream has ended", || async {
        let metrics = Metrics::scrape(&admin).await?;
        is(&metrics, &call("WriteStream", "OK"), 1.0)?;
        Ok(metrics)
    })
    .await?;
    is(&metrics, &call("Write", "OK"), 1.0)?;
    is(&metrics, &call("WriteColumns", "OK"), 1.0)?;
    for (name, protocol, expected) in [
        ("points_added_total", "grpc", 330.0),
        ("points_added_total", "http", 7.0),
        ("points_added_total", "telnet", 5.0),
        ("points_rejected_total", "grpc", 2.0),
        ("points_rejected_total", "http", 1.0),
        ("points_rejected_total", "telnet", 1.0),
        ("points_failed_total", "grpc", 0.0),
        ("points_failed_total", "http", 0.0),
        ("points_failed_total", "telnet", 0.0),
        ("write_batches_total", "grpc", 5.0),
    ] {
        is(
            &metrics,
            &format!("oxtsdb_{name}{{protocol=\"{protocol}\"}}"),
            expected,
        )?;
    }
    for (labels, expected) in [
        (r#"protocol="http",method="/api/put",code="204""#, 2.0),
        (r#"protocol="http",method="/api/put",code="400""#, 1.0),
        (r#"protocol="telnet",method="put",code="ok""#, 5.0),
        (r#"protocol="telnet",method="put",code="invalid_value""#, 1.0),
        (r#"protocol="telnet",method="version",code="ok""#, 1.0),
        (r#"protocol="telnet",method="other",code="unknown_command""#, 1.0),
    ] {
        is(&metrics, &format!("oxtsdb_requests_total{{{labels}}}"), expected)?;
    }
    let write = r#"protocol="grpc",method="oxtsdb.data.v1.DataService/Write""#;
    is(&metrics, &format!("oxtsdb_request_seconds_count{{{write}}}"), 1.0)?;
    is(&metrics, &format!("oxtsdb_requests_in_flight{{{write}}}"), 0.0)?;
    is(
        &metrics,
        "oxtsdb_request_seconds_count{protocol=\"http\",method=\"/api/put\"}",
        3.0,
    )?;
    let added = statistic(&tsdb, "tsd.datapoints.added", Some(("type", "all"))).await?;
    ensure!(added == 342, "{added} points over all protocols");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_queries_errors_syncs_and_uids_exactly() -> anyhow::Result<()> {
    let options = oxtsdb_tests::Options::default().flag("--query-max-points", "100");
    let tsdb = Tsdb::start_with(options).await?;
    write(&tsdb).await?;
    let query = |metric: &str| format!("/api/query?start=1600000000&m=sum:metrics.{metric}");
    for metric in ["http", "telnet"] {
        let response = tsdb.http().get(&query(metric)).await?;
        ensure!(response.status == 200, "{response:?}");
    }
    let too_large = tsdb.http().get(&query("stream")).await?;
    ensure!(too_large.status == 413, "{too_large:?}");
    let empty = tsdb.data().write(write_request(&[])).await;
    ensure!(empty.is_err(), "{empty:?}");
    let admin = tsdb.admin();
    let metrics = until("UIDs are counted", || async {
        let metrics = Metrics::scrape(&admin).await?;
        is(&metrics, "oxtsdb_uid_used{kind=\"metrics\"}", 5.0)?;
        Ok(metrics)
    })
    .await?;
    for (sample, expected) in [
        ("oxtsdb_uid_used{kind=\"tagk\"}", 1.0),
        ("oxtsdb_uid_available{kind=\"metrics\"}", 16_777_210.0),
        ("oxtsdb_queries_total{result=\"ok\"}", 2.0),
        ("oxtsdb_queries_total{result=\"failed\"}", 1.0),
        ("oxtsdb_queries_over_limit_total{resource=\"points\"}", 1.0),
        ("oxtsdb_query_read_total{resource=\"series\"}", 2.0),
        ("oxtsdb_query_read_total{resource=\"points\"}", 12.0),
        ("oxtsdb_query_read_total{resource=\"points_sent\"}", 12.0),
        ("oxtsdb_query_stage_seconds_count{stage=\"queue\"}", 3.0),
        ("oxtsdb_query_stage_seconds_count{stage=\"plan\"}", 3.0),
        ("oxtsdb_query_stage_seconds_count{stage=\"aggregate\"}", 2.0),
        ("oxtsdb_queries_active{state=\"running\"}", 0.0),
        ("oxtsdb_store_series", 5.0),
        ("oxtsdb_cache_entries{cache=\"series\"}", 5.0),
        (
            "oxtsdb_errors_total{reason=\"BATCH_TOO_LARGE\",setting=\"\"}",
            1.0,
        ),
    ] {
        is(&metrics, sample, expected)?;
    }
    let syncs = metrics.value("oxtsdb_store_work_seconds_count{work=\"sync\"}");
    ensure!(syncs >= 5.0, "{syncs} syncs");
    let written = metrics.value("oxtsdb_store_journal_written_bytes_total");
    ensure!(written > 0.0, "{written} bytes");
    let of_grpc = statistic(&tsdb, "oxtsdb.points.added", Some(("type", "grpc"))).await?;
    ensure!(of_grpc == 330, "{of_grpc}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_methods_and_paths_share_a_label() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    for n in 0..50 {
        let response = tsdb.http().get(&format!("/api/made/up/{n}")).await?;
        ensure!(response.status == 404, "{response:?}");
        let mut grpc = tonic::client::Grpc::new(tsdb.data_channel());
        grpc.ready().await?;
        let path = format!("/made.up.Service{n}/Method").parse()?;
        let codec = tonic_prost_codec();
        let called: Result<tonic::Response<()>, _> = grpc.unary(tonic::Request::new(()), path, codec).await;
        let code = called.map(|_| ()).unwrap_err().code();
        ensure!(code == tonic::Code::Unimplemented, "{code:?}");
    }
    let mut telnet = tsdb.telnet().await?;
    let lines: String = (0..50).map(|n| format!("made{n} up\n")).collect();
    telnet.send(lines.as_bytes()).await?;
    telnet.send(b"exit\n").await?;
    telnet.rest().await?;
    let metrics = Metrics::scrape(&tsdb.admin()).await?;
    for (labels, expected) in [
        (r#"protocol="http",method="other",code="404""#, 50.0),
        (r#"protocol="grpc",method="other",code="UNIMPLEMENTED""#, 50.0),
        (r#"protocol="telnet",method="other",code="unknown_command""#, 50.0),
    ] {
        is(&metrics, &format!("oxtsdb_requests_total{{{labels}}}"), expected)?;
    }
    let made_up = metrics.samples().keys().find(|sample| sample.contains("made"));
    ensure!(made_up.is_none(), "{made_up:?}");
    Ok(())
}

/// A codec of empty messages.
fn tonic_prost_codec() -> tonic_prost::ProstCodec<(), ()> {
    tonic_prost::ProstCodec::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn alive_during_a_drain_but_not_ready() -> anyhow::Result<()> {
    let options = oxtsdb_tests::Options::default().flag("--lame-duck-seconds", "60");
    let mut tsdb = Tsdb::start_with(options).await?;
    let admin = tsdb.admin();
    let ready = admin.get("/readyz").await?;
    ensure!(
        (ready.status, ready.body.as_str()) == (200, "ready\n"),
        "{ready:?}"
    );
    tsdb.process().signal(Signal::TERM)?;
    let draining = until("it is not ready", || async {
        let response = admin.get("/readyz").await?;
        ensure!(response.status == 503, "{response:?}");
        Ok(response)
    })
    .await?;
    ensure!(draining.body.contains("draining"), "{draining:?}");
    let alive = admin.get("/healthz").await?;
    ensure!(alive.status == 200, "{alive:?}");
    let metrics = Metrics::scrape(&admin).await?;
    is(&metrics, "oxtsdb_connections{listener=\"http\"}", 0.0).or_else(|_| {
        // A connection of the start may be kept alive.
        is(&metrics, "oxtsdb_connections{listener=\"http\"}", 1.0)
    })?;
    // The second signal skips the lame duck.
    tsdb.process().signal(Signal::TERM)?;
    let status = tsdb.process().wait().await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_ends_the_start_with_the_setting() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let folder = tempfile::tempdir()?;
    let output = tokio::process::Command::new(oxtsdb_tests::program_path("tsdb")?)
        .arg("serve")
        .arg(format!("--data-dir={}", folder.path().display()))
        .args(["--http-listen=127.0.0.1:0", "--data-listen=127.0.0.1:0"])
        .arg("--uid-listen=127.0.0.1:0")
        .arg(format!("--admin-listen={}", tsdb.admin_address()))
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(oxtsdb_tests::PATIENCE, output).await??;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr)?;
    let expected = format!("--admin-listen {}: the port is in use; ", tsdb.admin_address());
    ensure!(error.contains(&expected), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_documented_one_exists() -> anyhow::Result<()> {
    let documented = documented()?;
    let tsdb = Tsdb::start().await?;
    write(&tsdb).await?;
    let query = "/api/query?start=1600000000&m=sum:metrics.http";
    ensure!(tsdb.http().get(query).await?.status == 200);
    // An error of the contract.
    ensure!(tsdb.data().write(write_request(&[])).await.is_err());
    let served = Metrics::scrape(&tsdb.admin()).await?;
    let unknown: Vec<&String> = served
        .families()
        .iter()
        .filter(|name| !documented.contains_key(*name))
        .collect();
    ensure!(unknown.is_empty(), "not in docs/operate.md: {unknown:?}");
    let missing: Vec<&String> = documented
        .iter()
        .filter(|(name, metric)| {
            !["HBase", "TLS"].contains(&metric.when.as_str()) && !served.families().contains(*name)
        })
        .map(|(name, _)| name)
        .collect();
    ensure!(missing.is_empty(), "in docs/operate.md only: {missing:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uid_service_alone_reports_its_own_metrics() -> anyhow::Result<()> {
    let documented = documented()?;
    let folder = tempfile::tempdir()?;
    let uid = UidProgram::start(folder.path(), None).await?;
    let served = Metrics::scrape(&uid.admin()).await?;
    for (name, metric) in &documented {
        let when = metric.when.as_str();
        let expected = ["always", "uid"].contains(&when);
        let is_served = served.families().contains(name);
        ensure!(
            is_served == expected || when == "used",
            "{name}, {when}: {is_served}"
        );
    }
    let page = uid.admin().get("/debug/queries").await?;
    ensure!(page.status == 404, "{page:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_listed() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    write(&tsdb).await?;
    let query = "/api/query?start=1600000000&m=sum:metrics.http";
    ensure!(tsdb.http().get(query).await?.status == 200);
    let page = tsdb.admin().get("/debug/queries").await?;
    let completed = &page.json()?["completed"];
    ensure!(
        completed[0]["query"]["queries"][0]["m"] == "sum:metrics.http",
        "{}",
        page.body
    );
    Ok(())
}
