//! Points as two columns.

use crate::value::Value;

/// Points of one row, as a column of instants and a column of values of equal length.
///
/// Reusable: [`Points::clear`] keeps the memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Points {
    offsets_ms: Vec<u32>,
    values: Vec<Value>,
}

impl Points {
    /// No points.
    pub const fn new() -> Points {
        Points {
            offsets_ms: Vec::new(),
            values: Vec::new(),
        }
    }

    /// No points, with memory reserved for `points`.
    pub fn with_capacity(points: usize) -> Points {
        Points {
            offsets_ms: Vec::with_capacity(points),
            values: Vec::with_capacity(points),
        }
    }

    /// The number of points.
    pub const fn len(&self) -> usize {
        self.offsets_ms.len()
    }

    /// Whether there are no points.
    pub const fn is_empty(&self) -> bool {
        self.offsets_ms.is_empty()
    }

    /// The instants: milliseconds since the row's base time.
    pub fn offsets_ms(&self) -> &[u32] {
        &self.offsets_ms
    }

    /// The values, in the order of the instants.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Instants and values together.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, Value)> + '_ {
        self.offsets_ms.iter().copied().zip(self.values.iter().copied())
    }

    /// Adds a point.
    #[inline]
    pub fn push(&mut self, offset_ms: u32, value: Value) {
        self.offsets_ms.push(offset_ms);
        self.values.push(value);
    }

    /// Reserves memory for more points.
    pub fn reserve(&mut self, points: usize) {
        self.offsets_ms.reserve(points);
        self.values.reserve(points);
    }

    /// Removes all points.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps only the first `points` points.
    pub fn truncate(&mut self, points: usize) {
        self.offsets_ms.truncate(points);
        self.values.truncate(points);
    }

    /// Adds points that all have one type: instants first, then as many values.
    pub(super) fn extend_columns(
        &mut self,
        offsets_ms: impl Iterator<Item = u32>,
        values: impl Iterator<Item = Value>,
    ) {
        self.offsets_ms.extend(offsets_ms);
        self.values.extend(values);
        debug_assert_eq!(self.offsets_ms.len(), self.values.len());
    }
}
