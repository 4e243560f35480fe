//! The first two scans: which names and UIDs are not confirmed by the mapping in the other direction.
//!
//! Cells that are wrong by themselves are reported here: unknown ones, names with characters that are not
//! allowed, metadata of UIDs that are mapped in both directions.

use futures::TryStreamExt as _;
use oxtsdb_row_store::{CellAddress, CellRef, ColumnSelection, Row, RowStream, Scan};
use oxtsdb_schema::uid_table::{COUNTER_ROW, meta_qualifier};
use oxtsdb_schema::{Name, PerKind, Uid, UidKind};

use super::cells::{self, forward, reverse};
use super::finding::{CellChange, Finding, FindingType, Repair, label};
use super::metadata;
use super::report::{Report, Stage};
use super::suspects::Suspects;
use super::text::{shown_name, shown_uid};
use crate::error::UidServiceError;
use crate::table::{ID, NAME, UidTable};

/// Rows of a batch.
const BATCH_ROWS: usize = 512;

/// The counts of a check for one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Names with a UID of the layout's width.
    pub(super) names: u64,
    /// The largest number among these UIDs, and the UIDs that names get by repairs.
    pub(super) largest: u64,
}

impl Totals {
    /// Adds a UID of the layout's width. A number that no counter can reach does not count.
    pub(super) fn add(&mut self, uid: Uid) {
        if uid.number() <= uid.width().max_number() {
            self.largest = self.largest.max(uid.number());
        }
    }
}

/// The meaning of a cell of family `name`.
enum NameColumn {
    Reverse(UidKind),
    Metadata(UidKind),
    /// Counters and metadata of series, which OpenTSDB's tools skip in this table.
    OfSeries,
    Unknown,
}

fn name_column(qualifier: &[u8]) -> NameColumn {
    if let Some(kind) = UidKind::from_qualifier(qualifier) {
        return NameColumn::Reverse(kind);
    }
    let mut kinds = UidKind::ALL.into_iter();
    match kinds.find(|kind| meta_qualifier(*kind) == qualifier) {
        Some(kind) => NameColumn::Metadata(kind),
        None if qualifier == b"ts_meta" || qualifier == b"ts_ctr" => NameColumn::OfSeries,
        None => NameColumn::Unknown,
    }
}

/// All rows of one family.
pub(super) async fn rows_of(table: &UidTable, family: &str) -> Result<RowStream, UidServiceError> {
    let mut scan = Scan::range([], []);
    scan.columns = ColumnSelection::Family(family.to_owned());
    scan.batch_rows = BATCH_ROWS;
    Ok(table.store().scan(table.name(), scan).await?)
}

/// The forward cells of a row of family `id`.
pub(super) fn forward_cells(row: &Row) -> impl Iterator<Item = (UidKind, CellRef<'_>)> {
    let cells = (row.key() != COUNTER_ROW).then(|| row.cells());
    cells
        .into_iter()
        .flatten()
        .filter_map(|cell| Some((UidKind::from_qualifier(cell.qualifier)?, cell)))
}

/// The kind and the name of each reverse cell of a row of family `name`, and of each metadata cell no name.
pub(super) fn reverse_cells(row: &Row) -> impl Iterator<Item = (UidKind, Option<&[u8]>)> {
    row.cells().filter_map(|cell| match name_column(cell.qualifier) {
        NameColumn::Reverse(kind) => Some((kind, Some(cell.value))),
        NameColumn::Metadata(kind) => Some((kind, None)),
        NameColumn::OfSeries | NameColumn::Unknown => None,
    })
}

/// The first two scans of a check.
pub(super) struct FirstScans<'a> {
    pub(super) table: &'a UidTable,
    pub(super) kinds: &'a [UidKind],
    pub(super) suspects: &'a mut Suspects,
    pub(super) totals: PerKind<Totals>,
    pub(super) report: &'a mut Report,
}

impl FirstScans<'_> {
    /// Scans all names and then all UIDs.
    pub(super) async fn run(mut self) -> Result<PerKind<Totals>, UidServiceError> {
        self.report.begin(Stage::Names);
        let mut rows = rows_of(self.table, ID).await?;
        while let Some(batch) = rows.try_next().await? {
            self.names(&batch).await?;
            self.report.progress(batch.len()).await?;
        }
        self.report.begin(Stage::Uids);
        let mut rows = rows_of(self.table, NAME).await?;
        while let Some(batch) = rows.try_next().await? {
            self.uids(&batch).await?;
            self.report.progress(batch.len()).await?;
        }
        Ok(self.totals)
    }

    /// Compares forward cells with the reverse cells of their UIDs.
    async fn names(&mut self, batch: &[Row]) -> Result<(), UidServiceError> {
        let mut mappings = Vec::with_capacity(batch.len());
        let mut findings = Vec::new();
        for row in batch {
            for cell in row.cells() {
                if UidKind::from_qualifier(cell.qualifier).is_none() {
                    findings.push(unknown(row, cell));
                }
            }
            for (kind, cell) in forward_cells(row) {
                if !self.kinds.contains(&kind) {
                    continue;
                }
                let width = self.table.layout().width(kind);
                match Uid::from_bytes(cell.value) {
                    Ok(uid) if uid.width() == width => {
                        let totals = self.totals.get_mut(kind);
                        totals.names += 1;
                        totals.add(uid);
                        self.report.count_names(1);
                        findings.extend(self.invalid_name(kind, row.key(), cell.value));
                        mappings.push((kind, row.key(), cell.value));
                    }
                    _ => self.suspects.add_name(kind, row.key()),
                }
            }
        }
        let reverse: Vec<CellAddress> = mappings
            .iter()
            .map(|(kind, _, uid)| reverse(*kind, uid))
            .collect();
        let stored_names = cells::values(self.table, &reverse).await?;
        for ((kind, name, uid), stored_name) in mappings.into_iter().zip(stored_names) {
            if stored_name.as_deref() != Some(name) {
                self.suspects.add_uid(kind, uid);
            }
        }
        self.push(findings).await
    }

    /// Compares reverse cells with the forward cells of their names.
    async fn uids(&mut self, batch: &[Row]) -> Result<(), UidServiceError> {
        let mut mappings = Vec::with_capacity(batch.len());
        let mut findings = Vec::new();
        for row in batch {
            for cell in row.cells() {
                match name_column(cell.qualifier) {
                    NameColumn::Reverse(kind) if self.kinds.contains(&kind) => {
                        let has_width = row.key().len() == self.table.layout().width(kind).bytes();
                        match forward(kind, cell.value).filter(|_| has_width) {
                            Some(forward) => mappings.push((kind, row, forward)),
                            None => self.suspects.add_uid(kind, row.key()),
                        }
                    }
                    NameColumn::Metadata(kind) if self.kinds.contains(&kind) => {
                        if row.get(NAME, kind.qualifier()).is_none() {
                            self.suspects.add_uid(kind, row.key());
                        }
                    }
                    NameColumn::Unknown => findings.push(unknown(row, cell)),
                    NameColumn::Reverse(_) | NameColumn::Metadata(_) | NameColumn::OfSeries => {}
                }
            }
        }
        let forward: Vec<CellAddress> = mappings.iter().map(|(_, _, cell)| cell.clone()).collect();
        let stored_uids = cells::values(self.table, &forward).await?;
        for ((kind, row, _), stored_uid) in mappings.into_iter().zip(stored_uids) {
            if stored_uid.as_deref() != Some(row.key()) {
                self.suspects.add_uid(kind, row.key());
            } else if let Some(document) = row.get(NAME, meta_qualifier(kind)) {
                findings.extend(metadata::check(kind, row.key(), document.value));
            }
        }
        self.push(findings).await
    }

    async fn push(&mut self, findings: Vec<Finding>) -> Result<(), UidServiceError> {
        for finding in findings {
            self.report.push(finding).await?;
        }
        Ok(())
    }

    fn invalid_name(&self, kind: UidKind, name: &[u8], uid: &[u8]) -> Option<Finding> {
        let rules = &self.table.layout().name_rules;
        let error = Name::parse_latin1(name, rules).err()?;
        let cell = forward(kind, name)?;
        let hint = if name.contains(&b'?') {
            "; `?` may stand for a character that OpenTSDB could not store, and the name for several names"
        } else {
            ""
        };
        let mut finding = Finding {
            finding: FindingType::InvalidName,
            kind: Some(kind),
            names: vec![name.to_vec()],
            uid: Some(uid.to_vec()),
            message: format!("{kind} {}: {error}{hint}", shown_uid(uid)),
            repair: None,
            alternatives: Vec::new(),
            evidence: vec![(cell.clone(), Some(uid.to_vec()))],
        };
        let is_allowed = |byte: u8| Name::parse_latin1(&[byte], rules).is_ok();
        let replaced: Vec<u8> = name
            .iter()
            .map(|byte| if is_allowed(*byte) { *byte } else { b'_' })
            .collect();
        if replaced != name && Name::parse_latin1(&replaced, rules).is_ok() {
            finding.alternatives.push(Repair {
                label: label::REPLACE_CHARACTERS.to_owned(),
                description: format!("rename to `{}`", shown_name(&replaced)),
                changes: vec![
                    CellChange {
                        cell: reverse(kind, uid),
                        old: Some(name.to_vec()),
                        new: Some(replaced.clone()),
                    },
                    CellChange {
                        cell: forward(kind, &replaced)?,
                        old: None,
                        new: Some(uid.to_vec()),
                    },
                    CellChange {
                        cell,
                        old: Some(uid.to_vec()),
                        new: None,
                    },
                ],
            });
        }
        Some(finding)
    }
}

fn unknown(row: &Row, cell: CellRef<'_>) -> Finding {
    let address = CellAddress::new(row.key(), cell.family, cell.qualifier);
    let old = Some(cell.value.to_vec());
    Finding {
        finding: FindingType::UnknownCell,
        kind: None,
        names: Vec::new(),
        uid: None,
        message: format!(
            "row `{}` ({}) has a cell {}:`{}` of no known meaning",
            shown_name(row.key()),
            shown_uid(row.key()),
            cell.family,
            shown_name(cell.qualifier)
        ),
        repair: None,
        alternatives: vec![Repair {
            label: label::DELETE_UNKNOWN.to_owned(),
            description: "delete the cell".to_owned(),
            changes: vec![CellChange {
                cell: address.clone(),
                old: old.clone(),
                new: None,
            }],
        }],
        evidence: vec![(address, old)],
    }
}
