//! The series catalogue: the number of each series, its key and its metric.
//!
//! A key is a TSUID of the deployment's widths. Numbers are dense, of series and of metrics alike, in the order in
//! which they are first seen: series loaded again in order of their numbers get the same metric numbers. Parts sort
//! by [`SeriesKey`], so that the series of a metric lie together.
//!
//! All calls may come from any thread. Lookups share a lock; a batch of new keys holds it alone for at most
//! [`LOCKED_KEYS`] keys at a time.

mod keys;

use hashbrown::HashMap;
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::uid::UidWidths;
use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;

use crate::{PointStoreError, SeriesNumber};
use keys::{KeyHash, Keys};

/// Keys for which the lock is held without a break.
const LOCKED_KEYS: usize = 1024;

/// The number of a metric within one store: dense from 0, given with the metric's first series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricNumber(pub u32);

/// The place of a series in the order of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// The metric.
    pub metric: MetricNumber,
    /// The series.
    pub series: SeriesNumber,
}

/// The series of a store.
#[derive(Debug)]
pub struct SeriesCatalogue {
    widths: UidWidths,
    known: RwLock<Known>,
}

/// Series and metrics in memory.
#[derive(Debug, Default)]
struct Known {
    keys: Keys,
    metrics: Vec<Metric>,
    metric_numbers: HashMap<u64, MetricNumber, FxBuildHasher>,
}

#[derive(Debug)]
struct Metric {
    /// Its series, ascending.
    series: Vec<SeriesNumber>,
}

impl SeriesCatalogue {
    /// A catalogue without series, for UIDs of these widths.
    pub fn new(widths: UidWidths) -> Self {
        Self {
            widths,
            known: RwLock::default(),
        }
    }

    /// The number of series; the next new series gets this number.
    pub fn len(&self) -> u32 {
        self.known.read().keys.len()
    }

    /// Whether there are no series.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of keys, in their order. New keys get the next numbers.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] for a key that is no TSUID, [`PointStoreError::Full`] if no numbers are left.
    /// Keys before it may have got numbers.
    pub fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError> {
        let mut numbers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(LOCKED_KEYS) {
            let hashes: Vec<KeyHash> = keys.iter().map(|key| KeyHash::of(key)).collect();
            let found: Vec<Option<SeriesNumber>> = {
                let known = self.known.read();
                let keys = keys.iter().zip(&hashes);
                keys.map(|(key, hash)| known.keys.find(*hash, key)).collect()
            };
            for (key, _) in keys.iter().zip(&found).filter(|(_, found)| found.is_none()) {
                self.check(key)?;
            }
            if found.iter().all(Option::is_some) {
                numbers.extend(found.into_iter().flatten());
                continue;
            }
            let mut known = self.known.write();
            for ((key, hash), found) in keys.iter().zip(hashes).zip(found) {
                numbers.push(match found {
                    Some(series) => series,
                    None => known.number(hash, key, &self.widths)?,
                });
            }
        }
        Ok(numbers)
    }

    /// The number of a key.
    pub fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        let hash = KeyHash::of(key);
        self.known.read().keys.find(hash, key)
    }

    /// Replaces `key` by the key of a series; `false` if there is no such series.
    pub fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        key.clear();
        let known = self.known.read();
        let found = known.keys.key(series);
        key.extend_from_slice(found.unwrap_or_default());
        found.is_some()
    }

    /// The metric of a series; `None` if there is no such series.
    pub fn metric_of(&self, series: SeriesNumber) -> Option<MetricNumber> {
        self.known.read().keys.metric(series)
    }

    /// The number of a metric by its UID; `None` if it has no series.
    pub fn metric_number(&self, uid: &[u8]) -> Option<MetricNumber> {
        if uid.len() != self.widths.metric.bytes() {
            return None;
        }
        self.known.read().metric_numbers.get(&uid_number(uid)).copied()
    }

    /// Bytes of memory.
    pub fn byte_len(&self) -> usize {
        let known = self.known.read();
        let series: usize = known.metrics.iter().map(|metric| metric.series.capacity()).sum();
        known.keys.byte_len()
            + known.metric_numbers.allocation_size()
            + known.metrics.capacity() * size_of::<Metric>()
            + series * size_of::<SeriesNumber>()
    }

    fn check(&self, key: &[u8]) -> Result<(), PointStoreError> {
        let tsuid = Tsuid::from_bytes(key, &self.widths);
        tsuid.map_err(|error| PointStoreError::Invalid(error.to_string()))?;
        Ok(())
    }
}

impl Known {
    /// The number of a valid key, which gets the next one if it is new.
    fn number(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        widths: &UidWidths,
    ) -> Result<SeriesNumber, PointStoreError> {
        if let Some(series) = self.keys.find(hash, key) {
            return Ok(series);
        }
        let uid = uid_number(&key[..widths.metric.bytes()]);
        // There are no more metrics than series, whose number is limited.
        let next = MetricNumber(u32::try_from(self.metrics.len()).unwrap_or(u32::MAX));
        let metric = self.metric_numbers.get(&uid).copied().unwrap_or(next);
        let series = self.keys.insert(hash, key, metric)?;
        if metric == next {
            self.metric_numbers.insert(uid, metric);
            self.metrics.push(Metric { series: Vec::new() });
        }
        self.metrics[metric.0 as usize].series.push(series);
        Ok(series)
    }
}

/// The number of a UID, whose order is that of the bytes for UIDs of one width.
fn uid_number(uid: &[u8]) -> u64 {
    uid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
