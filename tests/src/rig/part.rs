//! A process of the rig.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::command::{command, rig};

/// A process of the rig. Dropping one that was started for a test kills it.
#[derive(Debug)]
pub struct Part {
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) address: Option<SocketAddr>,
    pub(super) is_shared: bool,
}

impl Part {
    /// Its address.
    ///
    /// # Errors
    ///
    /// For HBase itself, which only its own clients can reach.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.address
            .with_context(|| format!("{} has no address of its own", self.name))
    }

    /// Returns its log so far.
    ///
    /// # Errors
    ///
    /// If its log cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        let log = self.folder.join(&self.name).join("log");
        let bytes = std::fs::read(&log).with_context(|| log.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `kill -9`; returns after it has exited.
    ///
    /// # Errors
    ///
    /// The rig's.
    pub async fn kill9(&self) -> anyhow::Result<()> {
        self.command_part("kill").await
    }

    /// SIGSTOP: its connections stay open without responses.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.command_part("pause").await
    }

    /// SIGCONT.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub async fn resume(&self) -> anyhow::Result<()> {
        self.command_part("resume").await
    }

    /// Shuts it down; returns after it has exited.
    ///
    /// # Errors
    ///
    /// The rig's.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.command_part("stop").await
    }

    /// Starts it again at its address, after it has exited; returns when it is ready.
    ///
    /// # Errors
    ///
    /// If it still runs, or does not become ready.
    pub async fn again(&self) -> anyhow::Result<()> {
        self.command_part("again").await
    }

    async fn command_part(&self, verb: &str) -> anyhow::Result<()> {
        rig(verb, &self.folder, [&self.name]).await?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_shared {
            // After an error the rig stops it with the others.
            let _ = command("kill", &self.folder, [&self.name]).status();
        }
        if std::thread::panicking() {
            let log = self.log().unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default();
            eprintln!("--- the end of the log of {}:\n{}", self.name, last.join("\n"));
        }
    }
}
