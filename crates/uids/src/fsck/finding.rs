//! Findings and their repairs.

use oxtsdb_row_store::CellAddress;
pub use oxtsdb_row_store::repair::CellChange;
use oxtsdb_schema::UidKind;

/// The type of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingType {
    /// A name has a UID that has no name.
    MissingReverse,
    /// A UID has a name that has no UID: the remains of an assignment that lost a race or was interrupted.
    MissingForward,
    /// A name has a UID that has another name.
    MismatchedReverse,
    /// Several names have one UID.
    DuplicateUid,
    /// A UID has a name that has another UID.
    DuplicateReverse,
    /// A kind has mappings but no counter.
    CounterMissing,
    /// A counter that does not have 8 bytes.
    CounterUnreadable,
    /// A counter below 0.
    CounterNegative,
    /// A counter below a UID in use.
    CounterBehind,
    /// A counter above the number of names: numbers were skipped.
    CounterAhead,
    /// A counter beyond the largest number of the width.
    CounterBeyondWidth,
    /// A UID of another width than the layout's.
    WrongWidth,
    /// A mapping without a value.
    EmptyValue,
    /// A cell of no known meaning.
    UnknownCell,
    /// A name that cannot be assigned today.
    InvalidName,
    /// Metadata of a UID that is not mapped.
    OrphanedMetadata,
    /// Metadata that is not the JSON that OpenTSDB reads.
    UnreadableMetadata,
    /// Metadata with the `type` of another kind.
    MetadataType,
}

impl FindingType {
    /// All types.
    pub const ALL: [FindingType; 18] = [
        Self::MissingReverse,
        Self::MissingForward,
        Self::MismatchedReverse,
        Self::DuplicateUid,
        Self::DuplicateReverse,
        Self::CounterMissing,
        Self::CounterUnreadable,
        Self::CounterNegative,
        Self::CounterBehind,
        Self::CounterAhead,
        Self::CounterBeyondWidth,
        Self::WrongWidth,
        Self::EmptyValue,
        Self::UnknownCell,
        Self::InvalidName,
        Self::OrphanedMetadata,
        Self::UnreadableMetadata,
        Self::MetadataType,
    ];

    /// How bad it is; as OpenTSDB rates it, if it does.
    pub fn severity(self) -> Severity {
        match self {
            Self::MissingReverse
            | Self::MismatchedReverse
            | Self::DuplicateUid
            | Self::DuplicateReverse
            | Self::CounterMissing
            | Self::CounterUnreadable
            | Self::CounterNegative
            | Self::CounterBehind
            | Self::WrongWidth
            | Self::EmptyValue
            | Self::UnreadableMetadata
            | Self::MetadataType => Severity::Error,
            Self::MissingForward
            | Self::CounterBeyondWidth
            | Self::UnknownCell
            | Self::InvalidName
            | Self::OrphanedMetadata => Severity::Warning,
            Self::CounterAhead => Severity::Note,
        }
    }

    /// Whether an assignment, rename or delete in progress can look like this for a moment.
    pub(super) fn may_be_in_progress(self) -> bool {
        match self {
            Self::MissingReverse
            | Self::MissingForward
            | Self::MismatchedReverse
            | Self::DuplicateUid
            | Self::DuplicateReverse
            | Self::OrphanedMetadata => true,
            Self::CounterMissing
            | Self::CounterUnreadable
            | Self::CounterNegative
            | Self::CounterBehind
            | Self::CounterAhead
            | Self::CounterBeyondWidth
            | Self::WrongWidth
            | Self::EmptyValue
            | Self::UnknownCell
            | Self::InvalidName
            | Self::UnreadableMetadata
            | Self::MetadataType => false,
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Requests fail, or can return what belongs to another name.
    Error,
    /// Harmless to requests.
    Warning,
    /// Not a fault.
    Note,
}

/// Memory of a [`CellChange`] without its texts.
const CHANGE_BYTES: usize = 160;

fn byte_len(change: &CellChange) -> usize {
    let value = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
    let cell = &change.cell;
    CHANGE_BYTES + cell.row.len() + cell.qualifier.len() + value(&change.old) + value(&change.new)
}

/// A way to repair a finding: changes that are made together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// A word for it: [`label`].
    pub label: String,
    /// Its effect, for people.
    pub description: String,
    /// The changes; guards first.
    pub changes: Vec<CellChange>,
}

/// Labels of repairs.
pub mod label {
    /// Writes the mapping that is missing or wrong, from the one that is right.
    pub const RESTORE: &str = "restore";
    /// Deletes what no mapping refers to.
    pub const REMOVE: &str = "remove";
    /// Of several names, keeps the one in the reverse mapping.
    pub const KEEP_CONFIRMED: &str = "keep-confirmed";
    /// Of several names, keeps the one with the oldest cell.
    pub const KEEP_OLDEST: &str = "keep-oldest";
    /// Of several names, keeps the named one: the label goes on with the name.
    pub const KEEP: &str = "keep:";
    /// Replaces all names by a new one, `fsck.` and the names, as OpenTSDB does.
    pub const LIKE_OPENTSDB: &str = "like-opentsdb";
    /// Takes an interrupted rename to its end.
    pub const FINISH_RENAME: &str = "finish-rename";
    /// Gives the name of a leaked UID its forward mapping back.
    pub const RESTORE_FORWARD: &str = "restore-forward";
    /// Replaces each character that is not allowed by `_`.
    pub const REPLACE_CHARACTERS: &str = "replace-characters";
    /// Deletes a cell of no known meaning.
    pub const DELETE_UNKNOWN: &str = "delete-unknown";
    /// Deletes a mapping that has a UID of another width in both directions.
    pub const REMOVE_OTHER_WIDTH: &str = "remove-other-width";
    /// Raises the counter.
    pub const RAISE: &str = "raise";
    /// Lowers the counter to the largest UID in use.
    pub const LOWER: &str = "lower";
    /// Corrects the `type` of metadata.
    pub const CORRECT_TYPE: &str = "correct-type";
}

/// A fault of a UID, a name or a cell, and its repairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its type.
    pub finding: FindingType,
    /// The kind, if the cell has one.
    pub kind: Option<UidKind>,
    /// The names that are involved, as stored.
    pub names: Vec<Vec<u8>>,
    /// The UID that is involved, as stored.
    pub uid: Option<Vec<u8>>,
    /// For people.
    pub message: String,
    /// The repair that a plan takes; `None` if an operator has to choose, or nothing is to be done.
    pub repair: Option<Repair>,
    /// Other repairs.
    pub alternatives: Vec<Repair>,
    /// The cells that the finding is derived from, with their values.
    pub(super) evidence: Vec<(CellAddress, Option<Vec<u8>>)>,
}

impl Finding {
    /// An estimate of its memory.
    pub(crate) fn byte_len(&self) -> usize {
        let repairs = self.repair.iter().chain(&self.alternatives);
        let changes: usize = repairs.flat_map(|repair| &repair.changes).map(byte_len).sum();
        let evidence = self.evidence.iter();
        let evidence: usize = evidence
            .map(|(cell, value)| CHANGE_BYTES + cell.row.len() + value.as_ref().map_or(0, Vec::len))
            .sum();
        let names: usize = self.names.iter().map(|name| name.len() + 24).sum();
        size_of::<Self>() + self.message.len() + changes + evidence + names
    }
}
