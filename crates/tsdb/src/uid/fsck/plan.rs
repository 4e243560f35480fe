//! Files of repairs, as lines of JSON.
//!
//! ```text
//!   {"format":"oxtsdb-uid-plan","version":1}
//!   {"finding":"MISSING_REVERSE","severity":"ERROR","kind":"metrics","names":["a"],"uid":"000001","message":"...",
//!    "repair":{"label":"restore","description":"...","changes":[
//!      {"row":"000001","family":"name","qualifier":"metrics","old":null,"new":"61"}]},
//!    "alternatives":[...]}
//! ```
//!
//! Rows and values are hex, `null` is an absent cell. A qualifier that is not printable ASCII is hex, too, in
//! `qualifier_hex`. Only `repair` is applied; the rest is for people.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Lines, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use oxtsdb_client::UidKind;
use oxtsdb_client::proto::uid::v1::{UidCellChange, UidFinding, UidRepair};
use oxtsdb_client::proto::uid_kind;
use serde::{Deserialize, Serialize};

use super::{severity_name, type_name};

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
}

/// The format of a plan.
pub(super) const PLAN: &str = "oxtsdb-uid-plan";

/// The version of both formats.
pub(super) const VERSION: u32 = 1;

/// A repair of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Repair {
    pub(super) label: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) changes: Vec<Change>,
}

/// A conditional change of a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    row: Hex,
    family: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qualifier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qualifier_hex: Option<Hex>,
    old: Option<Hex>,
    new: Option<Hex>,
}

/// Bytes, as hex.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex(Vec<u8>);

impl Clone for Hex {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl TryFrom<String> for Hex {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        hex::decode(text).map(Self)
    }
}

impl From<Hex> for String {
    fn from(bytes: Hex) -> Self {
        hex::encode(bytes.0)
    }
}

impl From<UidRepair> for Repair {
    fn from(repair: UidRepair) -> Self {
        Self {
            label: repair.label,
            description: repair.description,
            changes: repair.changes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<UidCellChange> for Change {
    fn from(change: UidCellChange) -> Self {
        let text = std::str::from_utf8(&change.qualifier)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
        let hex = |bytes: &[u8]| Hex(bytes.to_vec());
        Self {
            row: hex(&change.row),
            qualifier: text.map(str::to_owned),
            qualifier_hex: text.is_none().then(|| hex(&change.qualifier)),
            family: change.family,
            old: change.old_value.as_deref().map(hex),
            new: change.new_value.as_deref().map(hex),
        }
    }
}

impl Repair {
    /// The message of a repair.
    ///
    /// # Errors
    ///
    /// A change has no qualifier, or two.
    pub(super) fn message(&self) -> anyhow::Result<UidRepair> {
        let changes = self.changes.iter().map(Change::message);
        Ok(UidRepair {
            label: self.label.clone(),
            description: String::new(),
            changes: changes.collect::<anyhow::Result<_>>()?,
        })
    }
}

impl Change {
    fn message(&self) -> anyhow::Result<UidCellChange> {
        let qualifier = match (&self.qualifier, &self.qualifier_hex) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(bytes)) => bytes.0.clone(),
            _ => bail!("a change has either `qualifier` or `qualifier_hex`"),
        };
        let value = |value: &Option<Hex>| value.as_ref().map(|bytes| bytes.0.clone().into());
        Ok(UidCellChange {
            row: self.row.0.clone().into(),
            family: self.family.clone(),
            qualifier: qualifier.into(),
            old_value: value(&self.old),
            new_value: value(&self.new),
        })
    }
}

/// A line of a plan as it is written.
#[derive(Debug, Serialize)]
struct Finding {
    finding: String,
    severity: &'static str,
    kind: Option<&'static str>,
    names: Vec<String>,
    uid: String,
    message: String,
    repair: Option<Repair>,
    alternatives: Vec<Repair>,
}

/// A line of a plan as it is read.
#[derive(Debug, Deserialize)]
struct PlanLine {
    #[serde(default)]
    repair: Option<Repair>,
}

/// Writes a plan.
#[derive(Debug)]
pub(super) struct PlanWriter {
    file: BufWriter<File>,
    repairs: u64,
    unrepaired: u64,
}

impl PlanWriter {
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut plan = Self {
            file: BufWriter::new(super::create(path)?),
            repairs: 0,
            unrepaired: 0,
        };
        write_line(&mut plan.file, &header(PLAN))?;
        Ok(plan)
    }

    /// Adds a finding, unless nothing can be done about it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn add(&mut self, finding: UidFinding) -> anyhow::Result<()> {
        if finding.repair.is_none() {
            self.unrepaired += 1;
        } else {
            self.repairs += 1;
        }
        if finding.repair.is_none() && finding.alternatives.is_empty() {
            return Ok(());
        }
        let kind = finding.kind.and_then(uid_kind);
        let line = Finding {
            finding: type_name(finding.r#type),
            severity: severity_name(finding.severity),
            kind: kind.map(UidKind::as_str),
            names: finding.names,
            uid: hex::encode_upper(&finding.uid),
            message: finding.message,
            repair: finding.repair.map(Into::into),
            alternatives: finding.alternatives.into_iter().map(Into::into).collect(),
        };
        write_line(&mut self.file, &line)
    }

    /// Returns the number of repairs, and of findings without one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn finish(mut self) -> anyhow::Result<(u64, u64)> {
        self.file.flush().context("write the plan")?;
        self.file.get_ref().sync_all().context("write the plan")?;
        Ok((self.repairs, self.unrepaired))
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
            number: 1,
            name: path.display().to_string(),
        })
    }
}

impl Iterator for PlanReader {
    type Item = anyhow::Result<Repair>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
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
                Ok(PlanLine { repair: None }) => {}
                Ok(PlanLine { repair: Some(repair) }) => return Some(Ok(repair)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
