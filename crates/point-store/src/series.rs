//! Numbers of series.

/// The number of a series within one store: dense from 0, given when the series is first seen, never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesNumber(pub u32);

impl SeriesNumber {
    /// As an index into an array of all series.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
