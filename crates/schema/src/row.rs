//! A row of table `tsdb`: all cells of one hour of one series, read as points.
//!
//! Points lie in a row in three forms, which may be there together:
//!
//! ```text
//!               qualifier                                value
//!   point       one qualifier, 2 or 4 bytes              its value
//!   compacted   qualifiers of all points, in time order  their values, then a meta byte:
//!                                                        01 if seconds and milliseconds are mixed
//!   appended    05 00 00                                 qualifier, value, qualifier, value, ...
//!                                                        as they arrived; the last one counts
//! ```
//!
//! Beside them there are annotations and histograms, which are not points.
//!
//! [`decode_row`] gives a row's points in order of time; [`decode_cell`] the points of one cell as
//! they are stored; [`CompactedCell`] writes the compacted form.
//!
//! Source: OpenTSDB 2.4, `CompactionQueue`, `Internal.extractDataPoints`, `AppendDataPoints`,
//! `RowSeq`.

mod cell;
mod compacted;
mod decode;
mod error;
mod merge;
mod points;
mod stats;

pub use cell::{CellKind, CellPoint, CellRef, append_point, decode_cell};
pub use compacted::{CompactError, CompactedCell, compact};
pub use decode::decode_row;
pub use error::RowError;
pub use points::Points;
pub use stats::{DuplicatePolicy, RowStats};

#[cfg(test)]
mod tests;
