//! Files of repairs of rows, as lines of JSON.
//!
//! ```text
//!   {"format":"oxtsdb-fsck-plan","version":1}
//!   {"row":"00000150E22700000001000001","findings":[
//!      {"finding":"META_BYTE","severity":"ERROR","count":1,"qualifier":"00000010","message":"..."}],
//!    "repairs":[{"row":"00000150E22700000001000001","changes":[
//!      {"qualifier":"00000010","old":"010207","old_ms":1356998400000,"new":"010200","new_ms":1356998400000}]}]}
//! ```
//!
//! Rows, qualifiers and values are hex, `null` is an absent cell; `old_ms` and `new_ms` are timestamps of cells. Only
//! `repairs` is applied; the rest is for people.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Lines, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use oxtsdb_client::proto::data::v1::{CheckedRow, RowCellChange, RowRepair};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{severity_name, type_name};

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
}

/// The format of a plan.
pub(super) const PLAN: &str = "oxtsdb-fsck-plan";

/// The version of both formats.
const VERSION: u32 = 1;

/// A repair of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Repair {
    row: Hex,
    changes: Vec<Change>,
}

/// A conditional change of a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    qualifier: Hex,
    old: Option<Hex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_ms: Option<i64>,
    new: Option<Hex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    new_ms: Option<i64>,
}

/// Bytes, as hex.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex(bytes::Bytes);

impl TryFrom<String> for Hex {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        hex::decode(text).map(|bytes| Self(bytes.into()))
    }
}

impl From<Hex> for String {
    fn from(bytes: Hex) -> Self {
        hex::encode_upper(bytes.0)
    }
}

impl From<RowRepair> for Repair {
    fn from(repair: RowRepair) -> Self {
        let change = |change: RowCellChange| Change {
            qualifier: Hex(change.qualifier),
            old: change.old_value.map(Hex),
            old_ms: change.old_timestamp_ms,
            new: change.new_value.map(Hex),
            new_ms: change.new_timestamp_ms,
        };
        Self {
            row: Hex(repair.row_key),
            changes: repair.changes.into_iter().map(change).collect(),
        }
    }
}

impl From<Repair> for RowRepair {
    fn from(repair: Repair) -> Self {
        let change = |change: Change| RowCellChange {
            qualifier: change.qualifier.0,
            old_value: change.old.map(|value| value.0),
            old_timestamp_ms: change.old_ms,
            new_value: change.new.map(|value| value.0),
            new_timestamp_ms: change.new_ms,
        };
        Self {
            row_key: repair.row.0,
            changes: repair.changes.into_iter().map(change).collect(),
        }
    }
}

/// A line of a plan as it is written.
#[derive(Debug, Serialize)]
struct Row {
    row: Hex,
    findings: Vec<Finding>,
    repairs: Vec<Repair>,
}

#[derive(Debug, Serialize)]
struct Finding {
    finding: String,
    severity: &'static str,
    count: u64,
    qualifier: Hex,
    message: String,
}

/// A line of a plan as it is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanLine {
    #[serde(rename = "row")]
    _row: Hex,
    #[serde(rename = "findings")]
    _findings: IgnoredAny,
    repairs: Vec<Repair>,
}

/// Writes a plan.
#[derive(Debug)]
pub(super) struct PlanWriter {
    file: BufWriter<File>,
    repaired: u64,
    unrepaired: u64,
}

impl PlanWriter {
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut plan = Self {
            file: BufWriter::new(super::create(path)?),
            repaired: 0,
            unrepaired: 0,
        };
        write_line(&mut plan.file, &header(PLAN))?;
        Ok(plan)
    }

    /// Adds a row with findings, unless nothing is repaired.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn add(&mut self, row: CheckedRow) -> anyhow::Result<()> {
        if row.repairs.is_empty() {
            self.unrepaired += 1;
            return Ok(());
        }
        self.repaired += 1;
        let findings = row.findings.into_iter().map(|finding| Finding {
            finding: type_name(finding.r#type),
            severity: severity_name(finding.severity),
            count: finding.count,
            qualifier: Hex(finding.qualifier),
            message: finding.message,
        });
        let line = Row {
            row: Hex(row.row_key),
            findings: findings.collect(),
            repairs: row.repairs.into_iter().map(Into::into).collect(),
        };
        write_line(&mut self.file, &line)
    }

    /// Returns the number of rows with repairs, and of those without.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn finish(mut self) -> anyhow::Result<(u64, u64)> {
        self.file.flush().context("write the plan")?;
        self.file.get_ref().sync_all().context("write the plan")?;
        Ok((self.repaired, self.unrepaired))
    }
}

pub(super) fn header(format: &str) -> Header {
    Header {
        format: format.to_owned(),
        version: VERSION,
    }
}

/// Writes a line of JSON.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn write_line(file: &mut BufWriter<File>, line: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *file, line).context("write a line")?;
    file.write_all(b"\n").context("write a line")
}

/// Reads the format of a file.
///
/// # Errors
///
/// The file cannot be read, or is neither a plan nor a record.
pub(super) fn format_of(path: &Path) -> anyhow::Result<String> {
    let file = open(path)?;
    let first = file.lines().next().transpose()?.unwrap_or_default();
    let header: Header = serde_json::from_str(&first)
        .with_context(|| format!("{}: the first line is not that of a plan", path.display()))?;
    ensure!(
        header.version == VERSION,
        "{}: version {} is not known, only {VERSION}",
        path.display(),
        header.version
    );
    Ok(header.format)
}

pub(super) fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Ok(BufReader::new(file))
}

/// The repairs of a plan, in its order.
#[derive(Debug)]
pub(super) struct PlanReader {
    lines: Lines<BufReader<File>>,
    /// Those of the current line that are left.
    repairs: std::vec::IntoIter<Repair>,
    /// The number of the last line.
    number: u64,
    name: String,
}

impl PlanReader {
    /// Opens a plan, behind its header.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let mut lines = open(path)?.lines();
        lines.next().transpose()?;
        Ok(Self {
            lines,
            repairs: Vec::new().into_iter(),
            number: 1,
            name: path.display().to_string(),
        })
    }
}

impl Iterator for PlanReader {
    type Item = anyhow::Result<RowRepair>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(repair) = self.repairs.next() {
                return Some(Ok(repair.into()));
            }
            let line = self.lines.next()?;
            self.number += 1;
            let place = || format!("{} line {}", self.name, self.number);
            let line = match line.with_context(place) {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str::<PlanLine>(&line).with_context(place) {
                Ok(line) => self.repairs = line.repairs.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
