//! Points as columns: what is in a row of points, without its cells.

/// The points of a row whose cells are all single points of OpenTSDB: of one resolution, each with one
/// version, each after the one before, and all integers or all floating point. Timestamps of cells are left out.
///
/// A store that keeps such rows as columns gives them so ([`Row::read_points`](crate::Row::read_points)),
/// which saves making cells that are taken apart at once. The columns keep their memory from row to row.
///
/// Source: OpenTSDB 2.4, `Internal.getFlagsFromQualifier` and `Const.FLAG_FLOAT`, `LENGTH_MASK`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointColumns {
    /// Bytes of each qualifier: 2, or 4 for milliseconds.
    pub qualifier_width: usize,
    /// The qualifiers without their 4 bits of flags.
    pub times: Vec<i64>,
    /// What the times were read from, and whether each is after the one before. Series that are measured
    /// together have the same ones row for row: then they need not be read again.
    pub(crate) times_read: (Vec<u8>, bool),
    pub(crate) are_ints: bool,
    /// The values, if they are integers.
    pub(crate) ints: Vec<i64>,
    /// The values, if they are floating point.
    pub(crate) doubles: Vec<f64>,
}

/// The values of [`PointColumns`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointValues<'a> {
    /// Integers of 1, 2, 4 or 8 bytes.
    Ints(&'a [i64]),
    /// Floating point; those of 4 bytes are widened.
    Doubles(&'a [f64]),
}

impl PointColumns {
    /// How many points there are.
    pub const fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none. No row is read as such.
    pub const fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// As many values as times.
    pub fn values(&self) -> PointValues<'_> {
        if self.are_ints {
            PointValues::Ints(&self.ints)
        } else {
            PointValues::Doubles(&self.doubles)
        }
    }

    /// Takes away all points.
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.times_read.0.clear();
        self.ints.clear();
        self.doubles.clear();
    }

    /// Whether a time can be behind the others, in qualifiers of this width.
    pub(crate) fn ascends_to(&self, width: usize, time: i64) -> bool {
        let last = self.times.last();
        match width {
            2 => last.is_none_or(|last| *last < time),
            // As below.
            4 => time >> 24 == 0xf && last.is_none_or(|last| last >> 2 < time >> 2),
            _ => false,
        }
    }

    /// Whether this is what the type promises, as far as times tell.
    pub(crate) fn ascends(&self) -> bool {
        let ascend = |shift: u32| self.times.is_sorted_by(|a, b| a >> shift < b >> shift);
        match self.qualifier_width {
            2 => ascend(0),
            // In front of the milliseconds are four bits 1, else it is a compacted cell; behind them are two
            // that mean nothing.
            4 => {
                let is_millis = |time: Option<&i64>| time.is_some_and(|time| time >> 24 == 0xf);
                is_millis(self.times.first()) && is_millis(self.times.last()) && ascend(2)
            }
            _ => false,
        }
    }
}
