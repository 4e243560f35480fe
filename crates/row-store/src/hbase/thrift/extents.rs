//! Extents of ranges, learned by scans: their first keys, and their last one.
//!
//! The extent splits the next scan of a range into parts, without a look at the range first. It decides only how the
//! range is split: rows in front of the first key and behind the last one belong to the first and the last part.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

use super::range::distance;
use crate::{Scan, TableName};

/// The most first keys that are kept.
pub(super) const SAMPLE: usize = 32;
/// Rows are added meanwhile, and splits become uneven.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The most ranges, and the most bytes of the keys of one of them.
const MAX_RANGES: usize = 1_024;
const MAX_BYTES: usize = 4 << 10;

/// The keys of a range.
#[derive(Debug)]
pub(super) struct Extent {
    /// The first keys, ascending; all of them if they are fewer than [`SAMPLE`].
    pub(super) sample: Vec<Vec<u8>>,
    /// The last key; `None` if there is none.
    pub(super) last: Option<Vec<u8>>,
    learned_at: Instant,
}

impl Extent {
    pub(super) fn new(mut sample: Vec<Vec<u8>>, last: Option<Vec<u8>>) -> Self {
        sample.truncate(SAMPLE);
        Self {
            sample,
            last,
            learned_at: Instant::now(),
        }
    }

    /// About how many rows the range has.
    pub(super) fn rows(&self) -> usize {
        let (Some(first), Some(latest), Some(last)) = (self.sample.first(), self.sample.last(), &self.last)
        else {
            return self.sample.len();
        };
        self.sample.len() + rows_behind(first, latest, last, self.sample.len())
    }

    fn byte_len(&self) -> usize {
        self.sample.iter().chain(&self.last).map(Vec::len).sum()
    }
}

/// About how many rows follow `latest` up to `last`, if there are `count` from `first` to `latest`.
pub(super) fn rows_behind(first: &[u8], latest: &[u8], last: &[u8], count: usize) -> usize {
    let (read, all) = (distance(first, latest, last), distance(first, last, last));
    let rest = u128::from(all.saturating_sub(read)) * count as u128 / u128::from(read.max(1));
    usize::try_from(rest).unwrap_or(usize::MAX)
}

/// A table and a range of it.
type Range = (TableName, Vec<u8>, Vec<u8>);

/// Extents of ranges that were scanned lately.
#[derive(Debug, Default)]
pub(super) struct Extents(Mutex<HashMap<Range, Arc<Extent>, FxBuildHasher>>);

impl Extents {
    /// The extent of the range of a scan.
    pub(super) fn get(&self, table: &TableName, scan: &Scan) -> Option<Arc<Extent>> {
        let range = (table.clone(), scan.start.clone(), scan.stop.clone());
        let extent = self.0.lock().get(&range).cloned();
        extent.filter(|extent| extent.learned_at.elapsed() < MAX_AGE)
    }

    /// Keeps an extent, for a while.
    pub(super) fn put(&self, table: &TableName, scan: &Scan, extent: &Arc<Extent>) {
        if extent.byte_len() + scan.start.len() + scan.stop.len() > MAX_BYTES {
            return;
        }
        let mut extents = self.0.lock();
        if extents.len() >= MAX_RANGES {
            extents.retain(|_, extent| extent.learned_at.elapsed() < MAX_AGE);
        }
        if extents.len() >= MAX_RANGES {
            extents.clear();
        }
        let range = (table.clone(), scan.start.clone(), scan.stop.clone());
        extents.insert(range, Arc::clone(extent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_rows_by_the_first_keys() {
        let key = |row: u16| [&[7, 7][..], &row.to_be_bytes(), &[1, 2]].concat();
        let extent = |last| Extent::new((10..42).map(key).collect(), Some(key(last)));
        let rows = extent(1_009).rows();
        assert!((950..1_100).contains(&rows), "{rows}");
        assert_eq!(extent(41).rows(), 32);
        assert_eq!(Extent::new(vec![key(1)], Some(key(1))).rows(), 1);
        assert_eq!(Extent::new(Vec::new(), None).rows(), 0);
    }

    #[test]
    fn keeps_a_bounded_number_of_small_extents() {
        let (extents, table): (Extents, TableName) = (Extents::default(), "t".parse().unwrap());
        let scan = |number: usize| Scan::prefix(&number.to_be_bytes());
        for number in 0..3 * MAX_RANGES {
            let extent = Arc::new(Extent::new(vec![vec![1]], None));
            extents.put(&table, &scan(number), &extent);
            assert!(extents.get(&table, &scan(number)).is_some());
            assert!(extents.0.lock().len() <= MAX_RANGES);
        }
        let large = Arc::new(Extent::new(vec![vec![1; MAX_BYTES]], None));
        extents.put(&table, &scan(1_000_000), &large);
        assert!(extents.get(&table, &scan(1_000_000)).is_none());
    }
}
