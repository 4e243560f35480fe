//! Points as columns: rows of points as a store may keep them.

/// The cells of a row that are all single points of OpenTSDB: of one resolution, each with one version, each
/// after the one before, and all integers or all floating point. Their timestamps are left out.
///
/// A store that keeps such rows as columns gives them so where a [`Scan`](crate::Scan) allows it, which
/// saves making cells that are taken apart at once.
///
/// Source: OpenTSDB 2.4, `Internal.getFlagsFromQualifier` and `Const.FLAG_FLOAT`, `LENGTH_MASK`.
#[derive(Clone, Debug, PartialEq)]
pub struct PointColumns {
    /// Bytes of each qualifier: 2, or 4 for milliseconds.
    pub qualifier_width: usize,
    /// The qualifiers without their 4 bits of flags.
    pub times: Vec<i64>,
    /// As many values.
    pub values: PointValues,
}

/// The values of [`PointColumns`].
#[derive(Clone, Debug, PartialEq)]
pub enum PointValues {
    /// Integers of 1, 2, 4 or 8 bytes.
    Ints(Vec<i64>),
    /// Floating point; those of 4 bytes are widened.
    Doubles(Vec<f64>),
}

impl PointColumns {
    /// How many points there are.
    pub const fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none. A store never returns such.
    pub const fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Whether this is what the type promises, as far as times tell.
    pub(crate) fn ascends(&self) -> bool {
        match self.qualifier_width {
            2 => self.times.is_sorted_by(|a, b| a < b),
            // In front of the milliseconds are four bits 1, else it is a compacted cell; behind them are two
            // that mean nothing.
            4 => {
                let is_millis = |time: Option<&i64>| time.is_some_and(|time| time >> 24 == 0xf);
                is_millis(self.times.first())
                    && is_millis(self.times.last())
                    && self.times.is_sorted_by(|a, b| a >> 2 < b >> 2)
            }
            _ => false,
        }
    }
}
