//! Operations on the embedded store: `tsdb snapshot`, `tsdb restore`, `tsdb store check` and `tsdb store stats`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, program_path};
use serde_json::Value;
use tempfile::TempDir;

/// 2023-11-14.
const START_MS: i64 = 1_700_000_000_000;
const METRIC: &str = "backups.m";

/// Runs `tsdb`; returns its status, output and errors.
async fn tsdb(arguments: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let mut command = tokio::process::Command::new(program_path("tsdb")?);
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(arguments).output().await?;
    Ok((
        status.code(),
        String::from_utf8(stdout)?,
        String::from_utf8(stderr)?,
    ))
}

/// Runs `tsdb` as a client of a server.
async fn call(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let target = format!("--target=http://{}", server.data_address());
    let arguments: Vec<&str> = arguments.iter().copied().chain([&*target]).collect();
    tsdb(&arguments).await
}

/// As [`call`], of a command that must succeed; returns its output.
async fn called(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<String> {
    let (status, output, errors) = call(server, arguments).await?;
    ensure!(status == Some(0), "{arguments:?}: {status:?}: {errors}");
    Ok(output)
}

/// As [`call`], of a command that must fail; returns its error.
async fn failed(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<String> {
    let (status, output, errors) = call(server, arguments).await?;
    ensure!(status == Some(1), "{arguments:?}: {status:?}: {output}");
    Ok(errors)
}

/// Batch `number`: a point of each of some series, an hour and a bit after the batch before.
fn samples(number: i64) -> Vec<Sample> {
    ["a", "b", "c"]
        .iter()
        .map(|host| Sample::int(METRIC, &[("host", host)], START_MS + number * 4_000_000, number))
        .collect()
}

async fn write(server: &Tsdb, number: i64) -> anyhow::Result<()> {
    let written = server.data().write(write_request(&samples(number))).await?;
    ensure!(written.into_inner().written == 3);
    Ok(())
}

type Points = BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>>;

async fn points(server: &Tsdb) -> anyhow::Result<Points> {
    series_of(&mut server.data(), METRIC).await
}

/// The files of a folder and below it.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            paths.append(&mut files(&entry.path())?);
        } else {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_part(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "part")
}

fn flip_bit(path: &Path) -> anyhow::Result<()> {
    let mut bytes = fs::read(path)?;
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).context("an empty file")? ^= 1;
    // Another file: a snapshot has the same one by a hard link.
    fs::remove_file(path)?;
    Ok(fs::write(path, bytes)?)
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path of text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_store_that_is_written_to_restores_equal() -> anyhow::Result<()> {
    let server = Arc::new(Tsdb::start().await?);
    for number in 0..50 {
        write(&server, number).await?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (server, stop) = (Arc::clone(&server), Arc::clone(&stop));
        async move {
            let mut number = 50;
            while !stop.load(Ordering::Relaxed) {
                write(&server, number).await?;
                number += 1;
            }
            anyhow::Ok(number)
        }
    });
    let acknowledged = points(&server).await?;
    let json = called(&server, &["snapshot", "first", "--json"]).await?;
    stop.store(true, Ordering::Relaxed);
    writer.await??;
    let made: Value = serde_json::from_str(&json)?;
    assert_eq!(
        made["stores"],
        serde_json::json!(["points", "data", "uid"]),
        "{made}"
    );
    let snapshot = server.data_dir().join("snapshots/first");
    assert_eq!(made["folder"], text(&snapshot)?);
    assert_eq!(made["files"], files(&snapshot)?.len() - 1, "all but SNAPSHOT");

    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("restored");
    let (status, output, errors) = tsdb(&["restore", text(&snapshot)?, "--data", text(&data_dir)?]).await?;
    assert_eq!(status, Some(0), "{errors}");
    assert!(output.starts_with(text(&data_dir)?), "{output}");
    let restored = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    // Names and series are found, and so is each point that was acknowledged before the call. Of later ones
    // there is a prefix.
    let (then, now) = (points(&restored).await?, points(&server).await?);
    assert_eq!(then.len(), 3);
    for (series, before) in &acknowledged {
        let (then, now) = (&then[series], &now[series]);
        assert!(then.len() >= before.len() && now.starts_with(then), "{series:?}");
        assert!(then.starts_with(before), "{series:?}");
    }
    let search = ["search", METRIC];
    let lines = |output: String| {
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (of_first, of_restored) = (called(&server, &search).await?, called(&restored, &search).await?);
    assert_eq!(lines(of_first), lines(of_restored));
    // It is a store like another.
    write(&restored, 1_000_000 / 4_000).await?;
    called(&restored, &["snapshot", "of/restored"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_made_below_their_folder_only() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let place = folder.path().join("backups");
    let server = Tsdb::start_with(Options::default().flag("--snapshot-dir", text(&place)?)).await?;
    write(&server, 0).await?;
    let outside = folder.path().join("elsewhere");
    for (name, rule) in [
        ("", "is not a folder below"),
        ("..", "is not a folder below"),
        ("a/../../b", "is not a folder below"),
        (text(&outside)?, "is not a folder below"),
        (text(&place)?, "is not a folder below"),
        ("a\nb", "has control characters"),
    ] {
        let error = failed(&server, &["snapshot", name]).await?;
        assert!(error.contains("INVALID_ARGUMENT: folder: "), "{error}");
        assert!(error.contains(rule), "{error}");
    }
    assert!(!outside.exists() && !place.exists());

    let output = called(&server, &["snapshot", text(&place.join("a/b"))?]).await?;
    assert!(output.contains("of points, data, uid, in "), "{output}");
    for (name, rule) in [
        ("a/b", "is not empty"),
        ("a", "is not empty"),
        ("a/b/c", "is within another snapshot"),
        ("a/b/SNAPSHOT", "is within another snapshot"),
    ] {
        let error = failed(&server, &["snapshot", name]).await?;
        assert!(error.contains(rule), "{name}: {error}");
    }
    fs::create_dir(place.join("empty"))?;
    called(&server, &["snapshot", "empty"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_snapshot_is_not_restored() -> anyhow::Result<()> {
    let server = Tsdb::start().await?;
    for number in 0..3 {
        write(&server, number).await?;
    }
    called(&server, &["snapshot", "a"]).await?;
    let snapshot = server.data_dir().join("snapshots/a");
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let target = folder.path().join("restored");
    let restore = async |target: &Path| {
        let (status, _, errors) = tsdb(&["restore", text(&snapshot)?, "--data", text(target)?]).await?;
        anyhow::Ok((status, errors))
    };

    // Over other files.
    fs::create_dir(&target)?;
    fs::write(target.join("x"), "")?;
    let (status, errors) = restore(&target).await?;
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("is not empty"), "{errors}");
    let (_, errors) = restore(server.data_dir()).await?;
    assert!(errors.contains("is not empty"), "{errors}");
    fs::remove_file(target.join("x"))?;

    // Each file: one that has a flipped bit, is cut, or is missing.
    let mut all = files(&snapshot)?;
    all.retain(|path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0));
    assert!(all.iter().any(|path| is_part(path)), "{all:?}");
    for (number, path) in all.iter().enumerate() {
        let whole = fs::read(path)?;
        match number % 3 {
            0 => {
                fs::remove_file(path)?;
            }
            1 => {
                fs::remove_file(path)?;
                fs::write(path, &whole[..whole.len() / 2])?;
            }
            _ => flip_bit(path)?,
        }
        let (status, errors) = restore(&target).await?;
        assert_eq!(status, Some(1), "{}: {errors}", path.display());
        assert!(errors.contains(text(path)?), "{}: {errors}", path.display());
        assert_eq!(fs::read_dir(folder.path())?.count(), 1, "nothing was written");
        fs::write(path, whole)?;
    }
    for path in all.iter().filter(|path| is_part(path)) {
        let whole = fs::read(path)?;
        flip_bit(path)?;
        let (_, errors) = restore(&target).await?;
        assert!(errors.contains("is damaged"), "{errors}");
        fs::write(path, whole)?;
    }
    let (status, errors) = restore(&target).await?;
    assert_eq!(status, Some(0), "{errors}");

    // No snapshot at all.
    let (status, _, errors) = tsdb(&["restore", "/nowhere", "--data", text(&target.join("x"))?]).await?;
    assert_eq!(status, Some(1));
    assert!(
        errors.contains("/nowhere/SNAPSHOT: the file is missing"),
        "{errors}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_a_flipped_bit() -> anyhow::Result<()> {
    let mut server = Tsdb::start().await?;
    for number in 0..100 {
        write(&server, number).await?;
    }
    server.terminate().await?;
    server.restart().await?;
    let output = called(&server, &["store", "check"]).await?;
    assert!(output.ends_with(" 0 damaged\n"), "{output}");

    let mut parts = files(&server.data_dir().join("data/points"))?;
    parts.retain(|path| is_part(path));
    let part = parts.first().context("a part")?;
    let mut bytes = fs::read(part)?;
    let place = bytes.len() / 3;
    *bytes.get_mut(place).context("an empty file")? ^= 4;
    fs::write(part, bytes)?;
    let (status, output, errors) = call(&server, &["store", "check", "--json", "--mib-per-second=0"]).await?;
    assert_eq!(status, Some(1), "{errors}");
    let checked: Value = serde_json::from_str(&output)?;
    let damaged = checked["damaged"].as_array().context("an array")?;
    assert_eq!(damaged.len(), 1, "{checked}");
    assert_eq!(damaged[0]["path"], text(part)?);
    // It stays reported, and the other points are served.
    let (status, output, _) = call(&server, &["store", "check"]).await?;
    assert_eq!(status, Some(1), "{output}");
    assert!(output.ends_with(" 1 damaged\n"), "{output}");
    let stats: Value = serde_json::from_str(&called(&server, &["store", "stats", "--json"]).await?)?;
    assert_eq!(stats["damage"].as_array().map(Vec::len), Some(1), "{stats}");
    write(&server, 2_000).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_of_an_empty_store_and_of_one_with_points() -> anyhow::Result<()> {
    let options = Options::default().flag("--retention", "400d");
    let mut server = Tsdb::start_with(options).await?;
    let stats = async |server: &Tsdb| -> anyhow::Result<Value> {
        Ok(serde_json::from_str(
            &called(server, &["store", "stats", "--json"]).await?,
        )?)
    };
    let empty = stats(&server).await?;
    for name in [
        "series",
        "files",
        "points_in_files",
        "points_written",
        "bytes_to_merge",
    ] {
        assert_eq!(empty[name], 0, "{empty}");
    }
    assert_eq!(empty["retention_seconds"], 400 * 86_400);
    assert!(empty["retention_edge_ms"].is_null(), "{empty}");
    called(&server, &["store", "check"]).await?;
    let text = called(&server, &["store", "stats"]).await?;
    assert!(text.contains("retention: 400 days\n"), "{text}");

    for number in 0..30 {
        write(&server, number).await?;
    }
    server.terminate().await?;
    server.restart().await?;
    let full = stats(&server).await?;
    assert_eq!(
        (&full["series"], &full["points_in_files"]),
        (&3.into(), &90.into())
    );
    assert_eq!(full["metrics"][0]["name"], METRIC, "{full}");
    assert_eq!(full["metrics"][0]["series"], 3);
    assert_eq!(full["days"][0]["day"], "2023-11-14");
    let text = called(&server, &["store", "stats", "--max=1"]).await?;
    assert!(text.contains("2023-11-14") && text.contains(METRIC), "{text}");
    let (status, _, _) = call(&server, &["store", "stats", "--max=1001"]).await?;
    assert_eq!(status, Some(2));
    Ok(())
}
