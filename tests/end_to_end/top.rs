//! `tsdb top` over real servers: rates, counts, running queries, outages, the terminal.

use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::{AggregateFunction, QueryRequest};
use oxtsdb_tests::certificates::Authority;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::read_back::{always, sub_query};
use oxtsdb_tests::terminal::Terminal;
use oxtsdb_tests::{DataProgram, Tsdb, UidProgram, program_path, until};
use rustix::process::Signal;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::transport::Endpoint;

fn top(admin: &str, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(program_path("tsdb")?);
    command.args(["top", "--admin", admin]).args(arguments);
    Ok(command)
}

/// Its status, output and errors.
async fn printed(command: Command) -> anyhow::Result<(Option<i32>, String, String)> {
    let output = tokio::process::Command::from(command).output().await?;
    let text = |bytes| String::from_utf8(bytes);
    Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
}

fn url(tsdb: &Tsdb) -> String {
    format!("http://{}", tsdb.admin_address())
}

/// Puts points over HTTP; the first has a value that is no number.
async fn put(tsdb: &Tsdb, count: i64) -> anyhow::Result<()> {
    let point = |n: i64| {
        let value = if n == 0 { json!("x") } else { json!(n) };
        json!({"metric": "top.put", "timestamp": 1_700_000_000 + n, "value": value, "tags": {"host": "a"}})
    };
    let body: Vec<Value> = (0..=count).map(point).collect();
    let response = tsdb.http().post("/api/put", &Value::from(body)).await?;
    ensure!(response.status == 400, "{response:?}");
    Ok(())
}

/// The row of a section with this value.
fn row<'a>(frame: &'a Value, section: &str, key: &str, value: &str) -> Option<&'a Value> {
    frame[section].as_array()?.iter().find(|row| row[key] == value)
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_add_up_to_what_was_written() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let command = top(
        &url(&tsdb),
        &["--count", "1000", "--interval", "0.3", "--format", "json"],
    )?;
    let mut command = tokio::process::Command::from(command);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let first: Value = serde_json::from_str(&lines.next_line().await?.context("a frame")?)?;
    ensure!(
        first["since_start"] == true && first.get("points").is_none(),
        "{first}"
    );
    put(&tsdb, 300).await?;
    put(&tsdb, 7).await?;
    let (mut added, mut rejected, mut requests, mut errors, mut synced) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let last = loop {
        let frame: Value = serde_json::from_str(&lines.next_line().await?.context("a frame")?)?;
        ensure!(frame["since_start"] == false, "{frame}");
        let seconds = frame["seconds"].as_f64().context("seconds")?;
        ensure!((0.1..60.0).contains(&seconds), "{seconds}");
        let count =
            |row: Option<&Value>, key: &str| row.and_then(|row| row[key].as_f64()).unwrap_or(0.0) * seconds;
        let points = row(&frame, "points", "protocol", "http");
        added += count(points, "added_per_second");
        rejected += count(points, "rejected_per_second");
        let put = row(&frame, "requests", "method", "/api/put");
        requests += count(put, "per_second");
        errors += count(put, "errors_per_second");
        synced += count(row(&frame, "store_work", "work", "sync"), "per_second");
        // A request is counted after its response.
        if points.is_some_and(|points| points["added"] == 307.0) && requests > 1.5 {
            break frame;
        }
    };
    for (name, count, expected) in [
        ("added", added, 307.0),
        ("rejected", rejected, 2.0),
        ("requests", requests, 2.0),
        ("errors", errors, 2.0),
    ] {
        ensure!(
            (count - expected).abs() < 1e-6,
            "{name}: {count}, expected {expected}"
        );
    }
    ensure!(synced >= 1.0 - 1e-6, "{synced} syncs");
    ensure!(last["points"][0]["rejected"] == 2.0, "{last}");
    let reason = &last["rejected"][0];
    ensure!(
        last["rejected"]
            .as_array()
            .is_some_and(|rejected| rejected.len() == 1)
            && reason["points"] == 2.0,
        "one reason and caller: {last}"
    );
    ensure!(
        reason["reason"] == "Unable to parse value to a number"
            && reason["point"]
                .as_str()
                .is_some_and(|point| point.contains("top.put")),
        "{last}"
    );
    ensure!(last["store"][0]["series"] == 1.0, "{last}");
    ensure!(last["servers"][0]["state"] == "ready", "{last}");
    ensure!(
        last["servers"][0]["version"] == env!("CARGO_PKG_VERSION"),
        "{last}"
    );
    child.kill().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_running_queries() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let load = Load::new("held", 100, 4000);
    load.write(&tsdb).await?;
    // Its results exceed the windows, and are not read.
    let endpoint = Endpoint::from_shared(format!("http://{}", tsdb.data_address()))?;
    let channel = endpoint.initial_stream_window_size(65_535).connect_lazy();
    let request = QueryRequest {
        range: Some(always()),
        queries: vec![sub_query("held", AggregateFunction::None)],
        ..QueryRequest::default()
    };
    let mut held = DataServiceClient::new(channel).query(request).await?.into_inner();
    held.message().await?.context("a frame")?;
    let frame = until("the query is shown", || async {
        let (status, output, errors) = printed(top(&url(&tsdb), &["--once", "--format", "json"])?).await?;
        ensure!(status == Some(0), "{errors}");
        let frame: Value = serde_json::from_str(&output)?;
        ensure!(
            frame["running"][0]["rows"]
                .as_f64()
                .is_some_and(|rows| rows > 0.0),
            "{frame}"
        );
        Ok(frame)
    })
    .await?;
    let query = &frame["running"][0];
    ensure!(
        query["query"].as_str().is_some_and(|text| text.contains("held")),
        "{query}"
    );
    ensure!(
        query["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0),
        "{query}"
    );
    let in_flight = row(&frame, "requests", "method", "oxtsdb.data.v1.DataService/Query");
    ensure!(in_flight.is_some_and(|row| row["in_flight"] == 1.0), "{frame}");
    let (status, text, _) = printed(top(&url(&tsdb), &["--once"])?).await?;
    ensure!(status == Some(0), "{text}");
    let line = text
        .lines()
        .skip_while(|line| !line.starts_with("RUNNING"))
        .nth(1);
    let id = query["id"].to_string();
    ensure!(
        line.is_some_and(|line| line.starts_with(&id) && line.contains("held")),
        "{text}"
    );
    for section in [
        "SERVER", "POINTS", "QUERIES", "REQUESTS", "MEMORY", "CACHES", "STORE", "UIDS",
    ] {
        ensure!(
            text.lines().any(|line| line.starts_with(section)),
            "{section} in\n{text}"
        );
    }
    ensure!(!text.contains("HBASE") && !text.contains('\u{1b}'), "{text}");
    drop(held);
    until("no query is shown", || async {
        let (_, text, _) = printed(top(&url(&tsdb), &["--once"])?).await?;
        ensure!(!text.contains("RUNNING") && text.contains("running 0"), "{text}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_outlives_a_restart_and_restores_the_terminal() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    put(&tsdb, 5).await?;
    let live = |columns| Terminal::run(top(&url(&tsdb), &["--interval", "0.1"])?, columns);
    let mut terminal = live(100)?;
    let (ended, interrupted, terminated) = (live(80)?, live(80)?, live(20)?);
    terminal.wait_for("1 of 1 ready").await?;
    terminal.wait_for("/api/put").await?;
    terminal.keys("s")?;
    terminal.wait_for("sorted by errors").await?;
    // Each of the others draws before it gets its key or signal.
    for other in [&ended, &interrupted, &terminated] {
        other.wait_for("tsdb top").await?;
    }
    tsdb.kill9()?;
    terminal.wait_for("0 of 1 ready").await?;
    terminal.wait_for("refused").await?;
    tsdb.restart().await?;
    terminal.wait_for("1 of 1 ready").await?;
    terminal.keys("p")?;
    terminal.wait_for("PAUSED").await?;
    terminal.keys("q")?;
    let (status, rest) = terminal.ended().await?;
    ensure!(
        status.code() == Some(0) && !rest.contains("tsdb"),
        "{status} {rest}"
    );
    for (mut terminal, keys) in [(ended, "\u{1b}"), (interrupted, "\u{3}")] {
        terminal.keys(keys)?;
        let (status, _) = terminal.ended().await?;
        ensure!(status.code() == Some(0), "{status} after {keys:?}");
    }
    terminated.signal(Signal::TERM)?;
    let (status, _) = terminated.ended().await?;
    ensure!(status.code() == Some(128 + 15), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_added_up_and_one_may_be_away() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let uid = UidProgram::start(folder.path(), None).await?;
    let data = DataProgram::start(folder.path(), uid.address()).await?;
    let urls = [data.admin_address(), uid.admin_address()].map(|address| format!("http://{address}"));
    let both = urls.join(",");
    let (status, output, errors) = printed(top(&both, &["--once", "--format", "json"])?).await?;
    ensure!(status == Some(0), "{errors}");
    let frame: Value = serde_json::from_str(&output)?;
    let servers = frame["servers"].as_array().context("servers")?;
    ensure!(
        servers.len() == 2 && servers.iter().all(|server| server["state"] == "ready"),
        "{frame}"
    );
    // The store is the data service's, the UIDs are the UID service's.
    ensure!(
        frame["store"].as_array().is_some_and(|rows| rows.len() == 1),
        "{frame}"
    );
    ensure!(
        frame["uids"].as_array().is_some_and(|rows| rows.len() == 3),
        "{frame}"
    );
    ensure!(
        frame["memory"].as_array().is_some_and(|rows| rows.len() == 4),
        "{frame}"
    );
    drop(uid);
    let (status, text, _) = printed(top(&both, &["--once"])?).await?;
    ensure!(status == Some(1), "{text}");
    ensure!(
        text.contains("away") && text.contains("refused") && text.contains("STORE"),
        "{text}"
    );
    ensure!(!text.contains("UIDS"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_ports_and_urls_are_rejected_in_one_line() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    for address in [tsdb.http_address(), tsdb.data_address(), tsdb.uid_address()] {
        let url = format!("http://{address}");
        let (status, output, errors) = printed(top(&url, &["--once"])?).await?;
        ensure!(status == Some(1) && output.is_empty(), "{output}");
        ensure!(errors.lines().count() == 1, "{errors}");
        let expected = format!("tsdb: {url} is not an admin listener of OxTSDB: ");
        ensure!(errors.starts_with(&expected), "{errors}");
    }
    for wrong in [
        "localhost:4245",
        "http://localhost",
        "ftp://localhost:4245",
        "http://localhost:4245/metrics",
    ] {
        let (status, _, errors) = printed(top(wrong, &["--once"])?).await?;
        ensure!(
            status == Some(2) && errors.contains("expected http://HOST:PORT"),
            "{errors}"
        );
    }
    for wrong in [
        &["--interval", "0"],
        &["--interval", "x"],
        &["--count", "0"],
        &["--timeout", "0"],
    ] {
        let (status, _, errors) = printed(top("http://localhost:1", wrong)?).await?;
        ensure!(status == Some(2) && errors.contains(wrong[0]), "{errors}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn https_goes_to_a_proxy_with_a_trusted_certificate() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let authority = Authority::new("proxy")?;
    let issued = authority.issue(&["localhost"])?;
    let roots = tsdb.folder().join("roots.pem");
    std::fs::write(&roots, authority.pem())?;
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?,
            )?;
    let (listener, acceptor) = (
        TcpListener::bind("127.0.0.1:0").await?,
        TlsAcceptor::from(Arc::new(config)),
    );
    let (port, admin) = (listener.local_addr()?.port(), tsdb.admin_address());
    let proxy = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await?;
                let mut server = TcpStream::connect(admin).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    let url = format!("https://localhost:{port}");
    let mut trusting = top(&url, &["--once"])?;
    trusting.env("SSL_CERT_FILE", &roots);
    let (status, text, errors) = printed(trusting).await?;
    ensure!(
        status == Some(0) && text.contains("1 of 1 ready"),
        "{text}{errors}"
    );
    let (status, text, _) = printed(top(&url, &["--once"])?).await?;
    ensure!(
        status == Some(1) && text.contains("away") && text.contains("certificate"),
        "{text}"
    );
    proxy.abort();
    Ok(())
}
