//! `tsdb doctor`: findings of servers that run, and of servers that do not. Of HBase: `beside_opentsdb/start.rs`.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::process::Process;
use oxtsdb_tests::{DataProgram, Options, Tsdb, UidProgram, until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A finding as JSON has it.
#[derive(Debug)]
struct Finding {
    level: String,
    check: String,
    server: String,
    observation: String,
    advice: String,
}

/// Runs the doctor; returns its findings, and its exit status.
async fn doctor(
    admin: &[SocketAddr],
    data: SocketAddr,
    uid: SocketAddr,
) -> anyhow::Result<(Vec<Finding>, i32)> {
    let admin: Vec<String> = admin.iter().map(|address| format!("http://{address}")).collect();
    run(&[
        format!("--admin={}", admin.join(",")),
        format!("--target=http://{data}"),
        format!("--uid-target=http://{uid}"),
    ])
    .await
}

/// Runs the doctor with options; returns its findings, and its exit status.
async fn run(options: &[String]) -> anyhow::Result<(Vec<Finding>, i32)> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut arguments = vec!["doctor".to_owned(), "--format=json".to_owned()];
    arguments.extend_from_slice(options);
    let mut process = Process::run("tsdb", arguments, &folder.path().join("log"))?;
    let status = process.wait().await?;
    let text = process.log();
    let list: Vec<Value> = serde_json::from_str(&text).with_context(|| text.clone())?;
    let findings = list.iter().map(|finding| {
        let field = |name: &str| Some(finding[name].as_str()?.to_owned());
        Some(Finding {
            level: field("level")?,
            check: field("check")?,
            server: field("server")?,
            observation: field("found")?,
            advice: field("advice")?,
        })
    });
    let findings = findings.collect::<Option<_>>().with_context(|| text.clone())?;
    Ok((findings, status.code().context("killed")?))
}

/// The findings of a check that are no `ok`.
fn problems<'a>(findings: &'a [Finding], check: &str) -> Vec<&'a Finding> {
    let of_check = findings.iter().filter(|finding| finding.check == check);
    of_check.filter(|finding| finding.level != "ok").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_trouble_has_no_errors() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let (findings, status) = doctor(&[tsdb.admin_address()], tsdb.data_address(), tsdb.uid_address()).await?;
    ensure!(status == 0, "{findings:#?}");
    for check in [
        "servers",
        "versions",
        "clock",
        "stores",
        "UID widths",
        "salt",
        "tables",
        "readiness",
        "damage",
        "memory",
        "descriptors",
        "connections",
        "disk",
        "UIDs",
        "exposure",
        "gRPC",
    ] {
        let finding = findings.iter().find(|finding| finding.check == check);
        let finding = finding.with_context(|| check.to_owned())?;
        // The limit of descriptors and the disk belong to the machine that runs the test.
        ensure!(
            ["descriptors", "disk"].contains(&check) || finding.level == "ok",
            "{finding:?}"
        );
    }
    let all_have_advice = findings
        .iter()
        .all(|finding| finding.level == "ok" || !finding.advice.is_empty());
    ensure!(all_have_advice, "{findings:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_trouble_of_a_running_server() -> anyhow::Result<()> {
    let options = Options::default()
        .descriptors(600)
        .flag("--mode", "ro")
        .flag("--memory-limit-mib", "1000000")
        // More than any disk has free.
        .flag("--disk-reserve-mib", "1073741824");
    let tsdb = Tsdb::start_with(options).await?;
    let (findings, status) = doctor(&[tsdb.admin_address()], tsdb.data_address(), tsdb.uid_address()).await?;
    ensure!(status == 1, "{findings:#?}");
    for (check, level, text, advice) in [
        ("mode", "note", "ro", "--mode rw"),
        (
            "memory",
            "warning",
            "limit 1000000 MiB",
            "--memory-limit-mib to at most",
        ),
        ("descriptors", "warning", "of 600 are open", "LimitNOFILE"),
        ("disk", "error", "writes are rejected", "--disk-reserve-mib"),
    ] {
        let problem = problems(&findings, check);
        let problem = problem
            .first()
            .with_context(|| format!("{check}: {findings:#?}"))?;
        ensure!(
            problem.level == level && problem.observation.contains(text) && problem.advice.contains(advice),
            "{problem:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_servers_that_do_not_belong_together() -> anyhow::Result<()> {
    let folders = [
        TempDir::with_prefix("oxtsdb-test-")?,
        TempDir::with_prefix("oxtsdb-test-")?,
    ];
    let uid = UidProgram::start(folders[0].path(), None).await?;
    let wide = ["--uid-width-metric=4".to_owned()];
    let other_uid = UidProgram::start_with(folders[1].path(), None, &wide).await?;
    let data = DataProgram::start(folders[0].path(), uid.address()).await?;
    let salted = ["--salt-width=1".to_owned(), "--data-table=other".to_owned()];
    let other = DataProgram::start_with(folders[1].path(), other_uid.address(), &salted).await?;
    let all = [data.admin_address(), other.admin_address(), uid.admin_address()];
    let (findings, status) = doctor(&all, data.data_address(), other_uid.address()).await?;
    ensure!(status == 1, "{findings:#?}");
    for (check, says) in [
        ("UID widths", &["3/3/3 at ", "4/3/3 at "][..]),
        ("salt", &["1 bytes, 20 buckets at ", "none at "]),
        ("tables", &["--data-table other at ", "--data-table tsdb at "]),
        ("gRPC", &["has the widths 4/3/3", "has 3/3/3"]),
    ] {
        let problem = problems(&findings, check);
        let problem = problem
            .first()
            .with_context(|| format!("{check}: {findings:#?}"))?;
        ensure!(problem.level == "error", "{problem:?}");
        for part in says {
            ensure!(problem.observation.contains(part), "{problem:?}");
        }
    }
    ensure!(
        problems(&findings, "stores")
            .iter()
            .any(|finding| finding.observation.contains("data services with embedded stores")),
        "{findings:#?}"
    );
    // Those that belong together agree.
    let (findings, status) = doctor(
        &[data.admin_address(), uid.admin_address()],
        data.data_address(),
        uid.address(),
    )
    .await?;
    ensure!(status == 0, "{findings:#?}");
    // One without the other is not all of a deployment.
    let (findings, _) = doctor(&[data.admin_address()], data.data_address(), uid.address()).await?;
    let servers = problems(&findings, "servers");
    ensure!(
        servers
            .iter()
            .any(|finding| finding.observation.contains("no UID service")),
        "{findings:#?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_a_uid_service_that_its_data_service_does_not_reach() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut uid = UidProgram::start(folder.path(), None).await?;
    let data = DataProgram::start(folder.path(), uid.address()).await?;
    let admin = [data.admin_address(), uid.admin_address()];
    let (findings, status) = doctor(&admin, data.data_address(), uid.address()).await?;
    ensure!(status == 0, "{findings:#?}");
    uid.process().kill9()?;
    let point = json!({ "metric": "m", "timestamp": 1_500_000_000, "value": 1, "tags": { "host": "a" } });
    let response = data.http().post("/api/put", &point).await?;
    ensure!(response.status == 503, "{response:?}");
    let (findings, status) = doctor(&admin[..1], data.data_address(), uid.address()).await?;
    ensure!(status == 1, "{findings:#?}");
    let problem = problems(&findings, "UID service");
    ensure!(
        problem.iter().any(|finding| finding.level == "error"),
        "{findings:#?}"
    );
    // Each replica of a target is called alone; one that cannot be called is a finding like another.
    let targets = [
        "--target=http://127.0.0.1:1,http://localhost:x".to_owned(),
        format!("--admin=http://{}", data.admin_address()),
    ];
    let (findings, _) = run(&targets).await?;
    let servers: Vec<&str> = problems(&findings, "gRPC")
        .iter()
        .map(|finding| finding.server.as_str())
        .collect();
    ensure!(
        servers == ["http://127.0.0.1:1", "http://localhost:x"],
        "{findings:#?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_any_server_are_understood() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let config = folder.path().join("data-service.toml");
    std::fs::write(
        &config,
        "uid_endpoint = \"http://127.0.0.1:1\"\nuid_token_file = \"token\"\nhttp_listen = \"127.0.0.1:0\"\n",
    )?;
    let tsdb = Tsdb::start().await?;
    let arguments = [
        format!("--config={}", config.display()),
        format!("--admin=http://{}", tsdb.admin_address()),
        format!("--target=http://{}", tsdb.data_address()),
    ];
    let (findings, _) = run(&arguments).await?;
    ensure!(problems(&findings, "readiness").is_empty(), "{findings:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_away_and_wrong_ports_are_errors() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    // Free again when the doctor calls it.
    let away = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let admin = [
        tsdb.admin_address(),
        away,
        tsdb.http_address(),
        tsdb.data_address(),
    ];
    // The ports of the services, exchanged.
    let (findings, status) = doctor(&admin, tsdb.uid_address(), tsdb.data_address()).await?;
    ensure!(status == 1, "{findings:#?}");
    let of = |address: SocketAddr| {
        let url = format!("http://{address}");
        let admin = findings.iter().filter(|finding| finding.check == "admin");
        admin
            .filter(|finding| finding.server == url)
            .map(|finding| finding.observation.as_str())
            .next()
    };
    ensure!(
        of(away).is_some_and(|text| text.contains("refused")),
        "{findings:#?}"
    );
    for other in [tsdb.http_address(), tsdb.data_address()] {
        ensure!(
            of(other).is_some_and(|text| text.contains("not an admin listener")),
            "{findings:#?}"
        );
    }
    ensure!(problems(&findings, "gRPC").len() == 2, "{findings:#?}");

    // A drain is not ready, and the data port says so too.
    let options = Options::default().flag("--lame-duck-seconds", "60");
    let mut draining = Tsdb::start_with(options).await?;
    draining.process().signal(rustix::process::Signal::TERM)?;
    until("the doctor sees the drain", || async {
        let (findings, status) = doctor(
            &[draining.admin_address()],
            draining.data_address(),
            draining.uid_address(),
        )
        .await?;
        ensure!(status == 1);
        let readiness = problems(&findings, "readiness");
        ensure!(
            readiness
                .iter()
                .any(|finding| finding.observation.contains("draining")),
            "{findings:#?}"
        );
        let grpc = problems(&findings, "gRPC");
        ensure!(
            grpc.iter()
                .any(|finding| finding.observation.contains("NOT_SERVING")),
            "{findings:#?}"
        );
        Ok(())
    })
    .await?;
    Ok(())
}
