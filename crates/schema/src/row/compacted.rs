//! Encodes the points of an hour as one cell.
//!
//! The qualifier is the qualifiers in time order, the value the values in the same order, followed by a meta
//! byte if there are two or more points: `01` if seconds and milliseconds are mixed, otherwise `00`. A single
//! point is encoded as an ordinary cell, without meta byte.

use thiserror::Error;

use crate::qualifier::Qualifier;
use crate::timestamp::{BaseTime, Timestamp};
use crate::value::Value;

/// Builds the cell of an hour's points. Reusable: [`CompactedCell::clear`] keeps the memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactedCell {
    qualifier: Vec<u8>,
    value: Vec<u8>,
    points: usize,
    last_offset_ms: Option<u32>,
    has_seconds: bool,
    has_millis: bool,
    /// Whether `value` ends with the meta byte.
    is_finished: bool,
}

/// Why points cannot be written as one cell.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompactError {
    /// No points; a cell has at least one.
    #[error("no points to write, a cell holds at least 1")]
    Empty,
    /// A point that is not after the one before it.
    #[error(
        "point {offset_ms} ms after the base time follows one at {previous_ms} ms, \
         expected ascending order and no instant twice"
    )]
    NotAscending {
        /// The point's offset.
        offset_ms: u32,
        /// The offset of the point before.
        previous_ms: u32,
    },
    /// A point of another hour than the first.
    #[error("point at {timestamp} is of the hour {actual}, expected {expected}")]
    AnotherHour {
        /// The point's time.
        timestamp: Timestamp,
        /// Its base time, in seconds.
        actual: BaseTime,
        /// The base time of the first point, in seconds.
        expected: BaseTime,
    },
}

impl CompactedCell {
    /// A cell without points.
    pub const fn new() -> CompactedCell {
        CompactedCell {
            qualifier: Vec::new(),
            value: Vec::new(),
            points: 0,
            last_offset_ms: None,
            has_seconds: false,
            has_millis: false,
            is_finished: false,
        }
    }

    /// Adds a point of the row's hour. All points of a cell must be of one hour, which the caller ensures.
    ///
    /// # Errors
    ///
    /// [`CompactError::NotAscending`] unless the point is later than all others. The cell is then unchanged.
    #[inline]
    pub fn push(&mut self, timestamp: Timestamp, value: &Value) -> Result<(), CompactError> {
        self.push_qualified(Qualifier::new(timestamp, value), value)
    }

    /// Adds a point with an existing qualifier, which must match `value`.
    ///
    /// # Errors
    ///
    /// As [`CompactedCell::push`].
    #[inline]
    pub fn push_qualified(&mut self, qualifier: Qualifier, value: &Value) -> Result<(), CompactError> {
        self.push_encoded(qualifier, value.encoded().as_bytes())
    }

    /// Adds a point in its encoded form. `value` must have the length that `qualifier` states.
    ///
    /// # Errors
    ///
    /// As [`CompactedCell::push`].
    #[inline]
    pub fn push_encoded(&mut self, qualifier: Qualifier, value: &[u8]) -> Result<(), CompactError> {
        debug_assert_eq!(qualifier.value_len(), value.len(), "{qualifier}");
        let offset_ms = qualifier.offset_ms();
        if let Some(previous_ms) = self.last_offset_ms.filter(|last| *last >= offset_ms) {
            return Err(CompactError::NotAscending {
                offset_ms,
                previous_ms,
            });
        }
        self.reopen();
        if qualifier.is_ms() {
            self.has_millis = true;
        } else {
            self.has_seconds = true;
        }
        qualifier.write_to(&mut self.qualifier);
        self.value.extend_from_slice(value);
        self.last_offset_ms = Some(offset_ms);
        self.points += 1;
        Ok(())
    }

    /// The number of points.
    pub const fn len(&self) -> usize {
        self.points
    }

    /// Whether there are no points.
    pub const fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// The qualifier and the value of the cell. More points may be added afterwards.
    ///
    /// # Errors
    ///
    /// [`CompactError::Empty`] without points.
    pub fn finish(&mut self) -> Result<(&[u8], &[u8]), CompactError> {
        if self.points == 0 {
            return Err(CompactError::Empty);
        }
        if self.points > 1 && !self.is_finished {
            self.value.push(u8::from(self.has_seconds && self.has_millis));
            self.is_finished = true;
        }
        Ok((&self.qualifier, &self.value))
    }

    /// Removes all points.
    pub fn clear(&mut self) {
        self.qualifier.clear();
        self.value.clear();
        self.points = 0;
        self.last_offset_ms = None;
        self.has_seconds = false;
        self.has_millis = false;
        self.is_finished = false;
    }

    fn reopen(&mut self) {
        if self.is_finished {
            self.value.pop();
            self.is_finished = false;
        }
    }
}

/// The qualifier and the value of the cell of an hour's points, which must ascend.
///
/// # Errors
///
/// [`CompactError`].
pub fn compact(
    points: impl IntoIterator<Item = (Timestamp, Value)>,
) -> Result<(Vec<u8>, Vec<u8>), CompactError> {
    let mut cell = CompactedCell::new();
    let mut hour = None;
    for (timestamp, value) in points {
        let actual = timestamp.base_time();
        let expected = *hour.get_or_insert(actual);
        if actual != expected {
            return Err(CompactError::AnotherHour {
                timestamp,
                actual,
                expected,
            });
        }
        cell.push(timestamp, &value)?;
    }
    cell.finish()?;
    Ok((cell.qualifier, cell.value))
}
