//! Folders of the repository, determined at run time: cargo may run a test that it built for another clone.

use std::env;
use std::path::PathBuf;

/// The folder of this package.
pub fn package() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    package.into()
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let mut folder = package();
    // The package lies directly in it.
    folder.pop();
    folder
}
