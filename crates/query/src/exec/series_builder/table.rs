//! The series of a builder.
//!
//! They are in the order of their first rows, which mostly ascends by TSUID, and reads visit them in the same order again.
//! So the next series is mostly the one after the series before, and taking all of them reads memory in order: by a hash
//! table alone each series would be a cache miss.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use oxtsdb_schema::Tsuid;
use rustc_hash::FxBuildHasher;

use super::Series;

/// Series, each with a TSUID of its own.
#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    #[expect(
        clippy::vec_box,
        reason = "growth copies pointers, and its spare capacity is as small"
    )]
    series: Vec<Box<Series>>,
    /// Places in `series` by TSUID, once they do not ascend.
    places: Option<HashTable<u32>>,
    /// The place behind the series that was found last.
    next: usize,
}

fn hash(tsuid: &[u8]) -> u64 {
    FxBuildHasher.hash_one(tsuid)
}

impl SeriesTable {
    /// Their number.
    pub(super) const fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether the series ascend by TSUID.
    pub(super) const fn is_ascending(&self) -> bool {
        self.places.is_none()
    }

    /// The series with a TSUID.
    pub(super) fn get(&self, tsuid: &[u8]) -> Option<&Series> {
        self.find(tsuid).map(|place| &*self.series[place])
    }

    /// The series with a TSUID; series behind it are found at once next.
    pub(super) fn get_mut(&mut self, tsuid: &[u8]) -> Option<&mut Series> {
        let place = self.find(tsuid)?;
        self.next = place + 1;
        Some(&mut self.series[place])
    }

    fn find(&self, tsuid: &[u8]) -> Option<usize> {
        let is_at = |place: usize| {
            let series = self.series.get(place);
            series.is_some_and(|series| series.tsuid.as_bytes() == tsuid)
        };
        if is_at(self.next) {
            return Some(self.next);
        }
        let Some(places) = &self.places else {
            let last = self.series.last()?;
            if last.tsuid.as_bytes() < tsuid {
                return None;
            }
            let found = self
                .series
                .binary_search_by(|series| series.tsuid.as_bytes().cmp(tsuid));
            return found.ok();
        };
        let found = places.find(hash(tsuid), |place| is_at(*place as usize));
        found.map(|place| *place as usize)
    }

    /// Adds a series with a TSUID that the table does not have.
    pub(super) fn insert(&mut self, series: Series) -> &mut Series {
        let place = self.series.len();
        let ascends = self.series.last().is_none_or(|last| last.tsuid < series.tsuid);
        if !ascends && self.places.is_none() {
            let mut places = HashTable::with_capacity(self.series.len() + 1);
            for (place, series) in self.series.iter().enumerate() {
                self::insert(&mut places, &self.series, place, &series.tsuid);
            }
            self.places = Some(places);
        }
        if let Some(places) = &mut self.places {
            self::insert(places, &self.series, place, &series.tsuid);
        }
        self.next = place + 1;
        self.series.push(Box::new(series));
        &mut self.series[place]
    }

    /// All series, in their order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Series> {
        self.series.iter_mut().map(|series| &mut **series)
    }

    /// All series, in their order. None remains.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Box<Series>> + use<> {
        std::mem::take(self).series.into_iter()
    }
}

/// Adds the place of a series that is not in `series` yet.
fn insert(places: &mut HashTable<u32>, series: &[Box<Series>], place: usize, tsuid: &Tsuid) {
    let hash_of = |place: &u32| hash(series[*place as usize].tsuid.as_bytes());
    // A metric has fewer series than a series has numbers.
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    places.insert_unique(hash(tsuid.as_bytes()), place, hash_of);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oxtsdb_schema::UidWidths;
    use proptest::prelude::*;

    use super::super::tests::options;
    use super::*;

    fn tsuid(number: u8) -> Tsuid {
        Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, number], &UidWidths::default()).unwrap()
    }

    proptest! {
        /// Series in any order, each several times: ascending, with some that come later, at random.
        #[test]
        fn finds_each_series_that_was_inserted(
            visits in prop::collection::vec(any::<u8>(), 0..200),
            sorted in 0_usize..200,
        ) {
            let mut visits = visits;
            let sorted = sorted.min(visits.len());
            visits[..sorted].sort_unstable();
            let (mut table, mut inserted) = (SeriesTable::default(), Vec::new());
            for number in visits {
                let tsuid = tsuid(number);
                let found = table.get_mut(tsuid.as_bytes()).map(|series| series.tsuid.clone());
                prop_assert_eq!(found, inserted.contains(&tsuid).then(|| tsuid.clone()));
                if !inserted.contains(&tsuid) {
                    table.insert(Series::new(tsuid.clone(), &options(None)));
                    inserted.push(tsuid);
                }
            }
            prop_assert_eq!(table.is_ascending(), inserted.is_sorted());
            for number in 0..=u8::MAX {
                let tsuid = tsuid(number);
                prop_assert_eq!(table.get(tsuid.as_bytes()).is_some(), inserted.contains(&tsuid));
            }
            let drained: Vec<Tsuid> = table.drain().map(|series| series.tsuid.clone()).collect();
            prop_assert_eq!(&drained, &inserted);
            prop_assert_eq!(drained.iter().collect::<BTreeSet<_>>().len(), inserted.len());
            prop_assert_eq!(table.len(), 0);
        }
    }
}
