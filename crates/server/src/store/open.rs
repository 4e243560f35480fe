//! Opening a folder of an embedded store for serving.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use oxtsdb_row_store::StoreError;
use oxtsdb_storage_file::disk::real::RealDisk;
use tracing::warn;

use super::Generation;

/// Opens the folder `name` of a data folder with `open`, between the check of its [`Generation`] and the next one.
///
/// # Errors
///
/// The folder is gone, an older copy or damaged: the error has the file and the commands that help. Errors of `open`.
pub fn open_folder<S, E: Into<StoreError>>(
    data_dir: &Path,
    name: &str,
    open: impl FnOnce(PathBuf) -> Result<S, E>,
) -> anyhow::Result<S> {
    let folder = data_dir.join(name);
    let generation = Generation::new(data_dir, name);
    let opened = || {
        // Before a store is created in the place of one that is gone.
        generation.check(&RealDisk)?;
        let store = open(folder.clone()).map_err(Into::into)?;
        // No other process has the folder now.
        match generation.advance(&RealDisk) {
            // A full disk must not end a start: reads are served. The numbers stay consistent.
            Err(error @ StoreError::Full { .. }) => {
                warn!(%error, "the generation of a folder cannot be written");
            }
            advanced => advanced?,
        }
        Ok(store)
    };
    opened()
        .map_err(|error| match error {
            StoreError::Corrupt { .. } => anyhow::anyhow!("{error}; {}", advice(data_dir)),
            StoreError::Unavailable { detail } => {
                anyhow::anyhow!("{detail}; stop that process, or set another --data-dir")
            }
            StoreError::Io { ref detail, .. } if is_without_rights(detail) => anyhow::anyhow!(
                "{error}; set --data-dir, now {}, to a folder that this user may write to",
                data_dir.display()
            ),
            error => error.into(),
        })
        .with_context(|| format!("open the store in {}", folder.display()))
}

/// Whether an error of the system says that the folder cannot be written by this user, or by any.
fn is_without_rights(error: &str) -> bool {
    [
        "Permission denied",
        "Operation not permitted",
        "Read-only file system",
        "Not a directory",
    ]
    .iter()
    .any(|reason| error.starts_with(reason))
}

/// Advice to operators on damage that prevents the start.
fn advice(data_dir: &Path) -> String {
    format!(
        "restore a snapshot to a new data folder (`tsdb restore`), or accept the loss with \
         `tsdb store salvage --data-dir {}`",
        data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use oxtsdb_row_store::cells::{CellConfig, CellStore};

    use super::*;

    fn open(data_dir: &Path) -> anyhow::Result<CellStore> {
        open_folder(data_dir, "uid", |folder| CellStore::open(CellConfig::new(folder)))
    }

    #[test]
    fn a_damaged_or_absent_folder_is_rejected_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path();
        drop(open(data_dir).unwrap());
        drop(open(data_dir).unwrap());
        let uid = data_dir.join("uid");
        let advice = format!(
            "restore a snapshot to a new data folder (`tsdb restore`), or accept the loss with `tsdb store salvage \
             --data-dir {}`",
            data_dir.display()
        );

        let list = uid.join("journal/SEGMENTS");
        let bytes = fs::read(&list).unwrap();
        fs::remove_file(&list).unwrap();
        let error = format!("{:#}", open(data_dir).unwrap_err());
        assert!(error.contains(&list.display().to_string()), "{error}");
        assert!(error.ends_with(&advice), "{error}");
        fs::write(&list, bytes).unwrap();
        drop(open(data_dir).unwrap());

        fs::remove_dir_all(&uid).unwrap();
        let error = format!("{:#}", open(data_dir).unwrap_err());
        assert!(error.contains("the folder is missing"), "{error}");
        assert!(error.ends_with(&advice), "{error}");
        assert!(!uid.exists(), "nothing is created in its place");
    }

    #[test]
    fn a_folder_in_use_is_rejected_with_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let _store = open(folder.path()).unwrap();
        let error = format!("{:#}", open(folder.path()).unwrap_err());
        assert!(error.contains("in use by process"), "{error}");
        assert!(
            error.ends_with("; stop that process, or set another --data-dir"),
            "{error}"
        );
        assert!(!error.contains("salvage"), "{error}");
    }

    #[test]
    fn a_folder_without_rights_is_rejected_with_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        // Tests may run as root, with all rights.
        let data_dir = folder.path().join("file");
        fs::write(&data_dir, "").unwrap();
        let error = format!("{:#}", open(&data_dir).unwrap_err());
        let advice = format!(
            "; set --data-dir, now {}, to a folder that this user may write to",
            data_dir.display()
        );
        assert!(error.ends_with(&advice), "{error}");
    }
}
