//! Figures of a compaction.

/// Rows that a compaction saw, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Rows read.
    pub(crate) rows: u64,
    /// Bytes of these rows: keys, once for each row, qualifiers and values.
    pub(crate) bytes: u64,
    /// Rows that have one cell now.
    pub(crate) compacted: u64,
    /// Rows without points, or with one cell.
    pub(crate) already_compact: u64,
    /// Rows with appended points.
    pub(crate) appended: u64,
    /// Rows that were written to recently.
    pub(crate) recent: u64,
    /// Rows with too many bytes of points.
    pub(crate) too_large: u64,
    /// Rows whose cells have the timestamps of their points.
    pub(crate) data_timestamps: u64,
    /// Rows with a cell that cannot be decoded.
    pub(crate) damaged: u64,
    /// Rows with two values of one instant.
    pub(crate) conflicting: u64,
    /// Rows whose key is none of a series.
    pub(crate) invalid_keys: u64,
    /// Rows whose new cell was not read back.
    pub(crate) unconfirmed: u64,
    /// Points of the compacted rows.
    pub(crate) points: u64,
    /// Cells of these points before.
    pub(crate) cells_before: u64,
    /// Cells of these points after.
    pub(crate) cells_after: u64,
    /// Bytes of the cells before: key, family, qualifier and value of each.
    pub(crate) bytes_before: u64,
    /// Bytes of the cells after.
    pub(crate) bytes_after: u64,
}

/// Why an operator has to look at a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
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
pub(crate) struct Finding {
    /// The row.
    pub(crate) row_key: Vec<u8>,
    /// What is wrong.
    pub(crate) problem: Problem,
    /// In detail.
    pub(crate) detail: String,
}

impl Figures {
    /// Adds those of other rows.
    pub(crate) fn add(&mut self, other: &Self) {
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
