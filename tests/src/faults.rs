//! Storage that fails under a program: a library, preloaded into it, that fails calls of libc on files below a folder.
//!
//! The library is compiled by the C compiler that cargo links with (`faults/preloaded.c` describes it). A test switches
//! the faults while the program runs, by a file that the library reads at each call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::skip;

const SOURCE: &str = include_str!("faults/preloaded.c");

/// Faults of the files below a folder.
#[derive(Debug)]
pub struct Faults {
    below: PathBuf,
    folder: TempDir,
}

impl Faults {
    /// Compiles the library; no fault is active. `None`, with a note, without a C compiler.
    ///
    /// # Errors
    ///
    /// If the library does not compile.
    pub fn for_files_below(below: &Path) -> anyhow::Result<Option<Self>> {
        let folder = TempDir::with_prefix("oxtsdb-faults-")?;
        let source = folder.path().join("preloaded.c");
        fs::write(&source, SOURCE)?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(folder.path().join("preloaded.so"))
            .arg(&source)
            .output();
        let Ok(compiled) = compiled else {
            skip("preloading needs a C compiler, `cc`")?;
            return Ok(None);
        };
        let errors = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success(), "cc: {errors}");
        let below = below.to_owned();
        Ok(Some(Self { below, folder }))
    }

    /// The variables with which the program has to run.
    pub fn variables(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.folder.path().join("preloaded.so")),
            ("FAULTS_BELOW", self.below.clone()),
            ("FAULTS_CONTROL", self.control()),
            ("FAULTS_FAILED", self.record()),
        ]
        .map(|(name, path)| (name.to_owned(), path.display().to_string()))
        .into()
    }

    /// From now on, one sync fails, after some that succeed.
    ///
    /// # Errors
    ///
    /// If the control file cannot be written.
    pub fn fail_one_sync(&self, after: usize) -> anyhow::Result<()> {
        self.switch(&format!("sync {after} 1"))
    }

    /// From now on, every sync fails.
    ///
    /// # Errors
    ///
    /// If the control file cannot be written.
    pub fn fail_syncs(&self) -> anyhow::Result<()> {
        self.switch("sync 0 0")
    }

    /// From now on, every change of a file fails, as on a file system that became read-only.
    ///
    /// # Errors
    ///
    /// If the control file cannot be written.
    pub fn make_readonly(&self) -> anyhow::Result<()> {
        self.switch("readonly 0 0")
    }

    /// From now on, nothing fails.
    ///
    /// # Errors
    ///
    /// If the control file cannot be removed.
    pub fn end(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.control())?)
    }

    /// The files of the calls that failed, in their order.
    pub fn failed(&self) -> Vec<PathBuf> {
        let record = fs::read_to_string(self.record()).unwrap_or_default();
        record.lines().map(PathBuf::from).collect()
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("failed")
    }

    /// By a rename, so that the program never reads a part of it.
    fn switch(&self, mode: &str) -> anyhow::Result<()> {
        let new = self.folder.path().join("control.new");
        fs::write(&new, mode)?;
        fs::rename(&new, self.control()).context("switch faults on")
    }
}
