//! Points that were read.

use crate::{Point, PointKind, SeriesNumber};

/// Resolutions and types of the points of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All points are of one kind.
    Same(PointKind),
    /// The kind of each point.
    Each(Vec<PointKind>),
}

impl Kinds {
    /// The kind of a point.
    #[inline]
    pub fn get(&self, index: usize) -> PointKind {
        match self {
            Self::Same(kind) => *kind,
            Self::Each(kinds) => kinds[index],
        }
    }
}

/// The points of one series as columns, ascending by instant, one for each instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesColumns {
    /// The series.
    pub series: SeriesNumber,
    /// The instants; see [`Point`].
    pub times_ms: Vec<i64>,
    /// Resolutions and types.
    pub kinds: Kinds,
    /// The values; see [`Point`].
    pub bits: Vec<u64>,
}

impl SeriesColumns {
    /// The columns of points that ascend by instant. There is at least one point.
    pub fn from_points(series: SeriesNumber, points: &[Point]) -> Self {
        let is_same = points.windows(2).all(|pair| pair[0].kind == pair[1].kind);
        let mut kinds = points.iter().map(|point| point.kind);
        Self {
            series,
            times_ms: points.iter().map(|point| point.time_ms).collect(),
            bits: points.iter().map(|point| point.bits).collect(),
            kinds: match kinds.next() {
                Some(kind) if is_same => Kinds::Same(kind),
                first => Kinds::Each(first.into_iter().chain(kinds).collect()),
            },
        }
    }

    /// The number of points.
    pub const fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// Whether there are no points.
    pub const fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    /// Bytes of memory.
    pub fn byte_len(&self) -> usize {
        let kinds = match &self.kinds {
            Kinds::Same(_) => 0,
            Kinds::Each(kinds) => kinds.len(),
        };
        self.len() * (size_of::<i64>() + size_of::<u64>()) + kinds
    }

    /// The points.
    pub fn points(&self) -> impl ExactSizeIterator<Item = Point> {
        (0..self.len()).map(|index| Point {
            time_ms: self.times_ms[index],
            kind: self.kinds.get(index),
            bits: self.bits[index],
        })
    }
}
