//! Points in columns: series, timestamps and values as arrays.
//!
//! ```text
//!   symbols   0 `m`   1 `host`   2 `a`   3 `b`
//!   series    0 = 0{1=2}         1 = 0{1=3}
//!   block     series [0, 1, 0]   timestamps [1000, 1000, 2000]   values [7, 8, 9]
//! ```
//!
//! A [`SeriesTable`] holds the resolved series. A point costs an index into it: no hashing, no allocation.
//! Columns are borrowed from the message that they arrived in, and encoded from there into the batch. `Write` fills a
//! table for each request; in the packed form, clients declare symbols and series, and [`Tables`] keeps them.
//!
//! On a stream, which may last for days, all series are resolved again after the cache's time to live,
//! because other processes may rename or delete their names.

mod block;
mod declarations;
mod encode;
mod failures;
mod resolve;
mod series_table;
mod symbols;
mod tables;
mod violation;

pub use block::{Block, DeltaTimestamps, describe};
pub use declarations::Declaration;
pub use encode::encode;
pub use failures::{ErrorRun, Failures, Run};
pub use series_table::SeriesTable;
pub use tables::{Continuation, Tables, TablesLimits};
pub use violation::{ProtocolViolation, SymbolUse};

use std::ops::Range;

/// The range of item `number` among items that end at `ends`.
#[inline]
fn range(ends: &[usize], number: u32) -> Option<Range<usize>> {
    let number = number as usize;
    let end = *ends.get(number)?;
    let start = match number {
        0 => 0,
        _ => ends[number - 1],
    };
    Some(start..end)
}
