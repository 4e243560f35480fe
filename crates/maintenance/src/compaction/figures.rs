//! Figures of a compaction.

/// Rows that a compaction saw, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Rows read.
    pub rows: u64,
    /// Bytes of these rows: keys, once for each row, qualifiers and values.
    pub bytes: u64,
    /// Rows that have one cell now.
    pub compacted: u64,
    /// Rows without points, or with one cell.
    pub already_compact: u64,
    /// Rows with appended points.
    pub appended: u64,
    /// Rows that were written to recently.
    pub recent: u64,
    /// Rows with too many bytes of points.
    pub too_large: u64,
    /// Rows with cells that have the timestamps of their points.
    pub data_timestamps: u64,
    /// Rows with a cell that cannot be decoded.
    pub damaged: u64,
    /// Rows with two values of one instant.
    pub conflicting: u64,
    /// Rows with a key of no series.
    pub invalid_keys: u64,
    /// Rows with a new cell that was not read back.
    pub unconfirmed: u64,
    /// Points of the compacted rows.
    pub points: u64,
    /// Cells of these points before.
    pub cells_before: u64,
    /// Cells of these points after.
    pub cells_after: u64,
    /// Bytes of the cells before: key, family, qualifier and value of each.
    pub bytes_before: u64,
    /// Bytes of the cells after.
    pub bytes_after: u64,
}

/// Why an operator has to look at a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A cell cannot be decoded.
    Damaged,
    /// Two values of one instant.
    Conflicting,
    /// The key is none of a series.
    InvalidKey,
    /// The new cell was not read back.
    Unconfirmed,
}

/// A row that an operator has to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The row.
    pub row_key: Vec<u8>,
    /// The problem.
    pub problem: Problem,
    /// In detail.
    pub detail: String,
}

impl Figures {
    /// Adds the figures of other rows.
    pub fn add(&mut self, other: &Self) {
        let Self {
            rows,
            bytes,
            compacted,
            already_compact,
            appended,
            recent,
            too_large,
            data_timestamps,
            damaged,
            conflicting,
            invalid_keys,
            unconfirmed,
            points,
            cells_before,
            cells_after,
            bytes_before,
            bytes_after,
        } = other;
        for (sum, more) in [
            (&mut self.rows, rows),
            (&mut self.bytes, bytes),
            (&mut self.compacted, compacted),
            (&mut self.already_compact, already_compact),
            (&mut self.appended, appended),
            (&mut self.recent, recent),
            (&mut self.too_large, too_large),
            (&mut self.data_timestamps, data_timestamps),
            (&mut self.damaged, damaged),
            (&mut self.conflicting, conflicting),
            (&mut self.invalid_keys, invalid_keys),
            (&mut self.unconfirmed, unconfirmed),
            (&mut self.points, points),
            (&mut self.cells_before, cells_before),
            (&mut self.cells_after, cells_after),
            (&mut self.bytes_before, bytes_before),
            (&mut self.bytes_after, bytes_after),
        ] {
            *sum += more;
        }
    }

    /// Counts a row with a problem.
    pub(super) fn count(&mut self, problem: Problem) {
        *match problem {
            Problem::Damaged => &mut self.damaged,
            Problem::Conflicting => &mut self.conflicting,
            Problem::InvalidKey => &mut self.invalid_keys,
            Problem::Unconfirmed => &mut self.unconfirmed,
        } += 1;
    }
}
