//! A table of UIDs that is removed, set back, replaced by an older copy or by that of another deployment: no number is
//! given twice, no point is served under another's name, and `tsdb uid recover` repairs it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::uid::v1::ExportUidsRequest;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{RowStore as _, StoreControl as _, TableName, WriteBatch};
use oxtsdb_tests::read_back::series_of_or_none;
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{DataProgram, Options, Tsdb, UidProgram, program_path, until};
use serde_json::json;
use tempfile::TempDir;
use tonic::transport::Channel;

const T: i64 = 1_500_000_000_000;

/// A point whose value tells which metric it was written to; at an instant of its own, so that it replaces none of
/// another metric with the same UID.
fn sample(metric: &str, value: i64) -> Sample {
    Sample::int(metric, &[("host", "web01")], T + value * 1000, value)
}

/// Writes a point. Returns the reason if it is not stored.
async fn write(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
    value: i64,
) -> anyhow::Result<Option<ErrorReason>> {
    let response = match client.write(write_request([&sample(metric, value)])).await {
        Ok(response) => response.into_inner(),
        Err(status) => {
            return Ok(Some(
                oxtsdb_proto::error::reason_of(&status).context(status.to_string())?,
            ));
        }
    };
    if response.written == 1 {
        return Ok(None);
    }
    let error = response
        .failures
        .and_then(|failures| failures.errors.into_iter().next());
    let error = error.and_then(|error| error.error).context("no error")?;
    Ok(Some(error.reason()))
}

/// Writes points, of value 1, 2, and so on.
async fn write_all(
    client: &mut DataServiceClient<Channel>,
    metrics: &[&str],
    first: i64,
) -> anyhow::Result<()> {
    for (metric, value) in metrics.iter().zip(first..) {
        let rejected = write(client, metric, value).await?;
        ensure!(rejected.is_none(), "{metric}: {rejected:?}");
    }
    Ok(())
}

/// The values of a metric, of all its series; none if there is no such metric.
async fn values(client: &mut DataServiceClient<Channel>, metric: &str) -> anyhow::Result<Vec<i64>> {
    let series = series_of_or_none(client, metric).await?;
    let points = series.into_values().flatten();
    points
        .map(|(_, value)| match value {
            Number::Int(value) => Ok(value),
            other => anyhow::bail!("{other:?}"),
        })
        .collect()
}

/// Fails if two names have one UID.
async fn check_distinct(client: &mut UidServiceClient<Channel>) -> anyhow::Result<()> {
    let mut stream = client
        .export_uids(ExportUidsRequest::default())
        .await?
        .into_inner();
    let mut seen = BTreeSet::new();
    while let Some(batch) = stream.message().await? {
        for mapping in batch.mappings {
            ensure!(
                seen.insert((mapping.kind, mapping.uid.clone())),
                "twice: {mapping:?}"
            );
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Replaces a folder by a copy.
fn replace(folder: &Path, by: &Path) -> anyhow::Result<()> {
    fs::remove_dir_all(folder)?;
    copy(by, folder)
}

/// Runs a command of `tsdb uid`. Returns whether it succeeded, and what it printed.
fn uid_command(arguments: &[String]) -> anyhow::Result<(bool, String)> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program_path("tsdb")?)
        .arg("uid")
        .args(arguments)
        .output()?;
    let output = String::from_utf8(stdout)? + &String::from_utf8(stderr)?;
    Ok((status.success(), output))
}

fn recover(uid: std::net::SocketAddr, data: std::net::SocketAddr, more: &[&str]) -> anyhow::Result<String> {
    let mut arguments = vec![
        format!("--uid-target=http://{uid}"),
        "recover".to_owned(),
        format!("--target=http://{data}"),
    ];
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    let (success, output) = uid_command(&arguments)?;
    ensure!(success, "{output}");
    Ok(output)
}

/// Accepts the loss of a data folder.
fn salvage(data_dir: &Path) -> anyhow::Result<String> {
    let output = Command::new(program_path("tsdb")?)
        .args(["store", "salvage", "--yes", "--data-dir"])
        .arg(data_dir)
        .output()?;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{text}");
    Ok(text)
}

/// Stops a server, and starts another one on its folder after a change.
async fn restarted(
    mut server: Tsdb,
    data_dir: &Path,
    change: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Tsdb> {
    server.terminate().await?;
    change()?;
    Tsdb::start_with(Options::default().data_dir(data_dir)).await
}

/// After a loss: a new metric is rejected, known ones are served, health and the doctor say why.
async fn is_protected(server: &Tsdb, kind: &str) -> anyhow::Result<()> {
    let data = &mut server.data();
    let rejected = write(data, "weather.temp", 99).await?;
    assert_eq!(rejected, Some(ErrorReason::UidCounterBehind));
    assert_eq!(values(data, "weather.temp").await?, [0_i64; 0]);
    let point = json!({"metric": "weather.temp", "timestamp": T, "value": 99, "tags": {"host": "web01"}});
    let response = server.http().post("/api/put?details", &point).await?;
    assert_eq!(response.status, 400, "{}", response.body);
    assert!(response.body.contains("tsdb uid recover"), "{}", response.body);
    let response = server.http().get("/api/uid/assign?metric=weather.temp").await?;
    assert_eq!(response.status, 400, "{}", response.body);
    let assign = ["assign", kind, "weather.temp"].map(str::to_owned);
    let target = format!("--uid-target=http://{}", server.uid_address());
    let (success, output) = uid_command(&[&[target][..], &assign[..]].concat())?;
    assert!(!success && output.contains("tsdb uid recover"), "{output}");
    let usage = [
        format!("--uid-target=http://{}", server.uid_address()),
        "usage".to_owned(),
    ];
    let (_, output) = uid_command(&usage)?;
    assert!(output.contains(&format!("{kind} assigns no UIDs")), "{output}");
    let ready = server.admin().get("/readyz").await?;
    assert_eq!(ready.status, 200, "{}", ready.body);
    assert!(ready.body.contains("run `tsdb uid recover`"), "{}", ready.body);
    let metrics = server.admin().get("/metrics").await?.body;
    for name in ["oxtsdb_uid_assignment_blocked", "oxtsdb_uid_service_blocked"] {
        let line = format!("{name}{{kind=\"{kind}\"}} 1");
        assert!(metrics.contains(&line), "no {line}");
    }
    Ok(())
}

/// After a repair: new metrics are assigned, each with its own points, and no note is left.
async fn is_repaired(server: &Tsdb) -> anyhow::Result<()> {
    let data = &mut server.data();
    write_all(data, &["weather.temp", "weather.wind"], 101).await?;
    assert_eq!(values(data, "weather.temp").await?, [101]);
    assert_eq!(values(data, "weather.wind").await?, [102]);
    check_distinct(&mut server.uids()).await?;
    until("health has no note", || async {
        let body = server.admin().get("/readyz").await?.body;
        ensure!(body == "ready\n", "{body}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_folder_of_uids_ends_the_start_until_it_is_accepted() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let options = || Options::default().data_dir(&data_dir);
    let mut server = Tsdb::start_with(options()).await?;
    write_all(&mut server.data(), &["salary.secret", "cpu"], 1).await?;
    server.terminate().await?;
    fs::remove_dir_all(data_dir.join("uid"))?;
    let error = Tsdb::failed_start(options()).await?;
    for part in ["data/uid: the folder is missing", "`tsdb store salvage"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let accepted = salvage(&data_dir)?;
    assert!(accepted.contains("--accept-uid-table"), "{accepted}");
    let error = Tsdb::failed_start(options()).await?;
    for part in [
        "folder uid",
        "--accept-uid-table",
        "tsdb uid recover",
        "data/data",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }

    let accepting = options().flags(["--accept-uid-table".to_owned()]);
    let mut server = Tsdb::start_with(accepting).await?;
    is_protected(&server, "metrics").await?;
    let planned = recover(server.uid_address(), server.data_address(), &["--dry-run"])?;
    assert!(
        planned.contains("metrics lost-metrics-000001: 000001"),
        "{planned}"
    );
    is_protected(&server, "metrics").await?;
    let repaired = recover(server.uid_address(), server.data_address(), &[])?;
    assert_eq!(planned, repaired);
    assert!(
        repaired.contains("metrics: counter raised from 0 to 2"),
        "{repaired}"
    );
    is_repaired(&server).await?;
    assert_eq!(values(&mut server.data(), "lost-metrics-000001").await?, [1]);
    assert_eq!(values(&mut server.data(), "lost-metrics-000002").await?, [2]);
    // A name that is written again is another metric, until an operator renames the lost one.
    write_all(&mut server.data(), &["cpu"], 5).await?;
    assert_eq!(values(&mut server.data(), "cpu").await?, [5]);
    server.terminate().await?;
    let server = Tsdb::start_with(options()).await?;
    is_repaired(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_the_folder_assigns_nothing_until_it_is_recovered() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let (uid, older) = (data_dir.join("uid"), folder.path().join("older"));
    let server = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    write_all(&mut server.data(), &["cpu"], 1).await?;
    let server = restarted(server, &data_dir, || copy(&uid, &older)).await?;
    write_all(&mut server.data(), &["salary.secret", "mem"], 2).await?;
    let names = server.folder().join("names");
    let listed = uid_command(&[
        format!("--uid-target=http://{}", server.uid_address()),
        "grep".to_owned(),
        "metrics".to_owned(),
        "mem".to_owned(),
    ])?;
    let names_text = listed.1;
    let mut server = server;
    server.terminate().await?;
    replace(&uid, &older)?;
    let error = Tsdb::failed_start(Options::default().data_dir(&data_dir)).await?;
    for part in ["data/uid: the folder is an older copy", "`tsdb store salvage"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    salvage(&data_dir)?;
    let server = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    fs::create_dir_all(names.parent().context("a folder")?)?;
    fs::write(&names, names_text)?;

    is_protected(&server, "metrics").await?;
    // What the copy has is written and read as before.
    write_all(&mut server.data(), &["cpu"], 7).await?;
    assert_eq!(values(&mut server.data(), "cpu").await?, [1, 7]);
    let with_names = ["--names", names.to_str().context("a path of text")?];
    let repaired = recover(server.uid_address(), server.data_address(), &with_names)?;
    assert!(
        repaired.contains("metrics lost-metrics-000002: 000002"),
        "{repaired}"
    );
    assert!(repaired.contains("metrics mem: 000003"), "{repaired}");
    is_repaired(&server).await?;
    assert_eq!(values(&mut server.data(), "lost-metrics-000002").await?, [2]);
    assert_eq!(values(&mut server.data(), "mem").await?, [3]);
    let again = recover(server.uid_address(), server.data_address(), &[])?;
    assert!(
        again.contains("names: 0 recovered, 0 from the file, 0 lost"),
        "{again}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_is_set_back_assigns_nothing() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let mut server = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    write_all(&mut server.data(), &["cpu", "salary.secret"], 1).await?;
    server.terminate().await?;
    let store = CellStore::open(CellConfig::new(data_dir.join("uid")))?;
    let table: TableName = "tsdb-uid".parse()?;
    let mut batch = WriteBatch::new(table);
    let family = batch.family("id");
    batch.row(&[0]).put(family, b"metrics", &1_u64.to_be_bytes());
    // As if its mapping had been lost, too.
    let family = batch.family("name");
    batch.row(&[0, 0, 2]).delete_column(family, b"metrics");
    store.write(batch).await?;
    store.close().await?;

    let server = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    is_protected(&server, "metrics").await?;
    let repaired = recover(server.uid_address(), server.data_address(), &[])?;
    // The name still leads to the UID.
    assert!(repaired.contains("metrics salary.secret: 000002"), "{repaired}");
    assert!(
        repaired.contains("1 recovered, 0 from the file, 0 lost"),
        "{repaired}"
    );
    is_repaired(&server).await?;
    assert_eq!(values(&mut server.data(), "salary.secret").await?, [2]);
    Ok(())
}

/// Data services over one UID service, each in a folder of its own.
struct Programs {
    folder: TempDir,
    uid: UidProgram,
}

impl Programs {
    async fn start(flags: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let uid = UidProgram::start_with(folder.path(), None, &flags).await?;
        Ok(Self { folder, uid })
    }

    async fn data(&self, name: &str) -> anyhow::Result<DataProgram> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder)?;
        DataProgram::start(&folder, self.uid.address()).await
    }

    /// Stops the UID service, changes its folder, and starts it again.
    async fn restart_uid(&mut self, change: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.uid.process().terminate()?;
        self.uid.process().wait().await?;
        change(&self.folder.path().join("uid"))?;
        self.uid.start_again().await
    }
}

/// Waits until the UID service responds to writes of a data service, and returns the reason of the rejection.
async fn rejection(data: &DataProgram, metric: &str) -> anyhow::Result<Option<ErrorReason>> {
    until("the UID service responds", || async {
        let reason = write(&mut data.client(), metric, 99).await?;
        ensure!(reason != Some(ErrorReason::UidServiceUnavailable), "not yet");
        Ok(reason)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uid_service_on_an_older_copy_is_noticed_by_a_running_data_service() -> anyhow::Result<()> {
    let mut programs = Programs::start(&[]).await?;
    let data = programs.data("a").await?;
    write_all(&mut data.client(), &["cpu"], 1).await?;
    let older = programs.folder.path().join("older");
    programs.restart_uid(|uid| copy(uid, &older)).await?;
    until("a name is assigned again", || async {
        let rejected = write(&mut data.client(), "salary.secret", 2).await?;
        ensure!(rejected.is_none(), "{rejected:?}");
        Ok(())
    })
    .await?;
    programs.restart_uid(|uid| replace(uid, &older)).await?;
    assert_eq!(
        rejection(&data, "weather.temp").await?,
        Some(ErrorReason::UidCounterBehind)
    );
    // Names that are cached are still served and written.
    write_all(&mut data.client(), &["cpu"], 3).await?;
    for admin in [data.admin(), programs.uid.admin()] {
        until("health says so", || async {
            let body = admin.get("/readyz").await?.body;
            ensure!(body.contains("tsdb uid recover"), "{body}");
            Ok(())
        })
        .await?;
    }
    recover(programs.uid.address(), data.data_address(), &[])?;
    write_all(&mut data.client(), &["weather.temp"], 4).await?;
    assert_eq!(values(&mut data.client(), "weather.temp").await?, [4]);
    check_distinct(&mut programs.uid.client()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_service_protects_the_uids_of_another_one_that_is_away() -> anyhow::Result<()> {
    let mut programs = Programs::start(&[]).await?;
    let (a, mut b) = (programs.data("a").await?, programs.data("b").await?);
    write_all(&mut a.client(), &["cpu"], 1).await?;
    let older = programs.folder.path().join("older");
    programs.restart_uid(|uid| copy(uid, &older)).await?;
    until("a name is assigned again", || async {
        let rejected = write(&mut b.client(), "salary.secret", 2).await?;
        ensure!(rejected.is_none(), "{rejected:?}");
        Ok(())
    })
    .await?;
    // A knows it from the watch, a second later at most.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    b.process().kill9()?;
    programs.restart_uid(|uid| replace(uid, &older)).await?;
    assert_eq!(
        rejection(&a, "weather.temp").await?,
        Some(ErrorReason::UidCounterBehind)
    );
    // A start again does not forget it.
    let mut a = a;
    a.process().kill9()?;
    a.start_again().await?;
    assert_eq!(
        rejection(&a, "weather.temp").await?,
        Some(ErrorReason::UidCounterBehind)
    );
    recover(programs.uid.address(), a.data_address(), &[])?;
    write_all(&mut a.client(), &["weather.temp"], 4).await?;
    b.start_again().await?;
    recover(programs.uid.address(), b.data_address(), &[])?;
    assert_eq!(values(&mut b.client(), "weather.temp").await?, [0_i64; 0]);
    assert_eq!(values(&mut b.client(), "lost-metrics-000002").await?, [2]);
    check_distinct(&mut programs.uid.client()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn random_uids_that_series_use_are_not_drawn_again() -> anyhow::Result<()> {
    let flags = ["--random-metric-uids", "--uid-width-metric=1"];
    let mut programs = Programs::start(&flags).await?;
    let data = programs.data("a").await?;
    let older = programs.folder.path().join("older");
    write_all(&mut data.client(), &["m.0"], 0).await?;
    programs.restart_uid(|uid| copy(uid, &older)).await?;
    // Most of the 255 numbers: a draw hits one of them in two of three cases.
    for number in 1..170_i64 {
        until("a name is assigned", || async {
            let rejected = write(&mut data.client(), &format!("m.{number}"), number).await?;
            ensure!(rejected.is_none(), "{rejected:?}");
            Ok(())
        })
        .await?;
    }
    programs.restart_uid(|uid| replace(uid, &older)).await?;
    for number in 1000..1030_i64 {
        until("a name is assigned", || async {
            let rejected = write(&mut data.client(), &format!("n.{number}"), number).await?;
            ensure!(rejected.is_none(), "{rejected:?}");
            Ok(())
        })
        .await?;
    }
    for number in 1000..1030_i64 {
        assert_eq!(
            values(&mut data.client(), &format!("n.{number}")).await?,
            [number]
        );
    }
    recover(programs.uid.address(), data.data_address(), &[])?;
    check_distinct(&mut programs.uid.client()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_another_deployment_are_not_mixed_with_the_points() -> anyhow::Result<()> {
    let mut programs = Programs::start(&[]).await?;
    let data = programs.data("a").await?;
    write_all(&mut data.client(), &["salary.secret"], 1).await?;
    let other = Programs::start(&[]).await?;
    let others = other.data("a").await?;
    write_all(&mut others.client(), &["weather.temp", "weather.wind"], 50).await?;
    let other_uid = other.folder.path().join("uid");
    drop(others);
    let Programs { folder, uid } = other;
    drop(uid);
    programs.restart_uid(|uid| replace(uid, &other_uid)).await?;
    drop(folder);
    // With UID 1 of the other deployment, it would be salary.secret.
    assert_eq!(
        rejection(&data, "weather.temp").await?,
        Some(ErrorReason::TableMismatch)
    );
    let query = values(&mut data.client(), "weather.temp").await;
    assert!(query.is_err(), "{query:?}");
    write_all(&mut data.client(), &["salary.secret"], 3).await?;
    // A start is rejected, too.
    let mut data = data;
    data.process().kill9()?;
    let mut data = DataProgram::launch(&programs.folder.path().join("a"), programs.uid.address(), &[])?;
    let status = data.process().wait().await?;
    let log = data.process().log();
    assert!(
        status.code() == Some(1) && log.contains("--accept-uid-table"),
        "{status}: {log}"
    );
    Ok(())
}
