//! The handling of duplicates, and statistics of a decoded row.

use super::cell::CellKind;

/// How to handle two different values of one instant. Equal values are always one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DuplicatePolicy {
    /// Decoding fails. OpenTSDB's default.
    #[default]
    Error,
    /// The cell with the newest timestamp wins; if timestamps are equal, the first cell. OpenTSDB's `tsd.storage.fix_duplicates`.
    KeepNewest,
}

/// Statistics of a decoded row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowStats {
    /// Decoded points.
    pub points: usize,
    /// Points dropped as duplicates.
    pub duplicates: usize,
    /// Points of compacted cells that are earlier than their predecessor, which only a damaged cell has; they are
    /// sorted. OpenTSDB processes them in stored order, so that its windows and interpolation depend on it.
    pub out_of_order: usize,
    /// Skipped annotations.
    pub annotations: usize,
    /// Skipped histograms.
    pub histograms: usize,
    /// Skipped cells of unknown kinds.
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
