//! What a reader decides about duplicates, and what it counts.

use super::cell::CellKind;

/// What to do with two different values of one instant. Equal values are always one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DuplicatePolicy {
    /// The row cannot be read. OpenTSDB's default.
    #[default]
    Error,
    /// The value of the cell with the newest timestamp counts; if those are equal, that of the cell
    /// that comes first. OpenTSDB's `tsd.storage.fix_duplicates`.
    KeepNewest,
}

/// What a row had in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowStats {
    /// Points that were read.
    pub points: usize,
    /// Points that were left out because another has their instant.
    pub duplicates: usize,
    /// Points of compacted cells that come before the one in front of them. Only a damaged cell has
    /// such; they are brought into order. OpenTSDB computes with them as they are, which no one can
    /// want: its windows and interpolations then depend on the order in the cell.
    pub out_of_order: usize,
    /// Annotations that were skipped.
    pub annotations: usize,
    /// Histograms that were skipped.
    pub histograms: usize,
    /// Cells of unknown kinds that were skipped.
    pub unknown_cells: usize,
}

impl RowStats {
    /// Counts a cell that holds no points.
    pub(super) fn skip(&mut self, kind: CellKind) {
        match kind {
            CellKind::Annotation => self.annotations += 1,
            CellKind::Histogram => self.histograms += 1,
            CellKind::Unknown => self.unknown_cells += 1,
            CellKind::Point | CellKind::Compacted | CellKind::Appended => {}
        }
    }
}
