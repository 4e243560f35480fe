//! The packed form: symbols and series are declared once, points refer to them by number.
//!
//! ```text
//!   symbols   0 `m`   1 `host`   2 `a`   3 `b`
//!   series    0 = 0{1=2}         1 = 0{1=3}
//!   block     series [0, 1, 0]   timestamps [1000, 1000, 2000]   values [7, 8, 9]
//! ```
//!
//! A series is resolved when it is declared, and [`Tables`] keeps its row key. A point then costs an
//! index, the hour patched into the key, a qualifier and a value: no hashing, no allocation. Columns are
//! borrowed from the message that they arrived in, and encoded from there into the batch.
//!
//! On a stream, which may last for days, all series are resolved again after the cache's time to live,
//! because other processes may rename or delete their names.

mod block;
mod declarations;
mod encode;
mod point_errors;
mod resolve;
mod series_keys;
mod symbols;
mod tables;
mod violation;

pub(crate) use block::{Block, Values};
pub(crate) use declarations::Declaration;
pub(crate) use encode::encode;
pub(crate) use point_errors::{ErrorRun, PointErrors};
pub(crate) use tables::{Tables, TablesLimits};
pub(crate) use violation::{ProtocolViolation, SymbolUse};

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
