//! Commands of `rig.sh`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::ensure;

use crate::paths;

/// A command of `rig.sh` on the rig in `folder`.
pub(super) fn command<I, S>(verb: &str, folder: &Path, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(paths::package().join("hbase/rig.sh"));
    command.arg(verb).arg(folder).args(arguments).stdin(Stdio::null());
    command
}

/// Runs the rig and returns its output, with any exit status.
pub(super) async fn output<I, S>(verb: &str, folder: &Path, arguments: I) -> anyhow::Result<Output>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = command(verb, folder, arguments);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Runs the rig and returns its output; fails with its error.
pub(super) async fn rig<I, S>(verb: &str, folder: &Path, arguments: I) -> anyhow::Result<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let output = output(verb, folder, arguments).await?;
    ensure!(
        output.status.success(),
        "rig.sh {verb}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
