//! Facts: the cells around a suspect UID or name.

use oxtsdb_row_store::CellAddress;
use oxtsdb_schema::UidKind;

use super::cells::{forward, metadata, reverse};
use super::finding::{CellChange, Finding, FindingType, Repair, label};

/// The cells around a UID.
#[derive(Clone, Debug)]
pub(super) struct UidFacts {
    pub(super) kind: UidKind,
    pub(super) uid: Vec<u8>,
    /// Whether it has the width of the layout.
    pub(super) has_width: bool,
    /// The names that have this UID, in byte order, with the timestamps of their cells.
    pub(super) names: Vec<(Vec<u8>, i64)>,
    /// The name that this UID has.
    pub(super) reverse: Option<Vec<u8>>,
    /// The UID of that name.
    pub(super) back: Option<Vec<u8>>,
    /// Whether that is a UID of the layout's width.
    pub(super) back_has_width: bool,
    /// Its metadata.
    pub(super) metadata: Option<Vec<u8>>,
}

/// The cells around a name, if its forward cell has no UID of the layout's width.
#[derive(Clone, Debug)]
pub(super) struct NameFacts {
    pub(super) kind: UidKind,
    pub(super) name: Vec<u8>,
    /// The value of its forward cell.
    pub(super) value: Vec<u8>,
    /// The name of the UID of other width that this value is.
    pub(super) reverse: Option<Vec<u8>>,
    /// The UIDs of the layout's width that have this name, in byte order, with their metadata.
    pub(super) claims: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl UidFacts {
    /// The name of the UID, unless the cell has no value.
    pub(super) fn reverse_name(&self) -> Option<&[u8]> {
        self.reverse.as_deref().filter(|name| !name.is_empty())
    }

    pub(super) fn reverse_cell(&self) -> CellAddress {
        reverse(self.kind, &self.uid)
    }

    /// The cell of a name that has this UID.
    pub(super) fn forward_cell(&self, name: &[u8]) -> CellAddress {
        // Names with a UID come from forward cells, so that there is one.
        forward(self.kind, name).unwrap_or_else(|| self.reverse_cell())
    }

    /// The change of the reverse cell to another name.
    pub(super) fn set_reverse(&self, name: &[u8]) -> CellChange {
        CellChange {
            cell: self.reverse_cell(),
            old: self.reverse.clone(),
            new: Some(name.to_vec()),
        }
    }

    /// The forward cell of the name that the UID has, as it is.
    pub(super) fn back_guard(&self) -> Option<CellChange> {
        let cell = forward(self.kind, self.reverse_name()?)?;
        Some(CellChange::guard(cell, self.back.clone()))
    }

    /// Deletes the reverse cell and the metadata, if the name that the UID has stays as it is.
    pub(super) fn removal(&self, description: String) -> Repair {
        let mut changes: Vec<CellChange> = self.back_guard().into_iter().collect();
        for (cell, old) in [
            (self.reverse_cell(), &self.reverse),
            (metadata(self.kind, &self.uid), &self.metadata),
        ] {
            if old.is_some() {
                changes.push(CellChange {
                    cell,
                    old: old.clone(),
                    new: None,
                });
            }
        }
        Repair {
            label: label::REMOVE.to_owned(),
            description,
            changes,
        }
    }

    /// A finding with all the cells that it was derived from.
    pub(super) fn finding(&self, finding: FindingType, message: String) -> Finding {
        let mut evidence: Vec<(CellAddress, Option<Vec<u8>>)> =
            vec![(self.reverse_cell(), self.reverse.clone())];
        evidence.extend(self.back_guard().map(|guard| (guard.cell, guard.old)));
        for (name, _) in &self.names {
            evidence.push((self.forward_cell(name), Some(self.uid.clone())));
        }
        if self.names.is_empty() {
            evidence.push((metadata(self.kind, &self.uid), self.metadata.clone()));
        }
        let mut names: Vec<Vec<u8>> = self.names.iter().map(|(name, _)| name.clone()).collect();
        if let Some(name) = self.reverse_name()
            && !names.iter().any(|other| other == name)
        {
            names.push(name.to_vec());
        }
        Finding {
            finding,
            kind: Some(self.kind),
            names,
            uid: Some(self.uid.clone()),
            message,
            repair: None,
            alternatives: Vec::new(),
            evidence,
        }
    }
}
