//! Plans: a line of JSON for each finding with its repairs.

use std::fs::File;
use std::io::{BufRead as _, BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use super::file;
use super::repair::Repair;

/// Writes a plan.
#[derive(Debug)]
pub(crate) struct PlanWriter {
    file: BufWriter<File>,
    repaired: u64,
    unrepaired: u64,
}

impl PlanWriter {
    /// Creates the plan of repairs of a kind.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub(crate) fn create<R: Repair>(path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            file: file::create(path, R::PLAN)?,
            repaired: 0,
            unrepaired: 0,
        })
    }

    /// Counts what was found, and adds its line, if it has one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn add(&mut self, is_repaired: bool, line: Option<&impl Serialize>) -> anyhow::Result<()> {
        if is_repaired {
            self.repaired += 1;
        } else {
            self.unrepaired += 1;
        }
        line.map_or(Ok(()), |line| file::write_line(&mut self.file, line))
    }

    /// Returns the counts of [`PlanWriter::add`] with a repair, and without.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn finish(mut self) -> anyhow::Result<(u64, u64)> {
        self.file.flush().context("write the plan")?;
        self.file.get_ref().sync_all().context("write the plan")?;
        Ok((self.repaired, self.unrepaired))
    }
}

/// Opens a plan, and returns its repairs in their order.
///
/// # Errors
///
/// The file cannot be read.
pub(super) fn repairs<R: Repair>(
    path: &Path,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<R::Stored>> + Send + use<R>> {
    let mut lines = file::open(path)?.lines();
    // The header.
    lines.next().transpose()?;
    let name = path.display().to_string();
    let repairs = move |(line, number): (std::io::Result<String>, u64)| {
        let place = || format!("{name} line {number}");
        let line = line.with_context(place)?;
        if line.trim().is_empty() {
            return Ok(Vec::new());
        }
        let line = serde_json::from_str(&line).with_context(place)?;
        anyhow::Ok(R::from_line(line))
    };
    Ok(lines.zip(2..).map(repairs).flat_map(|line| match line {
        Ok(repairs) => repairs.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }))
}
