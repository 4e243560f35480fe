//! The series index: the trait through which queries list the series of a metric, and the list itself.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::MetricUid;

/// Lists the series of a metric.
#[async_trait]
pub trait SeriesIndex: Send + Sync + fmt::Debug {
    /// All series of a metric. A list must be complete: a query reads no other series.
    ///
    /// # Errors
    ///
    /// The reason why there is no list now. A scan finds the series.
    async fn list(&self, metric: MetricUid) -> Result<Arc<SeriesList>, NotListed>;

    /// Adds a series that may have no points, by its TSUID. Call this before its annotation is stored.
    ///
    /// # Errors
    ///
    /// When the store fails. A repetition is safe.
    async fn add_annotated(&self, tsuid: &[u8]) -> Result<(), StoreError>;
}

/// The reason why a metric's series are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotListed {
    /// Other writers may bypass the index, and the operator has not declared it trustworthy.
    Untrusted,
    /// The list is long and being read.
    Reading,
    /// The list does not fit in memory.
    TooLarge,
    /// Table `tsdb-meta` could not be read.
    Failed,
}

impl fmt::Display for NotListed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untrusted => {
                "others may write series that are not in tsdb-meta (--trust-tsuid-tracking is not set)"
            }
            Self::Reading => "the list of its series is being read",
            Self::TooLarge => "the list of its series takes more than --series-index-mib",
            Self::Failed => "tsdb-meta could not be read, see the log",
        })
    }
}

/// The tags of series (tagk and tagv UIDs, as in a row key), ascending, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesList {
    tags: Vec<u8>,
    /// The end of the tags of each series.
    ends: Vec<u32>,
}

impl SeriesList {
    /// How many series there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in memory.
    pub fn byte_len(&self) -> usize {
        self.tags.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// The tags of each series.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Whether a series is among them.
    pub fn contains(&self, tags: &[u8]) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).cmp(tags) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// How many series are not after these tags.
    pub fn position_after(&self, tags: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle) <= tags {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Appends a series.
    pub fn push(&mut self, tags: &[u8]) {
        self.tags.extend_from_slice(tags);
        // Lists are kept below 4 GiB by the setting of the index.
        self.ends.push(u32::try_from(self.tags.len()).unwrap_or(u32::MAX));
    }

    /// Returns the union of these series and the series of some sets.
    pub fn with<'a>(&'a self, sets: impl IntoIterator<Item = &'a BTreeSet<Box<[u8]>>>) -> Self {
        let mut others: Vec<&[u8]> = sets.into_iter().flatten().map(|tags| &**tags).collect();
        others.sort_unstable();
        others.dedup();
        let mut all = Self {
            tags: Vec::with_capacity(self.tags.len() + others.iter().map(|tags| tags.len()).sum::<usize>()),
            ends: Vec::with_capacity(self.len() + others.len()),
        };
        let mut others = others.into_iter().peekable();
        for tags in self.iter() {
            while let Some(other) = others.next_if(|other| *other < tags) {
                all.push(other);
            }
            others.next_if(|other| *other == tags);
            all.push(tags);
        }
        others.for_each(|other| all.push(other));
        all
    }

    fn get(&self, index: usize) -> &[u8] {
        let end = |index: usize| self.ends.get(index).map_or(0, |end| *end as usize);
        let start = index.checked_sub(1).map_or(0, end);
        self.tags.get(start..end(index)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(series: &BTreeSet<Box<[u8]>>) -> SeriesList {
        let mut list = SeriesList::default();
        series.iter().for_each(|tags| list.push(tags));
        list
    }

    fn some_series() -> impl Strategy<Value = BTreeSet<Box<[u8]>>> {
        let tags = prop::collection::vec(0_u8..3, 1..4).prop_map(Vec::into_boxed_slice);
        prop::collection::btree_set(tags, 0..20)
    }

    proptest! {
        #[test]
        fn merging_keeps_all_series_of_both_lists(ours in some_series(), others in some_series()) {
            let all = list(&ours).with([&others]);
            prop_assert_eq!(&all, &list(&ours.union(&others).cloned().collect()));
            for tags in ours.union(&others) {
                prop_assert!(all.contains(tags));
                prop_assert_eq!(list(&ours).contains(tags), ours.contains(tags));
                let before = ours.iter().filter(|ours| *ours <= tags).count();
                prop_assert_eq!(list(&ours).position_after(tags), before);
            }
        }
    }
}
