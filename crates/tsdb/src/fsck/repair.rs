//! Repairs of rows, and their lines in files.
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

use std::path::Path;

use anyhow::{Context as _, ensure};
use oxtsdb_client::proto::data::v1::repair_rows_response::Effect;
use oxtsdb_client::proto::data::v1::{CheckedRow, RowCellChange, RowRepair};
use oxtsdb_client::{DataClient, Error, Rejection};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{severity_name, type_name};
use crate::repair_plan::{Applied, Hex, PlanWriter, Repair, value_bytes};

/// Changes of a repair, as the server limits them.
const MAX_CHANGES: usize = 65_536;

/// Bytes of a repair: the server's limit of a request, with space for its encoding.
const MAX_BYTES: usize = 31 << 20;

/// Bytes of a change without its texts, about.
const CHANGE_BYTES: usize = 64;

/// Upper case.
type HexText = Hex<true>;

/// A repair of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredRepair {
    row: HexText,
    changes: Vec<Change>,
}

/// A conditional change of a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    qualifier: HexText,
    old: Option<HexText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_ms: Option<i64>,
    new: Option<HexText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    new_ms: Option<i64>,
}

impl From<RowRepair> for StoredRepair {
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

impl From<StoredRepair> for RowRepair {
    fn from(repair: StoredRepair) -> Self {
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
    row: HexText,
    findings: Vec<Finding>,
    repairs: Vec<StoredRepair>,
}

#[derive(Debug, Serialize)]
struct Finding {
    finding: String,
    severity: &'static str,
    count: u64,
    qualifier: HexText,
    message: String,
}

/// A line of a plan as it is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanLine {
    #[serde(rename = "row")]
    _row: HexText,
    #[serde(rename = "findings")]
    _findings: IgnoredAny,
    repairs: Vec<StoredRepair>,
}

/// Adds a row with findings to a plan, unless nothing is repaired.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn add(plan: &mut PlanWriter, row: CheckedRow) -> anyhow::Result<()> {
    let is_repaired = !row.repairs.is_empty();
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
    plan.add(is_repaired, is_repaired.then_some(&line))
}

impl Repair for RowRepair {
    const COMMAND: &'static str = "fsck";
    const PLAN: &'static str = "oxtsdb-fsck-plan";
    const UNDO: &'static str = "oxtsdb-fsck-undo";

    type Client = DataClient;
    type Stored = StoredRepair;
    type PlanLine = PlanLine;

    fn from_line(line: PlanLine) -> Vec<StoredRepair> {
        line.repairs
    }

    fn checked(read: anyhow::Result<StoredRepair>, file: &Path) -> anyhow::Result<Self> {
        let repair = Self::from(read.with_context(|| file.display().to_string())?);
        ensure!(
            repair.byte_len() <= MAX_BYTES && repair.changes() <= MAX_CHANGES,
            "{}: the repair of {} is too large: {} changes, {} bytes, at most {MAX_CHANGES} and {MAX_BYTES} are allowed",
            file.display(),
            repair.title(),
            repair.changes(),
            repair.byte_len()
        );
        Ok(repair)
    }

    fn inverse(&self) -> Self {
        let inverse = |change: &RowCellChange| RowCellChange {
            qualifier: change.qualifier.clone(),
            old_value: change.new_value.clone(),
            old_timestamp_ms: change.new_timestamp_ms,
            new_value: change.old_value.clone(),
            new_timestamp_ms: change.old_timestamp_ms,
        };
        Self {
            changes: self.changes.iter().rev().map(inverse).collect(),
            ..self.clone()
        }
    }

    fn title(&self) -> String {
        format!("row {}", hex::encode_upper(&self.row_key))
    }

    fn changes(&self) -> usize {
        self.changes.len()
    }

    fn byte_len(&self) -> usize {
        let changes = self.changes.iter().map(|change| {
            let values = value_bytes(change.old_value.as_ref()) + value_bytes(change.new_value.as_ref());
            CHANGE_BYTES + change.qualifier.len() + values
        });
        self.row_key.len() + changes.sum::<usize>()
    }

    async fn send(client: &DataClient, repairs: Vec<Self>) -> Result<Vec<Result<Applied, Rejection>>, Error> {
        let applied = |effect| match effect {
            Effect::Changed => Applied::Changed,
            Effect::Unchanged | Effect::Unspecified => Applied::Unchanged,
        };
        let results = client.repair_rows(repairs).await?;
        Ok(results.into_iter().map(|result| result.map(applied)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair_plan::assert_read_from_its_end;

    fn repair(row: u8) -> RowRepair {
        let change = |qualifier: u8, new: &'static [u8]| RowCellChange {
            qualifier: vec![qualifier].into(),
            old_value: None,
            new_value: Some(new.into()),
            old_timestamp_ms: None,
            new_timestamp_ms: Some(7),
        };
        RowRepair {
            row_key: vec![row].into(),
            changes: vec![change(1, b"a"), change(2, b"b")],
        }
    }

    #[test]
    fn a_line_has_bytes_in_upper_case_and_times_of_cells() {
        let mut repair = repair(0xAB);
        repair.changes.truncate(1);
        let line = serde_json::to_string(&StoredRepair::from(repair.clone())).unwrap();
        assert_eq!(
            line,
            r#"{"row":"AB","changes":[{"qualifier":"01","old":null,"new":"61","new_ms":7}]}"#
        );
        let read = serde_json::from_str(&line).map_err(Into::into);
        assert_eq!(RowRepair::checked(read, Path::new("plan")).unwrap(), repair);
    }

    #[test]
    fn an_inverse_restores_cells_from_the_last_change() {
        let inverse = repair(1).inverse();
        let first = &inverse.changes[0];
        assert_eq!(first.old_value.as_deref(), Some(b"b".as_slice()));
        assert_eq!((&first.new_value, first.old_timestamp_ms), (&None, Some(7)));
    }

    #[test]
    fn a_record_is_read_from_its_end_without_what_was_not_applied() {
        let cut_off = "{\"number\":4,\"undo\":{\"row\":\"00\"";
        assert_read_from_its_end(&[repair(1), repair(2), repair(3)], cut_off);
    }
}
