//! Finds the programs under test.
//!
//! `cargo test --workspace` builds them: cargo builds the programs of every package that has
//! integration tests before it runs any test. `cargo test -p oxtsdb-tests` alone does not, and would
//! silently run an old program; so a missing or stale one is built here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;
use std::{env, fs};

use anyhow::{Context as _, bail, ensure};

use crate::paths;

/// Returns the path of a program of this workspace, such as `tsdb`. Builds it if it is missing or stale.
///
/// # Errors
///
/// If it cannot be built.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    static FOUND: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut found = match FOUND.lock() {
        Ok(found) => found,
        Err(poisoned) => poisoned.into_inner(),
    };
    let found = found.get_or_insert_default();
    if let Some(path) = found.get(name) {
        return Ok(path.clone());
    }
    let path = find(name)?;
    found.insert(name.to_owned(), path.clone());
    Ok(path)
}

fn find(name: &str) -> anyhow::Result<PathBuf> {
    let folder = profile_folder()?;
    let path = folder.join(name);
    if let Some(reason) = why_to_build(&path)? {
        eprintln!("building `{name}`: {reason}");
        build(name, &folder)?;
        ensure!(
            path.exists(),
            "cargo built `{name}`, but not as {}",
            path.display()
        );
    }
    Ok(path)
}

/// The folder of the profile, such as `target/debug`: two above this program,
/// `target/debug/deps/TEST-HASH`.
fn profile_folder() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("path of the test program")?;
    match program.parent().and_then(Path::parent) {
        Some(folder) => Ok(folder.to_owned()),
        None => bail!("{} lies in no target folder", program.display()),
    }
}

/// Returns why a program has to be built, by cargo's rule: a source is newer than the program. Cargo lists
/// the sources in a `.d` file beside it.
fn why_to_build(program: &Path) -> anyhow::Result<Option<String>> {
    let Ok(built) = fs::metadata(program).and_then(|data| data.modified()) else {
        return Ok(Some("it is missing".to_owned()));
    };
    if env::var_os("OXTSDB_CI_BUILT").is_some() {
        // `cargo test` has just built it, but leaves the list of sources of an earlier `cargo build`, perhaps of another clone.
        return Ok(None);
    }
    let list = program.with_extension("d");
    let Ok(list) = fs::read_to_string(&list) else {
        return Ok(Some(format!("{} is missing", list.display())));
    };
    let Some((_, sources)) = list.split_once(": ") else {
        bail!("the list of sources of {} cannot be read", program.display());
    };
    let workspace = paths::workspace();
    let mut is_ours = false;
    for source in sources.replace("\\ ", "\0").split_whitespace() {
        let source = PathBuf::from(source.replace('\0', " "));
        is_ours |= source.starts_with(&workspace);
        match newest(&source) {
            Ok(changed) if changed <= built => {}
            Ok(_) => return Ok(Some(format!("{} is newer", source.display()))),
            Err(_) => return Ok(Some(format!("{} does not exist", source.display()))),
        }
    }
    // A target folder may be shared by several clones.
    Ok((!is_ours).then(|| "it was built from another folder".to_owned()))
}

/// When a file was changed, or a file of a folder: cargo lists the folders that build scripts read.
fn newest(path: &Path) -> std::io::Result<SystemTime> {
    let data = fs::metadata(path)?;
    let mut newest = data.modified()?;
    if data.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(self::newest(&entry?.path())?);
        }
    }
    Ok(newest)
}

fn build(name: &str, folder: &Path) -> anyhow::Result<()> {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().context("a profile's folder has a parent")?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_test) {
            cargo.env_remove(name);
        }
    }
    let status = cargo
        // With the features of the whole workspace, so that dependencies are not built twice.
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            name,
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target)
        .current_dir(paths::workspace())
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "cargo could not build `{name}`: {status}");
    Ok(())
}

/// Whether cargo has set a variable for the test. Build scripts that read it, such as `ring`'s, would run again, now and
/// after the next command, with all that depends on them.
fn is_of_test(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"].contains(&name)
}
