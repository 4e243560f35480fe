//! Points of one series as columns.

use std::ops::Range;

use crate::{Kinds, Point, PointKind, SeriesColumns, SeriesNumber};

/// Points of one series, as columns of equal lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The instants.
    pub times_ms: Vec<i64>,
    /// Resolutions and types.
    pub kinds: Vec<PointKind>,
    /// The values; see [`Point`].
    pub bits: Vec<u64>,
}

impl Columns {
    /// The number of points.
    pub const fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// Whether there are no points.
    pub const fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    /// Bytes of its points.
    pub const fn byte_len(&self) -> usize {
        self.len() * (size_of::<i64>() + size_of::<PointKind>() + size_of::<u64>())
    }

    /// Appends a point.
    pub fn push(&mut self, point: Point) {
        self.times_ms.push(point.time_ms);
        self.kinds.push(point.kind);
        self.bits.push(point.bits);
    }

    /// Appends some points of other columns.
    pub fn extend_from(&mut self, other: &Self, points: Range<usize>) {
        self.times_ms.extend_from_slice(&other.times_ms[points.clone()]);
        self.kinds.extend_from_slice(&other.kinds[points.clone()]);
        self.bits.extend_from_slice(&other.bits[points]);
    }

    /// Removes the points from an index on.
    pub fn truncate(&mut self, len: usize) {
        self.times_ms.truncate(len);
        self.kinds.truncate(len);
        self.bits.truncate(len);
    }

    /// Removes points.
    pub fn remove(&mut self, points: Range<usize>) {
        self.times_ms.drain(points.clone());
        self.kinds.drain(points.clone());
        self.bits.drain(points);
    }

    /// Removes all points and keeps the capacity.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The points.
    pub fn points(&self) -> impl ExactSizeIterator<Item = Point> + DoubleEndedIterator {
        (0..self.len()).map(|index| Point {
            time_ms: self.times_ms[index],
            kind: self.kinds[index],
            bits: self.bits[index],
        })
    }

    /// The last point.
    pub fn last(&self) -> Option<Point> {
        Some(Point {
            time_ms: *self.times_ms.last()?,
            kind: *self.kinds.last()?,
            bits: *self.bits.last()?,
        })
    }

    /// As the columns of a series.
    pub fn into_series(self, series: SeriesNumber) -> SeriesColumns {
        let first = self.kinds.first().copied();
        let same = first.filter(|first| self.kinds.iter().all(|kind| kind == first));
        SeriesColumns {
            series,
            times_ms: self.times_ms,
            kinds: same.map_or(Kinds::Each(self.kinds), Kinds::Same),
            bits: self.bits,
        }
    }
}

impl FromIterator<Point> for Columns {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        let mut columns = Self::default();
        points.into_iter().for_each(|point| columns.push(point));
        columns
    }
}
