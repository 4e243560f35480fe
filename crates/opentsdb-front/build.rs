//! Sets `OXTSDB_REVISION` for `version`, unless the build sets it: the commit of the checkout.
//!
//! Release builds only: a build in `dev` would compile this crate again after each commit.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=OXTSDB_REVISION");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if !is_release || std::env::var_os("OXTSDB_REVISION").is_some() {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    // Sources without a repository of their own may lie in another project's.
    let root = git(&folder, &["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    if root.as_deref() != folder.ancestors().nth(2) {
        return;
    }
    // The log of HEAD grows with each commit and checkout.
    if let Some(log) = git(&folder, &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={}", folder.join(log).display());
    }
    if let Some(revision) = git(&folder, &["rev-parse", "HEAD"]) {
        println!("cargo::rustc-env=OXTSDB_REVISION={revision}");
    }
}

/// The output of git; `None` without git or a repository.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(folder)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
