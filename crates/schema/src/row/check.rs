//! Checks a row of table `tsdb`, and plans its repair.
//!
//! ```text
//!   row key ──► key findings ─────────────────────────────► quarantine of the row
//!   cells ────► cell findings ──► points of all cells ──► duplicates ──► the cells as they should be ──► changes
//! ```
//!
//! A finding has a type; [`CheckRules`] says which types are repaired. All repairs of a row are one list of changes, because
//! findings meet in cells: a compacted cell can be out of order, and have a point that another cell has too. Repairs remove the
//! points that they cannot correct. A point that a reader returns keeps its instant and its value.
//!
//! A row in any form that OpenTSDB writes has no findings: single, compacted and appended points in both resolutions,
//! annotations, histograms.
//!
//! Source: OpenTSDB 2.4, `Fsck`, also for the report; [`RowFindingType`] has the differences.

mod finding;
mod key;
mod points;

use std::collections::BTreeMap;

use super::cell::{CellKind, CellRef};
use crate::annotation::Annotation;
use crate::hex_text::excerpt;
use crate::row_key::RowKeyLayout;
use crate::timestamp::HOUR_SECONDS;
use crate::uid::{Uid, UidKind};

pub use finding::{FindingSeverity, RowFinding, RowFindingType};
pub use key::row_uids;
use points::RowPoints;

/// How a row is checked.
#[derive(Debug, Clone)]
pub struct CheckRules {
    /// The layout of row keys.
    pub layout: RowKeyLayout,
    /// Which of several different values of one instant is kept.
    pub keep: KeepDuplicate,
    /// The types that a repair corrects.
    pub repair: Vec<RowFindingType>,
}

impl CheckRules {
    /// The rules without options: [`RowFindingType::is_repaired`], and of duplicates the oldest remains.
    pub fn new(layout: RowKeyLayout) -> CheckRules {
        let repair = RowFindingType::ALL
            .into_iter()
            .filter(|finding| finding.is_repaired());
        CheckRules {
            layout,
            keep: KeepDuplicate::Oldest,
            repair: repair.collect(),
        }
    }

    fn repairs(&self, finding: RowFindingType) -> bool {
        self.repair.contains(&finding)
    }
}

/// Which of several different values of one instant is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepDuplicate {
    /// The one in the cell with the oldest timestamp: OpenTSDB's default. Of equal timestamps, the first cell.
    #[default]
    Oldest,
    /// The one in the cell with the newest timestamp: OpenTSDB's `--last-write-wins`, and what its readers return with
    /// `tsd.storage.fix_duplicates`.
    Newest,
}

/// A change of a cell of the row. If both are equal, the cell is only compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The qualifier.
    pub qualifier: Vec<u8>,
    /// The value and the timestamp in milliseconds that the cell has; `None`: there is none.
    pub old: Option<(Vec<u8>, i64)>,
    /// Those that it gets; `None`: it is removed.
    pub new: Option<(Vec<u8>, i64)>,
}

/// The findings of a row, and their repair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowCheck {
    /// One finding for each type.
    pub findings: Vec<RowFinding>,
    /// The repair: cells that must stay as they are, those that are written, those that are removed. Empty: none of the findings is repaired.
    pub changes: Vec<RowChange>,
}

/// Checks a row.
///
/// `cells` are the row's cells of family `t`, ordered by qualifier, at most one of each. `is_unknown` says whether a UID has no name.
pub fn check_row(
    key: &[u8],
    cells: &[CellRef<'_>],
    rules: &CheckRules,
    is_unknown: &dyn Fn(UidKind, &Uid) -> bool,
) -> RowCheck {
    let mut findings = Findings::default();
    let key_check = key::check(key, &rules.layout, is_unknown, &mut findings);
    let quarantines = findings.0.keys().any(|finding| rules.repairs(*finding));
    if quarantines || !key_check.is_readable {
        let changes = if quarantines { removal(cells) } else { Vec::new() };
        return findings.into_check(changes);
    }
    let mut row = RowPoints::default();
    for (index, cell) in cells.iter().enumerate() {
        check_cell(index, *cell, rules, &mut row, &mut findings);
    }
    row.check_duplicates(cells, rules, &mut findings);
    let changes = row.changes(cells);
    findings.into_check(changes)
}

/// The findings of a row, by type.
#[derive(Debug, Default)]
struct Findings(BTreeMap<RowFindingType, RowFinding>);

impl Findings {
    /// Adds a finding. A type keeps the message of its first finding.
    fn add(&mut self, finding: RowFindingType, qualifier: &[u8], message: impl FnOnce() -> String) {
        let first = || RowFinding {
            finding,
            count: 0,
            qualifier: qualifier.to_vec(),
            message: message(),
        };
        self.0.entry(finding).or_insert_with(first).count += 1;
    }

    fn into_check(self, changes: Vec<RowChange>) -> RowCheck {
        RowCheck {
            findings: self.0.into_values().collect(),
            changes,
        }
    }
}

/// The changes that remove all cells.
fn removal(cells: &[CellRef<'_>]) -> Vec<RowChange> {
    let removed = cells.iter().map(|cell| RowChange {
        qualifier: cell.qualifier.to_vec(),
        old: Some((cell.value.to_vec(), cell.timestamp_ms)),
        new: None,
    });
    removed.collect()
}

/// Milliseconds of an hour.
const HOUR_MS: i64 = HOUR_SECONDS as i64 * 1000;

fn check_cell<'a>(
    index: usize,
    cell: CellRef<'a>,
    rules: &CheckRules,
    row: &mut RowPoints<'a>,
    findings: &mut Findings,
) {
    let qualifier = || excerpt(cell.qualifier);
    let has_known_length = matches!(cell.qualifier.len(), 3 | 5);
    let mut finding = |finding, message: String| {
        findings.add(finding, cell.qualifier, || message);
        if rules.repairs(finding) {
            row.remove(index);
        }
    };
    match CellKind::from_qualifier(cell.qualifier) {
        CellKind::Point => row.single(index, cell, rules, findings),
        CellKind::Compacted => row.compacted(index, cell, rules, findings),
        CellKind::Appended if has_known_length => row.appended(index, cell, rules, findings),
        CellKind::Annotation if has_known_length => {
            if let Err(error) = Annotation::decode(cell.value) {
                let message = format!("cell `{}`: {error}", qualifier());
                finding(RowFindingType::UnreadableAnnotation, message);
            } else if crate::annotation::offset_ms(cell.qualifier).is_none_or(|offset| offset >= HOUR_MS) {
                let message = format!("annotation `{}` is not of the row's hour", qualifier());
                finding(RowFindingType::BeyondHour, message);
            }
        }
        CellKind::Histogram if has_known_length => {
            let offset = crate::histogram::offset_ms(cell.qualifier);
            if cell.value.len() < 2 {
                let message = format!(
                    "histogram `{}` has {} bytes, expected the id of its codec and data",
                    qualifier(),
                    cell.value.len()
                );
                finding(RowFindingType::UnreadableHistogram, message);
            } else if offset.is_ok_and(|offset| i64::from(offset) >= HOUR_MS) {
                let message = format!("histogram `{}` is not of the row's hour", qualifier());
                finding(RowFindingType::BeyondHour, message);
            }
        }
        CellKind::Unknown if has_known_length => {
            let message = format!("cell `{}` may be of a newer version, or of a rollup", qualifier());
            finding(RowFindingType::FutureCell, message);
        }
        CellKind::Appended | CellKind::Annotation | CellKind::Histogram | CellKind::Unknown => {
            let message = format!(
                "qualifier `{}` has {} bytes, which no cell has",
                qualifier(),
                cell.qualifier.len()
            );
            finding(RowFindingType::UnknownCell, message);
        }
    }
}

#[cfg(test)]
mod tests;
