//! The examples of README and of the guide print what their page shows. Each page runs in its order, on a server of its own that
//! started empty.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::examples::{self, Example, Page};
use oxtsdb_tests::{Options, Tsdb, paths, program_path};

/// Pages without examples that run on a server of this test.
const WITHOUT_EXAMPLES: [&str; 3] = [
    // Programs in other languages: `clients/test.sh`, `tests/stubs/run.sh`.
    "docs/guide/clients.md",
    // Needs an HBase: `tests/hbase/interop.sh`.
    "docs/guide/hbase.md",
    // Formulas.
    "docs/guide/sizing.md",
];

/// Pages with lines of the example program of the Rust client.
const WITH_RUST: [&str; 2] = ["README.md", "docs/guide/clients.md"];

/// `nc HOST PORT` for machines without one: sends standard input, prints the response.
const NC: &str = "#!/usr/bin/env bash
exec 3<>\"/dev/tcp/$1/$2\"
cat >&3
cat <&3
";

#[tokio::test(flavor = "multi_thread")]
async fn examples_print_what_their_page_shows() -> anyhow::Result<()> {
    for document in documents()? {
        let text = fs::read_to_string(paths::workspace().join(&document))?;
        let page = examples::parse(&text).with_context(|| document.clone())?;
        if WITHOUT_EXAMPLES.contains(&document.as_str()) {
            ensure!(page.examples.is_empty(), "{document} has examples");
        } else {
            ensure!(!page.examples.is_empty(), "{document} has no examples");
            run_page(&document, &page).await?;
        }
    }
    Ok(())
}

/// Rust examples are parts of a program that is compiled.
#[test]
fn rust_examples_are_those_of_the_client() -> anyhow::Result<()> {
    let program = fs::read_to_string(paths::workspace().join("crates/client/examples/quickstart.rs"))?;
    for document in WITH_RUST {
        let text = fs::read_to_string(paths::workspace().join(document))?;
        let mut blocks = text.split("\n```rust\n").skip(1).peekable();
        ensure!(blocks.peek().is_some(), "{document} has no example in Rust");
        for block in blocks {
            let (code, _) = block.split_once("```").context("a block is closed")?;
            ensure!(
                program.contains(code),
                "{document}: quickstart.rs has no such lines:\n{code}"
            );
        }
    }
    Ok(())
}

/// README and the pages of the guide.
fn documents() -> anyhow::Result<Vec<String>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(paths::workspace().join("docs/guide"))? {
        let name = entry?
            .file_name()
            .into_string()
            .ok()
            .context("a file name is UTF-8")?;
        if Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == "md")
        {
            pages.push(format!("docs/guide/{name}"));
        }
    }
    pages.sort();
    pages.insert(0, "README.md".to_owned());
    Ok(pages)
}

/// Runs the examples of a page in a folder with its files, beside the server's data in `oxtsdb-data`.
async fn run_page(document: &str, page: &Page) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, content) in &page.files {
        fs::write(folder.path().join(name), content)?;
    }
    // The server runs in another folder.
    let flags = page.flags.iter().map(|word| {
        if page.files.iter().any(|(name, _)| name == word) {
            folder.path().join(word).display().to_string()
        } else {
            word.clone()
        }
    });
    let options = Options::default()
        .data_dir(&folder.path().join("oxtsdb-data"))
        .flags(flags);
    let tsdb = Tsdb::start_with(options)
        .await
        .with_context(|| format!("the server of {document}"))?;
    let path = search_path(folder.path())?;
    for example in &page.examples {
        let Example { line, script, .. } = example;
        run(&tsdb, example, folder.path(), &path)
            .with_context(|| format!("{document}:{line}:\n{script}\n"))?;
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

/// Runs a script with the ports of this server, in a time zone that differs from UTC: no example may depend on the time zone
/// of its reader.
fn run(tsdb: &Tsdb, example: &Example, folder: &Path, path: &OsString) -> anyhow::Result<()> {
    let mut script = format!("set -euo pipefail\n{}\n", example.script);
    for (port, address) in [
        ("4242", tsdb.http_address()),
        ("4243", tsdb.data_address()),
        ("4244", tsdb.uid_address()),
        ("4245", tsdb.admin_address()),
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
        .env("OXTSDB_ADMIN", format!("http://{}", tsdb.admin_address()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("run bash")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}\n{printed}{errors}", output.status);
    examples::check(&printed, &example.output).with_context(|| format!("standard error: {errors}"))
}
