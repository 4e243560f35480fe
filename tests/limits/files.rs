//! Permissions of the store's files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::ensure;
use oxtsdb_tests::load::Load;

use crate::support::{Target, works};

/// Mode bits that grant access to other users.
const OTHERS: u32 = 0o077;

/// Checks that no other user can reach a file of a folder.
fn check_private(path: &Path) -> anyhow::Result<()> {
    let data = fs::metadata(path)?;
    if data.permissions().mode() & OTHERS == 0 {
        // It protects everything below.
        return Ok(());
    }
    ensure!(
        data.is_dir(),
        "{} has mode {:o}",
        path.display(),
        data.permissions().mode()
    );
    for entry in fs::read_dir(path)? {
        check_private(&entry?.path())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_store_are_private() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    Load::new("files", 3, 100).write(&target.tsdb).await?;
    works(&target.tsdb).await?;
    check_private(target.tsdb.data_dir())?;
    // The flush at the end writes tables.
    let status = target.tsdb.terminate().await?;
    ensure!(status.code() == Some(0), "{status}");
    check_private(target.tsdb.data_dir())
}
