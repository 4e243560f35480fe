//! Parquet files of a program that is built without the feature `parquet`.

use std::path::Path;

use anyhow::bail;
use oxtsdb_client::proto::data::v1::StoredRow;

use super::names::SeriesName;

/// No file can be written.
pub(super) enum ParquetFile {}

impl ParquetFile {
    /// Begins no file.
    ///
    /// # Errors
    ///
    /// Always.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        bail!(
            "--parquet {}: this build has no Parquet; build it with `--features parquet`",
            path.display()
        )
    }

    pub(super) fn add(&mut self, _: &StoredRow, _: &SeriesName) -> anyhow::Result<u64> {
        match *self {}
    }

    pub(super) fn close(self) -> anyhow::Result<u64> {
        match self {}
    }
}
