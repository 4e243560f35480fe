//! Points to append, of series by their keys.

use crate::{Point, PointBatch, SeriesNumber};

/// Points of series that are named by their keys (TSUIDs), for stores that keep no numbers; in the order in which they
/// take effect.
///
/// The numbers of its points are places among the keys of the batch, which may occur several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyedBatch {
    keys: Vec<u8>,
    ends: Vec<usize>,
    points: PointBatch,
}

impl KeyedBatch {
    /// An empty batch with capacity for `points` points.
    pub fn with_capacity(points: usize) -> Self {
        Self {
            keys: Vec::new(),
            ends: Vec::new(),
            points: PointBatch::with_capacity(points),
        }
    }

    /// Adds a key, which `append_to` appends to a buffer, and returns its number within this batch.
    #[inline]
    pub fn add_key(&mut self, append_to: impl FnOnce(&mut Vec<u8>)) -> SeriesNumber {
        append_to(&mut self.keys);
        self.ends.push(self.keys.len());
        // A batch of that size does not fit in memory.
        SeriesNumber(u32::try_from(self.ends.len() - 1).unwrap_or(u32::MAX))
    }

    /// Appends a point.
    #[inline]
    pub fn push(&mut self, series: SeriesNumber, point: Point) {
        self.points.push(series, point);
    }

    /// A key by its number in this batch; empty if there is none.
    #[inline]
    pub fn key(&self, series: SeriesNumber) -> &[u8] {
        let start = match series.index() {
            0 => 0,
            index => self.ends.get(index - 1).copied().unwrap_or(usize::MAX),
        };
        let end = self.ends.get(series.index()).copied().unwrap_or(0);
        self.keys.get(start..end).unwrap_or_default()
    }

    /// All keys, by their numbers.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.keys[start..self.ends[index]]
        })
    }

    /// The points, by the numbers that [`KeyedBatch::add_key`] returned.
    pub const fn points(&self) -> &PointBatch {
        &self.points
    }

    /// The points without the keys.
    pub fn into_points(self) -> PointBatch {
        self.points
    }

    /// Bytes of memory.
    pub const fn byte_len(&self) -> usize {
        self.points.byte_len() + self.keys.len() + self.ends.len() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_places_as_numbers() {
        let mut batch = KeyedBatch::default();
        for key in [&b"abc"[..], b"", b"de"] {
            batch.add_key(|buffer| buffer.extend_from_slice(key));
        }
        let keys: Vec<&[u8]> = (0..4).map(|number| batch.key(SeriesNumber(number))).collect();
        assert_eq!(keys, [&b"abc"[..], b"", b"de", b""]);
        assert!(batch.keys().eq(keys[..3].iter().copied()));
    }
}
