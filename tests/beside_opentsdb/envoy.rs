//! Envoy with the files of `deploy/envoy` before the services: rolling restarts under load, JSON, certificates; and its lists of
//! calls that may be retried.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_tests::envoy::{self, Mesh};
use oxtsdb_tests::envoy_load::{Calls, Load, WITHOUT_STREAMS, json_query, json_write, samples};
use oxtsdb_tests::health::{DATA_SERVICE, UID_SERVICE, check_serving};
use oxtsdb_tests::process::Process;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::sizes;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{paths, until};
use serde_json::{Value, json};
use tonic::Code;

/// Longer than the interval of Envoy's probes; by default servers take 5 s.
const LAME_DUCK: &str = "--lame-duck-seconds=2";

/// How many servers are killed.
const KILLS: usize = 6;

fn failures<'a>(calls: &'a BTreeMap<&str, Calls>, kinds: &[&str]) -> Vec<(&'a str, &'a String)> {
    let of_kinds = calls
        .iter()
        .filter(|(kind, _)| kinds.is_empty() || kinds.contains(kind));
    of_kinds
        .flat_map(|(kind, calls)| calls.failures.iter().map(|failure| (*kind, failure)))
        .collect()
}

async fn until_ended(process: &mut Process) -> anyhow::Result<()> {
    process.terminate()?;
    let status = process.wait().await?;
    ensure!(status.success(), "{status}: {}", process.log());
    Ok(())
}

async fn restart_data(mesh: &mut Mesh, number: usize) -> anyhow::Result<()> {
    until_ended(mesh.data[number].process()).await?;
    mesh.data[number].start_again().await?;
    mesh.until_data_is_healthy(number).await
}

async fn restart_uid(mesh: &mut Mesh, number: usize) -> anyhow::Result<()> {
    until_ended(mesh.uids[number].process()).await?;
    mesh.uids[number].start_again().await?;
    mesh.until_uid_is_healthy(number).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_fail_no_call_and_lose_no_point() -> anyhow::Result<()> {
    let (rig, program) = (Rig::find()?, envoy::find()?);
    let tables = rig.create_tables("envoy").await?;
    let flag = || LAME_DUCK.to_owned();
    let mut uid_flags = rig.uid_flags(&tables);
    let mut data_flags = rig.flags(&tables);
    data_flags.retain(|flag| !flag.starts_with("--uid-table="));
    uid_flags.push(flag());
    data_flags.push(flag());
    let mut mesh = Mesh::start(&program, 2, &uid_flags, &data_flags).await?;
    let load = Load::start(&mesh, "restarts").await?;
    load.until_all_succeed().await?;

    let restarts = sizes::from_environment("OXTSDB_ENVOY_RESTARTS", 100)?;
    let begun = Instant::now();
    for number in 0..restarts {
        restart_data(&mut mesh, number % 2).await?;
        if number % 10 == 5 {
            restart_uid(&mut mesh, number / 10 % 2).await?;
        }
        load.until_all_succeed().await?;
    }
    println!("{restarts} restarts took {} s", begun.elapsed().as_secs());
    for name in [
        "data.upstream_rq_retry",
        "data.upstream_rq_retry_success",
        "http.upstream_rq_retry",
    ] {
        println!(
            "cluster.{name}: {}",
            mesh.envoy.stat(&format!("cluster.{name}")).await?
        );
    }
    // Not through Envoy.
    let identity = mesh.authority.issue(&["envoy"])?;
    let port = mesh.data[0].data_address().port();
    let mut reader = DataServiceClient::new(mesh.channel(port, Some(&identity)).await?);
    let calls = load.end(&mut reader).await?;
    let failed = failures(&calls, &[]);
    ensure!(
        failed.is_empty(),
        "{} failed: {:#?}",
        failed.len(),
        failed.first()
    );
    let retries = mesh.envoy.stat("cluster.data.upstream_rq_retry_success").await?;
    // The typed writer and others open streams at a server that drains before Envoy knows.
    ensure!(retries > 0, "Envoy has opened no write stream at another server");

    // A server that is killed breaks the responses that it is sending; nothing else fails.
    let load = Load::start(&mesh, "kills").await?;
    for number in 0..KILLS {
        load.until_all_succeed().await?;
        mesh.data[number % 2].process().kill9()?;
        load.until_all_succeed().await?;
        // Else it would be healthy still, but not again: a probe that fails later would take it out beside the next one.
        mesh.until_data_is(number % 2, "/failed_active_hc").await?;
        mesh.data[number % 2].start_again().await?;
        mesh.until_data_is_healthy(number % 2).await?;
    }
    load.until_all_succeed().await?;
    let port = mesh.data[0].data_address().port();
    let mut reader = DataServiceClient::new(mesh.channel(port, Some(&identity)).await?);
    let calls = load.end(&mut reader).await?;
    println!(
        "{KILLS} servers were killed; {} calls failed",
        failures(&calls, &[]).len()
    );
    let failed = failures(&calls, &WITHOUT_STREAMS);
    ensure!(
        failed.is_empty(),
        "{} failed: {:#?}",
        failed.len(),
        failed.first()
    );
    mesh.envoy.check_running()
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_serves_json_and_needs_certificates() -> anyhow::Result<()> {
    let program = envoy::find()?;
    let flags = [LAME_DUCK.to_owned()];
    let mut mesh = Mesh::start(&program, 1, &flags, &flags).await?;
    let (data_port, uid_port) = (mesh.envoy.data, mesh.envoy.uid);

    let json = mesh.http(data_port, Some(&mesh.client))?;
    let points = samples("json.m", "a", 0..3);
    let response = json
        .post("/oxtsdb.data.v1.DataService/Write", &json_write(&points))
        .await?;
    ensure!(
        response.status == 200 && response.json()?["written"] == "3",
        "{response:?}"
    );
    let query = "/oxtsdb.data.v1.DataService/Query";
    let frames = json.post(query, &json_query("json.m")).await?.json()?;
    let frames = frames.as_array().context("an array of frames")?;
    let points = frames.iter().find_map(|frame| frame.get("points"));
    ensure!(
        points.is_some_and(|points| points["intValues"] == json!(["0", "1", "2"])),
        "{frames:?}"
    );
    let error = json.post(query, &json_query("json.absent")).await?;
    ensure!(
        error.status == 404 && error.json()?["details"][0]["reason"] == "NAME_NOT_FOUND",
        "{error:?}"
    );
    let error = json.post("/oxtsdb.data.v1.DataService/Write", &json!({})).await?;
    let body = error.json()?;
    let reason = &body["details"][0];
    ensure!(
        error.status == 400
            && body["code"] == 3
            && reason["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
            && !reason["reason"].is_null(),
        "{error:?}"
    );
    for (path, request) in [
        (query, json!({"rnage": {}})),
        ("/oxtsdb.data.v1.DataService/Absent", json!({})),
    ] {
        let error = json.post(path, &request).await?;
        ensure!((400..500).contains(&error.status), "{path}: {error:?}");
    }
    let names = mesh.http(uid_port, Some(&mesh.client))?;
    let request = json!({"kind": "UID_KIND_METRIC", "prefix": "json"});
    let response = names
        .post("/oxtsdb.uid.v1.UidService/SuggestNames", &request)
        .await?;
    ensure!(
        response.json()?["mappings"][0]["name"] == "json.m",
        "{response:?}"
    );

    // Health of each service, through Envoy.
    let data = mesh.channel(data_port, Some(&mesh.client)).await?;
    check_serving(data.clone(), DATA_SERVICE).await?;
    check_serving(mesh.channel(uid_port, Some(&mesh.client)).await?, UID_SERVICE).await?;

    // A client without a certificate, or with one of another authority, reaches neither Envoy nor a server; a client with a
    // certificate has no right at a server.
    let request = write_request(&samples("json.m", "b", 0..1));
    let direct = mesh.data[0].data_address().port();
    let foreign = oxtsdb_tests::certificates::Authority::new("others")?.issue(&["client"])?;
    for port in [data_port, direct] {
        for identity in [None, Some(&foreign)] {
            // With TLS 1.3 the server rejects a client after its handshake.
            if let Ok(channel) = mesh.channel(port, identity).await {
                let rejected = DataServiceClient::new(channel).write(request.clone()).await;
                ensure!(rejected.is_err(), "{port}: {rejected:?}");
            }
        }
    }
    let plain = mesh.http(mesh.envoy.http, None)?.get("/api/version").await;
    ensure!(plain.is_err(), "{plain:?}");
    let channel = mesh.channel(direct, Some(&mesh.client)).await?;
    let rejected = DataServiceClient::new(channel).write(request.clone()).await;
    let code = rejected.err().map(|status| status.code());
    ensure!(code == Some(Code::PermissionDenied), "{code:?}");

    // A draining server is out of rotation, and the other service is not.
    mesh.data[0].process().terminate()?;
    let server = mesh.data[0].data_address();
    mesh.envoy
        .until_health("data", server, "/failed_active_hc")
        .await?;
    mesh.until_uid_is_healthy(0).await?;
    mesh.data[0].process().wait().await?;
    mesh.data[0].start_again().await?;
    mesh.until_data_is_healthy(0).await?;

    // New certificates, while connections stay.
    let authority = oxtsdb_tests::certificates::Authority::new("mesh, renewed")?;
    let both = format!("{}{}", mesh.authority.pem(), authority.pem());
    let renewed = mesh.authority.issue(&["envoy", "localhost", "renewed"])?;
    mesh.renew(&both, &renewed)?;
    let of_new = authority.issue(&["client"])?;
    until("a client of the new authority is served", || async {
        let channel = mesh.channel(data_port, Some(&of_new)).await?;
        DataServiceClient::new(channel).write(request.clone()).await?;
        Ok(())
    })
    .await?;
    DataServiceClient::new(data).write(request.clone()).await?;
    mesh.envoy.check_running()
}

#[test]
fn envoy_accepts_the_deployed_files() -> anyhow::Result<()> {
    envoy::validate(&envoy::find()?)
}

/// The calls of the lists in `envoy.yaml`, which look like `Service/(One|Other)`.
fn retried(text: &str) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    let mut package = "";
    for line in text.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix("regex: \"/oxtsdb\\\\.") {
            package = list.split("\\\\.").next().unwrap_or_default();
        }
        if package.is_empty() {
            continue;
        }
        let Some((service, methods)) = line.split_once('/') else {
            continue;
        };
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name(service) {
            continue;
        }
        let methods = methods.trim_end_matches(['\\', '|']).trim_matches(['(', ')']);
        calls.extend(
            methods
                .split('|')
                .map(|method| format!("oxtsdb.{package}.v1.{service}/{method}")),
        );
    }
    calls
}

#[test]
fn envoy_retries_the_calls_that_the_contract_does() -> anyhow::Result<()> {
    let read = |path: &str| fs::read_to_string(paths::workspace().join(path));
    let config: Value = serde_json::from_str(&read("proto/service_config.json")?)?;
    let mut expected = BTreeSet::new();
    for group in config["methodConfig"].as_array().context("methodConfig")? {
        if group["retryPolicy"].is_null() {
            continue;
        }
        for name in group["name"].as_array().context("name")? {
            let text = |key: &str| name[key].as_str().context("a name");
            expected.insert(format!("{}/{}", text("service")?, text("method")?));
        }
    }
    // Clients reopen it themselves; Envoy does while the server has not responded.
    expected.insert("oxtsdb.data.v1.DataService/WriteStream".to_owned());
    assert_eq!(retried(&read("deploy/envoy/envoy.yaml")?), expected);
    Ok(())
}
