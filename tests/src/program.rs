//! Finds the programs under test.
//!
//! `cargo test --workspace` builds them, as cargo builds the programs of packages with integration tests before it runs
//! any test. `cargo test -p oxtsdb-tests` does not, and would run old programs. So this module runs cargo too, for the same
//! programs with the features of `cargo test --workspace`: after that command it has nothing to compile.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context as _, bail, ensure};

use crate::paths;

/// An integration test of each package with a program: cargo builds the package's program for it.
const INTEGRATION_TESTS: [&str; 3] = ["program", "data_service", "uid_service"];

/// Returns the path of a program of this workspace, such as `tsdb`. The first call builds all programs that are missing or
/// older than their sources.
///
/// # Errors
///
/// If one cannot be built.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut folder = match FOLDER.lock() {
        Ok(folder) => folder,
        Err(poisoned) => poisoned.into_inner(),
    };
    let path = match &*folder {
        Some(folder) => folder.join(name),
        None => folder.insert(built_programs()?).join(name),
    };
    ensure!(
        path.exists(),
        "{} is no program of this workspace",
        path.display()
    );
    Ok(path)
}

/// Returns the folder of the programs after cargo has built them.
fn built_programs() -> anyhow::Result<PathBuf> {
    let folder = profile_folder()?;
    // `.ci/run` sets it after the build of all programs and tests: scripts that run beside each other do not wait for cargo's lock.
    if env::var_os("OXTSDB_CI_BUILT").is_none() {
        build(&folder)?;
    }
    Ok(folder)
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

fn build(folder: &Path) -> anyhow::Result<()> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_test) {
            cargo.env_remove(name);
        }
    }
    cargo.args(["test", "--quiet", "--workspace", "--no-run"]);
    // `cargo test` has the profile of `target/debug` unless another one is requested.
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(profile) => _ = cargo.args(["--profile", profile]),
    }
    for test in INTEGRATION_TESTS {
        cargo.args(["--test", test]);
    }
    let target = folder.parent().context("a profile's folder has a parent")?;
    // Its list of test programs would stand among the results of tests.
    let output = cargo
        .arg("--target-dir")
        .arg(target)
        .current_dir(paths::workspace())
        .output()
        .context("run cargo")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("cargo could not build the programs: {}\n{stderr}", output.status);
    }
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
