//! A row of table `tsdb`: all cells of one hour of one series, decoded to points.
//!
//! A row stores points in three forms, which can occur together:
//!
//! ```text
//!               qualifier                                value
//!   point       one qualifier, 2 or 4 bytes              its value
//!   compacted   qualifiers of all points, in time order  their values, then a meta byte:
//!                                                        01 if seconds and milliseconds are mixed
//!   appended    05 00 00                                 qualifier, value, qualifier, value, ...
//!                                                        in order of arrival; the last one wins
//! ```
//!
//! Rows can also contain annotations and histograms, which are not points.
//!
//! [`decode_row`] returns a row's points in order of time; [`decode_cell`] the points of one cell as stored;
//! [`CompactedCell`] encodes the compacted form; [`plan_compaction`] returns the cell that replaces a row's cells;
//! [`without_points`] what is left of a cell after a delete; [`check_row`] finds what is wrong in a row, and how to
//! repair it.
//!
//! Source: OpenTSDB 2.4, `CompactionQueue`, `Internal.extractDataPoints`, `AppendDataPoints`, `RowSeq`.

mod cell;
mod check;
mod compacted;
mod compaction;
mod decode;
mod error;
mod merge;
mod points;
mod stats;
mod without;

pub use cell::{CellKind, CellPoint, CellRef, append_point, decode_cell};
pub use check::{
    CheckRules, FindingSeverity, KeepDuplicate, RowChange, RowCheck, RowFinding, RowFindingType, check_row,
    row_uids,
};
pub use compacted::{CompactError, CompactedCell, compact};
pub use compaction::{PlannedCell, RowCompaction, plan_compaction};
pub use decode::decode_row;
pub use error::RowError;
pub use points::Points;
pub use stats::{DuplicatePolicy, RowStats};
pub use without::{CellWithout, Rest, RestCell, without_points};

#[cfg(test)]
mod tests;
