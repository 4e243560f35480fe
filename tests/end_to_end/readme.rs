//! README's examples print what README shows, in its order, on a server that started empty.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::examples::{self, Example};
use oxtsdb_tests::{Tsdb, paths, program_path};

/// `nc HOST PORT` for machines without one: sends standard input, prints the response.
const NC: &str = "#!/usr/bin/env bash
exec 3<>\"/dev/tcp/$1/$2\"
cat >&3
cat <&3
";

#[tokio::test(flavor = "multi_thread")]
async fn examples_print_what_readme_shows() -> anyhow::Result<()> {
    let examples = examples::parse(&fs::read_to_string(paths::workspace().join("README.md"))?)?;
    ensure!(
        examples.len() >= 10,
        "README has only {} examples",
        examples.len()
    );
    let tsdb = Tsdb::start().await?;
    let path = search_path(tsdb.folder())?;
    for example in examples {
        let line = example.line;
        run(&tsdb, &example, &path).with_context(|| format!("README.md:{line}:\n{}\n", example.script))?;
    }
    Ok(())
}

/// Rust examples are parts of a program that is compiled.
#[test]
fn rust_examples_are_those_of_the_client() -> anyhow::Result<()> {
    let readme = fs::read_to_string(paths::workspace().join("README.md"))?;
    let program = fs::read_to_string(paths::workspace().join("crates/client/examples/quickstart.rs"))?;
    let mut blocks = readme.split("\n```rust\n").skip(1).peekable();
    ensure!(blocks.peek().is_some(), "README has no example in Rust");
    for block in blocks {
        let (code, _) = block.split_once("```").context("a block is closed")?;
        ensure!(program.contains(code), "quickstart.rs has no such lines:\n{code}");
    }
    Ok(())
}

/// Folders of programs: the program under test first, `nc` of ours last.
fn search_path(folder: &Path) -> anyhow::Result<OsString> {
    let tsdb = program_path("tsdb")?;
    let tools = folder.join("tools");
    fs::create_dir(&tools)?;
    fs::write(tools.join("nc"), NC)?;
    fs::set_permissions(tools.join("nc"), Permissions::from_mode(0o755))?;
    let inherited = env::var_os("PATH").unwrap_or_default();
    let first = tsdb.parent().context("a program lies in a folder")?.to_owned();
    let folders = [first]
        .into_iter()
        .chain(env::split_paths(&inherited))
        .chain([tools]);
    Ok(env::join_paths(folders)?)
}

/// Runs a script with the ports of this server, in a time zone that differs from UTC: no example
/// may depend on that of the reader.
fn run(tsdb: &Tsdb, example: &Example, path: &OsString) -> anyhow::Result<()> {
    let mut script = format!("set -euo pipefail\n{}\n", example.script);
    for (port, address) in [
        ("4242", tsdb.http_address()),
        ("4243", tsdb.data_address()),
        ("4244", tsdb.uid_address()),
    ] {
        for separator in [':', ' '] {
            let actual = format!("localhost{separator}{}", address.port());
            script = script.replace(&format!("localhost{separator}{port}"), &actual);
        }
    }
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", path)
        .env("TZ", "Asia/Tokyo")
        .env("OXTSDB_TARGET", format!("http://{}", tsdb.data_address()))
        .env("OXTSDB_UID_TARGET", format!("http://{}", tsdb.uid_address()))
        .current_dir(tsdb.folder())
        .stdin(Stdio::null())
        .output()
        .context("run bash")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}\n{printed}{errors}", output.status);
    examples::check(&printed, &example.output).with_context(|| format!("standard error: {errors}"))
}
