//! Points to append.

use oxtsdb_schema::timestamp::MAX_MILLIS;

use crate::{Point, PointKind, PointStoreError, SeriesNumber};

/// Points of any series as columns of equal lengths, in the order in which they take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointBatch {
    series: Vec<SeriesNumber>,
    times_ms: Vec<i64>,
    kinds: Vec<PointKind>,
    bits: Vec<u64>,
}

impl PointBatch {
    /// Bytes of memory for each point.
    pub const POINT_BYTES: usize =
        size_of::<SeriesNumber>() + size_of::<i64>() + size_of::<PointKind>() + size_of::<u64>();

    /// An empty batch with capacity for `points` points.
    pub fn with_capacity(points: usize) -> Self {
        Self {
            series: Vec::with_capacity(points),
            times_ms: Vec::with_capacity(points),
            kinds: Vec::with_capacity(points),
            bits: Vec::with_capacity(points),
        }
    }

    /// Reserves capacity for `points` more points.
    pub fn reserve(&mut self, points: usize) {
        self.series.reserve(points);
        self.times_ms.reserve(points);
        self.kinds.reserve(points);
        self.bits.reserve(points);
    }

    /// Appends a point.
    #[inline]
    pub fn push(&mut self, series: SeriesNumber, point: Point) {
        self.series.push(series);
        self.times_ms.push(point.time_ms);
        self.kinds.push(point.kind);
        self.bits.push(point.bits);
    }

    /// The number of points.
    pub const fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are no points.
    pub const fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Bytes of memory.
    pub const fn byte_len(&self) -> usize {
        self.len() * Self::POINT_BYTES
    }

    /// The series of each point.
    pub fn series(&self) -> &[SeriesNumber] {
        &self.series
    }

    /// The instant of each point; see [`Point`].
    pub fn times_ms(&self) -> &[i64] {
        &self.times_ms
    }

    /// Resolution and type of each point.
    pub fn kinds(&self) -> &[PointKind] {
        &self.kinds
    }

    /// The value of each point; see [`Point`].
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// The points with their series.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SeriesNumber, Point)> {
        (0..self.len()).map(|index| (self.series[index], self.point(index)))
    }

    /// The point at an index less than [`PointBatch::len`].
    #[inline]
    pub fn point(&self, index: usize) -> Point {
        Point {
            time_ms: self.times_ms[index],
            kind: self.kinds[index],
            bits: self.bits[index],
        }
    }

    /// Checks that all instants are instants of [`Point`], and all series before number `series_end`.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] for the first point that is outside.
    pub fn check(&self, series_end: u32) -> Result<(), PointStoreError> {
        if let Some(time_ms) = self
            .times_ms
            .iter()
            .find(|time_ms| !(0..=MAX_MILLIS).contains(*time_ms))
        {
            let message = format!("instant {time_ms} ms is not between 0 and {MAX_MILLIS}");
            return Err(PointStoreError::Invalid(message));
        }
        match self.series.iter().find(|series| series.0 >= series_end) {
            Some(SeriesNumber(series)) => Err(PointStoreError::Invalid(format!(
                "series {series} is unknown, the store has {series_end}"
            ))),
            None => Ok(()),
        }
    }

    /// Removes all points and keeps the capacity.
    pub fn clear(&mut self) {
        self.series.clear();
        self.times_ms.clear();
        self.kinds.clear();
        self.bits.clear();
    }
}
