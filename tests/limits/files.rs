//! Who may read the files of the store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::ensure;
use oxtsdb_tests::load::Load;

use crate::support::{Target, works};

/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// Fails if another user can reach a file of a folder.
fn check_private(path: &Path) -> anyhow::Result<()> {
    let data = fs::metadata(path)?;
    if data.permissions().mode() & OTHERS == 0 {
        // No one gets below it.
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
async fn no_other_user_reads_the_files_of_the_store() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    Load::new("files", 3, 100).write(&target.tsdb).await?;
    works(&target.tsdb).await?;
    check_private(target.tsdb.data_dir())?;
    // The flush at the end writes tables.
    let status = target.tsdb.terminate().await?;
    ensure!(status.code() == Some(0), "{status}");
    check_private(target.tsdb.data_dir())
}
