//! The points of a row as columns.

/// The points of a row that consists of OpenTSDB's single points only: all of one resolution, in ascending
/// order of time, one version each, and either all integers or all floating point. Cell timestamps are omitted.
///
/// A store that encodes such rows as columns returns them without building cells
/// ([`Row::read_points`](crate::Row::read_points)). The columns are reused from row to row.
///
/// Source: OpenTSDB 2.4, `Internal.getFlagsFromQualifier` and `Const.FLAG_FLOAT`, `LENGTH_MASK`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointColumns {
    /// Bytes of each qualifier: 2 for seconds, 4 for milliseconds.
    pub qualifier_width: usize,
    /// The qualifiers without their 4 bits of flags.
    pub times: Vec<i64>,
    /// The encoded times that `times` was decoded from, and whether they ascend. Series measured together have
    /// equal times in every row, which then need not be decoded again.
    pub(crate) times_read: (Vec<u8>, bool),
    pub(crate) are_ints: bool,
    /// The values of integer points.
    pub(crate) ints: Vec<i64>,
    /// The values of floating-point points.
    pub(crate) doubles: Vec<f64>,
}

/// The values of [`PointColumns`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointValues<'a> {
    /// Integers of 1, 2, 4 or 8 bytes.
    Ints(&'a [i64]),
    /// Floating-point values; 4-byte values are widened.
    Doubles(&'a [f64]),
}

impl PointColumns {
    /// The number of points.
    pub const fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are no points. No row decodes to this.
    pub const fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The values, one for each time.
    pub fn values(&self) -> PointValues<'_> {
        if self.are_ints {
            PointValues::Ints(&self.ints)
        } else {
            PointValues::Doubles(&self.doubles)
        }
    }

    /// Removes all points.
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.times_read.0.clear();
        self.ints.clear();
        self.doubles.clear();
    }

    /// Whether `time` may follow the existing times, for qualifiers of this width.
    pub(crate) fn ascends_to(&self, width: usize, time: i64) -> bool {
        let last = self.times.last();
        match width {
            2 => last.is_none_or(|last| *last < time),
            // See `ascends`.
            4 => time >> 24 == 0xf && last.is_none_or(|last| last >> 2 < time >> 2),
            _ => false,
        }
    }

    /// Whether the times satisfy the guarantees of this type.
    pub(crate) fn ascends(&self) -> bool {
        let ascend = |shift: u32| self.times.is_sorted_by(|a, b| a >> shift < b >> shift);
        match self.qualifier_width {
            2 => ascend(0),
            // Milliseconds are preceded by four 1 bits (otherwise the cell is compacted) and followed by two
            // unused bits.
            4 => {
                let is_millis = |time: Option<&i64>| time.is_some_and(|time| time >> 24 == 0xf);
                is_millis(self.times.first()) && is_millis(self.times.last()) && ascend(2)
            }
            _ => false,
        }
    }
}
