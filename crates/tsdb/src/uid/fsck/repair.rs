//! Repairs of names and UIDs, and their lines in files.
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

use std::path::Path;

use anyhow::{Context as _, bail};
use oxtsdb_client::proto::uid::v1::repair_uids_response::Effect;
use oxtsdb_client::proto::uid::v1::{UidCellChange, UidFinding, UidRepair};
use oxtsdb_client::proto::uid_kind;
use oxtsdb_client::{Error, Rejection, UidClient, UidKind};
use serde::{Deserialize, Serialize};

use super::{severity_name, type_name};
use crate::repair_plan::{Applied, Hex, PlanWriter, Repair, value_bytes};

/// Bytes of a change without its texts, about.
const CHANGE_BYTES: usize = 64;

/// Lower case.
type HexText = Hex<false>;

/// A repair of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredRepair {
    label: String,
    #[serde(default)]
    description: String,
    changes: Vec<Change>,
}

/// A conditional change of a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    row: HexText,
    family: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qualifier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qualifier_hex: Option<HexText>,
    old: Option<HexText>,
    new: Option<HexText>,
}

impl From<UidRepair> for StoredRepair {
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
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
            .map(str::to_owned);
        Self {
            row: Hex(change.row),
            qualifier_hex: text.is_none().then_some(Hex(change.qualifier)),
            qualifier: text,
            family: change.family,
            old: change.old_value.map(Hex),
            new: change.new_value.map(Hex),
        }
    }
}

impl TryFrom<Change> for UidCellChange {
    type Error = anyhow::Error;

    fn try_from(change: Change) -> anyhow::Result<Self> {
        let qualifier = match (change.qualifier, change.qualifier_hex) {
            (Some(text), None) => text.into_bytes().into(),
            (None, Some(bytes)) => bytes.0,
            _ => bail!("a change has either `qualifier` or `qualifier_hex`"),
        };
        Ok(Self {
            row: change.row.0,
            family: change.family,
            qualifier,
            old_value: change.old.map(|value| value.0),
            new_value: change.new.map(|value| value.0),
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
    repair: Option<StoredRepair>,
    alternatives: Vec<StoredRepair>,
}

/// A line of a plan as it is read.
#[derive(Debug, Deserialize)]
pub(crate) struct PlanLine {
    #[serde(default)]
    repair: Option<StoredRepair>,
}

/// Adds a finding to a plan, unless it has neither a repair nor alternatives.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn add(plan: &mut PlanWriter, finding: UidFinding) -> anyhow::Result<()> {
    let is_repaired = finding.repair.is_some();
    let has_line = is_repaired || !finding.alternatives.is_empty();
    let line = Finding {
        finding: type_name(finding.r#type),
        severity: severity_name(finding.severity),
        kind: finding.kind.and_then(uid_kind).map(UidKind::as_str),
        names: finding.names,
        uid: hex::encode_upper(&finding.uid),
        message: finding.message,
        repair: finding.repair.map(Into::into),
        alternatives: finding.alternatives.into_iter().map(Into::into).collect(),
    };
    plan.add(is_repaired, has_line.then_some(&line))
}

impl Repair for UidRepair {
    const COMMAND: &'static str = "uid fsck";
    const PLAN: &'static str = "oxtsdb-uid-plan";
    const UNDO: &'static str = "oxtsdb-uid-undo";

    type Client = UidClient;
    type Stored = StoredRepair;
    type PlanLine = PlanLine;

    fn from_line(line: PlanLine) -> Vec<StoredRepair> {
        line.repair.into_iter().collect()
    }

    fn checked(read: anyhow::Result<StoredRepair>, file: &Path) -> anyhow::Result<Self> {
        let repair = read?;
        let changes = repair.changes.into_iter().map(TryInto::try_into);
        let changes = changes.collect::<anyhow::Result<_>>();
        Ok(Self {
            label: repair.label,
            description: String::new(),
            changes: changes.with_context(|| file.display().to_string())?,
        })
    }

    fn inverse(&self) -> Self {
        let inverse = |change: &UidCellChange| UidCellChange {
            old_value: change.new_value.clone(),
            new_value: change.old_value.clone(),
            ..change.clone()
        };
        Self {
            changes: self.changes.iter().rev().map(inverse).collect(),
            ..self.clone()
        }
    }

    fn title(&self) -> String {
        self.label.clone()
    }

    fn changes(&self) -> usize {
        self.changes.len()
    }

    fn byte_len(&self) -> usize {
        let changes = self.changes.iter().map(|change| {
            let values = value_bytes(change.old_value.as_ref()) + value_bytes(change.new_value.as_ref());
            CHANGE_BYTES + change.row.len() + change.qualifier.len() + values
        });
        changes.sum()
    }

    async fn send(client: &UidClient, repairs: Vec<Self>) -> Result<Vec<Result<Applied, Rejection>>, Error> {
        let applied = |effect| match effect {
            Effect::Changed => Applied::Changed,
            Effect::Unchanged | Effect::Unspecified => Applied::Unchanged,
        };
        let results = client.repair_uids(repairs).await?;
        Ok(results.into_iter().map(|result| result.map(applied)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair_plan::assert_read_from_its_end;

    fn repair(row: u8) -> UidRepair {
        let change = |new: &'static [u8]| UidCellChange {
            row: vec![row].into(),
            family: "id".to_owned(),
            qualifier: vec![0xff].into(),
            old_value: None,
            new_value: Some(new.into()),
        };
        UidRepair {
            label: "restore".to_owned(),
            description: String::new(),
            changes: vec![change(b"a"), change(b"b")],
        }
    }

    #[test]
    fn a_line_has_bytes_in_lower_case_and_qualifiers_as_text_if_possible() {
        let mut repair = repair(0xAB);
        repair.changes[1].qualifier = b"tagk".as_slice().into();
        let line = serde_json::to_string(&StoredRepair::from(repair.clone())).unwrap();
        assert_eq!(
            line,
            concat!(
                r#"{"label":"restore","description":"","changes":["#,
                r#"{"row":"ab","family":"id","qualifier_hex":"ff","old":null,"new":"61"},"#,
                r#"{"row":"ab","family":"id","qualifier":"tagk","old":null,"new":"62"}]}"#
            )
        );
        let read = serde_json::from_str(&line).map_err(Into::into);
        assert_eq!(UidRepair::checked(read, Path::new("plan")).unwrap(), repair);
        let twice = line.replace(r#""qualifier""#, r#""qualifier_hex":"ff","qualifier""#);
        let read = serde_json::from_str(&twice).map_err(Into::into);
        let error = UidRepair::checked(read, Path::new("plan")).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "plan: a change has either `qualifier` or `qualifier_hex`"
        );
    }

    #[test]
    fn an_inverse_restores_cells_from_the_last_change() {
        let inverse = repair(1).inverse();
        let first = &inverse.changes[0];
        assert_eq!(first.old_value.as_deref(), Some(b"b".as_slice()));
        assert_eq!(first.new_value, None);
    }

    #[test]
    fn a_record_is_read_from_its_end_without_what_was_not_applied() {
        let cut_off = "{\"number\":4,\"undo\":{\"label\":\"x\"";
        assert_read_from_its_end(&[repair(1), repair(2), repair(3)], cut_off);
    }
}
