//! Rollups and pre-aggregates: values of series over intervals, as cells of tables beside table `tsdb`.
//!
//! ```text
//!   row key    as in table `tsdb`, but the base time is the start of the interval's row span, in UTC
//!   qualifier  aggregation id | offset, 12 bits | flags, 4 bits      3 bytes
//!   value      as of a point: integer of 1, 2, 4, 8 bytes, float of 4 or 8
//! ```
//!
//! The offset is the number of intervals since the base time, the flags are the same as in a point's qualifier. Cells are
//! never compacted or appended. Tables, intervals, spans and ids are a setting of the deployment ([`RollupConfig`]).
//! Older versions wrote the name of the aggregator and a colon in place of the id (`sum:` and two bytes); readers accept
//! both.
//!
//! A rollup of one series is in its interval's table. A pre-aggregate, which combines several series, is in the interval's
//! second table and has a tag with the aggregator in upper case; without an interval it is an ordinary point of the
//! default interval's second table.
//!
//! OpenTSDB allows up to 7774 intervals in a row. From offset 4096 on its qualifier wraps into another interval, and it
//! reads offsets from 3840 on as milliseconds: this crate encodes neither.
//!
//! Source: OpenTSDB 2.4, `TSDB.addAggregatePointInternal`, `RollupUtils.buildRollupQualifier`,
//! `RollupUtils.getRollupBasetime`, `RollupSeq.append`.

mod config;
mod interval;
mod word;

use thiserror::Error;

use crate::hex_text::excerpt;
use crate::value::{Value, ValueError};
pub use config::{NoIdError, RollupConfig, RollupConfigError};
pub use interval::{IntervalError, RollupInterval, RowSpan};
pub use word::AggregateWord;

/// The upper bit of an aggregation id is reserved.
const ID_MASK: u8 = 0x7f;

/// The largest offset that OpenTSDB reads: from 3840 on a qualifier looks like one with milliseconds.
pub const MAX_OFFSET: u16 = 3839;

/// The qualifier of a cell.
pub type RollupQualifier = [u8; 3];

/// Why a cell is not a rollup, or a point cannot become one.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RollupError {
    /// Neither form of a qualifier.
    #[error(
        "qualifier `{qualifier}` is not that of a rollup: an aggregation id, or an aggregator and a colon, then 2 bytes"
    )]
    Qualifier {
        /// The qualifier, as hex.
        qualifier: String,
    },
    /// An offset that the row does not have.
    #[error("qualifier `{qualifier}` has the offset {offset}, its row has {intervals} intervals")]
    Offset {
        /// The qualifier, as hex.
        qualifier: String,
        /// The stored offset.
        offset: u16,
        /// Intervals of a row.
        intervals: u16,
    },
    /// A value of another length than announced.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A time with an offset that OpenTSDB cannot read.
    #[error(
        "offset of {offset} intervals of `{interval}` in a row of `{row_span}`, at most {MAX_OFFSET} can be stored"
    )]
    TooFar {
        /// The offset.
        offset: u32,
        /// The interval.
        interval: String,
        /// The row span.
        row_span: String,
    },
}

/// Which aggregate a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate<'a> {
    /// By its id.
    Id(u8),
    /// By the name of the aggregator, in bytes as stored.
    Name(&'a [u8]),
}

/// A decoded cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RollupCell<'a> {
    /// Which aggregate.
    pub aggregate: Aggregate<'a>,
    /// Intervals since the base time.
    pub offset: u16,
    /// The value.
    pub value: Value,
}

/// The qualifier of a value at an offset of its row.
pub fn qualifier(id: u8, offset: u16, value: &Value) -> RollupQualifier {
    let [first, second] = (offset << 4 | u16::from(value.flags())).to_be_bytes();
    [id & ID_MASK, first, second]
}

impl<'a> RollupCell<'a> {
    /// Decodes a cell.
    ///
    /// # Errors
    ///
    /// [`RollupError::Qualifier`], [`RollupError::Offset`] and [`RollupError::Value`].
    pub fn decode(
        qualifier: &'a [u8],
        value: &[u8],
        interval: &RollupInterval,
    ) -> Result<RollupCell<'a>, RollupError> {
        let (aggregate, low) = Self::split(qualifier).ok_or_else(|| RollupError::Qualifier {
            qualifier: excerpt(qualifier),
        })?;
        let low = u16::from_be_bytes(low);
        let offset = low >> 4;
        if offset >= interval.intervals() {
            return Err(RollupError::Offset {
                qualifier: excerpt(qualifier),
                offset,
                intervals: interval.intervals(),
            });
        }
        let [_, flags] = low.to_be_bytes();
        Ok(RollupCell {
            aggregate,
            offset,
            value: Value::decode(flags, value)?,
        })
    }

    fn split(qualifier: &'a [u8]) -> Option<(Aggregate<'a>, [u8; 2])> {
        let (aggregate, low) = qualifier.split_last_chunk()?;
        let aggregate = match aggregate {
            [id] => Aggregate::Id(id & ID_MASK),
            [name @ .., b':'] if !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric) => {
                Aggregate::Name(name)
            }
            _ => return None,
        };
        Some((aggregate, *low))
    }
}

impl Aggregate<'_> {
    /// Whether it is the aggregate of an id and a name in lower case.
    pub fn is(&self, id: u8, name: &str) -> bool {
        match self {
            Self::Id(own) => *own == id,
            Self::Name(own) => *own == name.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
