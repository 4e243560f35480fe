//! `tsdb export`, `tsdb import --into` and `tsdb compare` on embedded stores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, paths, program_path};
use tempfile::TempDir;
use tokio::process::Command;

/// 2023-11-14.
const START_MS: i64 = 1_700_000_000_000;
const METRIC: &str = "copies.m";

/// Runs a command; returns its status, output and errors.
async fn run(command: &mut Command) -> anyhow::Result<(Option<i32>, String, String)> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().await?;
    Ok((
        status.code(),
        String::from_utf8(stdout)?,
        String::from_utf8(stderr)?,
    ))
}

/// Runs `tsdb`, which must succeed; returns its output.
async fn done(arguments: &[&str]) -> anyhow::Result<String> {
    let found = run(Command::new(program_path("tsdb")?).args(arguments)).await?;
    ensure!(found.0 == Some(0), "{arguments:?}: {found:?}");
    Ok(found.1)
}

/// Runs `tsdb`, which must exit with status 1; returns output and error.
async fn failed(arguments: &[&str]) -> anyhow::Result<String> {
    let found = run(Command::new(program_path("tsdb")?).args(arguments)).await?;
    ensure!(found.0 == Some(1), "{arguments:?}: {found:?}");
    Ok(found.1 + &found.2)
}

/// Folders of a test.
struct Folders(TempDir);

impl Folders {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(TempDir::with_prefix("oxtsdb-copies-")?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, kind: &str, name: &str) -> String {
        format!("{kind}{}", self.path(name).display())
    }
}

/// A data folder with points of three series in 200 hours, written by a server that has ended.
async fn written_store(folder: &Path) -> anyhow::Result<()> {
    let server = Tsdb::start_with(Options::default().data_dir(folder)).await?;
    for hour in 0..200 {
        let samples: Vec<Sample> = ["a", "b", "c"]
            .iter()
            .flat_map(|host| {
                (0..5).map(move |n| {
                    let at = START_MS + hour * 3_600_000 + n * 1000;
                    Sample::int(METRIC, &[("host", host)], at, hour * n)
                })
            })
            .collect();
        let written = server.data().write(write_request(&samples)).await?;
        ensure!(written.into_inner().written == 15);
    }
    Ok(())
}

/// The file of the last segment of points of an export.
fn last_segment(export: &Path) -> anyhow::Result<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(export)?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|path| path.to_string_lossy().ends_with("-data.gz"));
    files.sort();
    files.pop().context("no segment of points")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_an_export_is_equal_and_serves_the_same_points() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    written_store(&folders.path("a")).await?;
    let [a, b] = ["a", "b"].map(|name| folders.text("embedded:", name));
    let export = folders.text("", "export");
    let printed = done(&["export", &a, &export]).await?;
    ensure!(printed.contains("tsdb: 600 rows, 3000 cells"), "{printed}");
    // It is complete: nothing changes.
    ensure!(done(&["export", &a, &export]).await? == printed);
    done(&["import", "--into", &b, &export]).await?;
    let compared = done(&["compare", &a, &b, "--exact"]).await?;
    ensure!(
        compared.contains("data total: equal, 600 rows 3000 cells"),
        "{compared}"
    );
    done(&["compare", &format!("export:{export}"), &b]).await?;
    // Sums of one side are those of the other.
    let sums = done(&["compare", &a, "--ranges"]).await?;
    ensure!(sums == done(&["compare", &b, "--ranges"]).await?, "{sums}");
    ensure!(sums.contains("data 000001 2023-11-15: "), "{sums}");

    let served = Tsdb::start_with(Options::default().data_dir(&folders.path("b"))).await?;
    let series = series_of(&mut served.data(), METRIC).await?;
    ensure!(series.len() == 3 && series.values().all(|points| points.len() == 1000));
    // The next name gets a UID that no name has.
    let more = [Sample::int("copies.other", &[("host", "d")], START_MS, 1)];
    served.data().write(write_request(&more)).await?;
    drop(served);
    let differing = failed(&["compare", &a, &b]).await?;
    ensure!(
        differing.contains("data row 000002") && differing.contains("only the second has it, with 1 cells"),
        "{differing}"
    );
    // A store with rows is not imported into.
    let other = folders.text("--progress=", "other.jsonl");
    let rejected = failed(&["import", "--into", &b, &export, &other]).await?;
    ensure!(rejected.contains("table `tsdb-uid` has rows"), "{rejected}");
    done(&["import", "--into", &b, &export, &other, "--overwrite"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_python_reads_all_cells() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    written_store(&folders.path("a")).await?;
    let export = folders.text("", "export");
    done(&["export", &folders.text("embedded:", "a"), &export]).await?;
    let document = fs::read_to_string(paths::workspace().join("docs/export.md"))?;
    let (_, reader) = document.split_once("```python\n").context("no reader")?;
    let (reader, _) = reader.split_once("```").context("no end of the reader")?;
    ensure!(reader.lines().filter(|line| !line.trim().is_empty()).count() <= 30);
    let script = folders.path("reader.py");
    fs::write(&script, reader)?;
    let (status, output, errors) =
        run(Command::new("python3").args([&script, &folders.path("export")])).await?;
    ensure!(status == Some(0), "{errors}");
    let of_points = output.lines().filter(|line| line.starts_with("data\t"));
    ensure!(of_points.count() == 3000);
    let name = hex(METRIC.as_bytes());
    ensure!(
        output
            .lines()
            .any(|line| line.starts_with(&format!("uid\t{name}\tid\t"))),
        "{output}"
    );
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_with_file_table_and_offset() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    written_store(&folders.path("a")).await?;
    let (a, b) = (folders.text("embedded:", "a"), folders.text("embedded:", "b"));
    let export = folders.text("", "export");
    done(&["export", &a, &export]).await?;
    let path = last_segment(&folders.path("export"))?;
    let name = path.display().to_string();
    let healthy = fs::read(&path)?;
    let mut flipped = healthy.clone();
    *flipped.get_mut(healthy.len() / 2).context("an empty segment")? ^= 1;
    let cases = [
        (flipped, "offset "),
        (healthy[..healthy.len() / 2].to_vec(), "truncated: the file has "),
        (b"PK\x03\x04 an archive".to_vec(), "begins with 504b0304"),
        ([&healthy[..], b"x"].concat(), "the manifest "),
    ];
    for (bytes, expected) in cases {
        fs::write(&path, bytes)?;
        let error = failed(&["import", "--into", &b, &export]).await?;
        ensure!(
            error.contains(&name) && error.contains("segment of table data") && error.contains(expected),
            "{expected}: {error}"
        );
        let error = failed(&["compare", &a, &format!("export:{export}")]).await?;
        ensure!(error.contains(expected), "{expected}: {error}");
    }
    // The import resumes with the segment.
    fs::write(&path, healthy)?;
    done(&["import", "--into", &b, &export]).await?;
    done(&["compare", &a, &b]).await?;
    // A store that was made anew is not taken for an imported one.
    fs::remove_dir_all(folders.path("b"))?;
    let error = failed(&["import", "--into", &b, &export]).await?;
    ensure!(error.contains("the store lacks imported rows"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_cannot_be_copied_are_rejected() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    let missing = folders.text("embedded:", "missing");
    let export = folders.text("", "export");
    let error = failed(&["export", &missing, &export]).await?;
    ensure!(error.contains("no data folder of an embedded store"), "{error}");
    ensure!(!folders.path("missing").exists() && !folders.path("export").exists());

    written_store(&folders.path("a")).await?;
    let a = folders.text("embedded:", "a");
    fs::create_dir(folders.path("full"))?;
    fs::write(folders.path("full").join("x"), "x")?;
    let error = failed(&["export", &a, &folders.text("", "full")]).await?;
    ensure!(error.contains("is not empty and not an export"), "{error}");
    let error = failed(&["import", "--into", &missing, &folders.text("", "full")]).await?;
    ensure!(error.contains("not an export"), "{error}");
    done(&["export", &a, &export]).await?;
    let error = failed(&["import", "--into", &missing, &export, "--salt-width=1"]).await?;
    ensure!(error.contains("0 bytes of salt"), "{error}");
    let error = failed(&["import", &export]).await?;
    ensure!(error.contains("--into"), "{error}");

    let server = Tsdb::start_with(Options::default().data_dir(&folders.path("a"))).await?;
    let error = failed(&["compare", &a, &format!("export:{export}")]).await?;
    ensure!(error.contains("open the store in"), "{error}");
    drop(server);
    Ok(())
}
