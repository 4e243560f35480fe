//! The series catalogue: the number of each series, its key and its metric.
//!
//! A key is a TSUID of the deployment's widths. Numbers are dense, of series and of metrics alike, in the order in
//! which they are first seen: series loaded again in order of their numbers get the same metric numbers. Parts sort
//! by [`SeriesKey`], so that the series of a metric lie together.
//!
//! The keys are durable in two files, or in the journal: the engine restores keys of the journal after
//! [`SeriesCatalogue::open`], and calls [`SeriesCatalogue::save`] before it removes a part of the journal.
//!
//! All calls may come from any thread. Lookups share a lock; a batch of new keys holds it alone for some hundred
//! microseconds at a time.
//!
//! | Module | Content |
//! |---|---|
//! | `keys` | keys and numbers in memory |
//! | `log` | the files |
//! | `segment` | an index of the tags of some series of a metric, tests of tags |
//! | `index` | the indexes of metrics, queries |
//!
//! Measured by `examples/measure-series.rs` on two cores, 10 million series of 3 tags: 36 bytes a series, 80 with all
//! indexes; a key is found in 230 ns; loaded in 4 s.

mod index;
mod keys;
mod log;
mod segment;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use oxtsdb_schema::{MetricUid, Tsuid, UidWidth, UidWidths};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;

use crate::highest_uids::uid_number;
use crate::{HighestUids, PointStoreError, SeriesNumber};
use index::MetricIndex;
use keys::{KeyHash, Keys};
use log::SeriesLog;
use oxtsdb_storage_file::disk::Disk;

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
    path: PathBuf,
    /// Locked before `known`.
    log: Mutex<SeriesLog>,
    known: RwLock<Known>,
    /// Bytes of all metrics' indexes.
    index_bytes: AtomicUsize,
}

/// Series and metrics in memory.
#[derive(Debug)]
struct Known {
    keys: Keys,
    metrics: Vec<Metric>,
    metric_numbers: HashMap<u64, MetricNumber, FxBuildHasher>,
    highest: HighestUids,
}

#[derive(Debug, Default)]
struct Metric {
    /// Its series, ascending.
    series: Vec<SeriesNumber>,
    /// Locked before the catalogue's `known`.
    index: Arc<Mutex<MetricIndex>>,
}

impl SeriesCatalogue {
    /// Opens the catalogue of a path, with a copy at extension `copy`; it is empty if there are no files. A copy that
    /// is torn or damaged is repaired from the other.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] if both copies are; [`PointStoreError::Format`] for another version;
    /// [`PointStoreError::Invalid`] if the files have other `widths`; [`PointStoreError::Io`].
    pub fn open(disk: Arc<dyn Disk>, path: &Path, widths: UidWidths) -> Result<Self, PointStoreError> {
        let mut known = Known {
            keys: Keys::new(widths),
            metrics: Vec::new(),
            metric_numbers: HashMap::default(),
            highest: HighestUids::default(),
        };
        let log = SeriesLog::open(disk, path, widths, &mut |series, key| {
            known.restore(series, key, &widths)
        })?;
        let catalogue = Self {
            widths,
            path: path.to_owned(),
            log: Mutex::new(log),
            known: RwLock::new(known),
            index_bytes: AtomicUsize::new(0),
        };
        if catalogue.saved().is_none()
            && let Err(error) = catalogue.save(0)
        {
            tracing::warn!(%error, "cannot repair a copy of the series' keys now; the next save retries");
        }
        Ok(catalogue)
    }

    /// Adds a series of the journal. A known series must have the same key.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] if it has another key, or series before it are missing.
    pub fn restore(&self, series: SeriesNumber, key: &[u8]) -> Result<(), PointStoreError> {
        let restored = self.known.write().restore(series, key, &self.widths);
        restored.map_err(|detail| PointStoreError::Damaged {
            path: self.path.clone(),
            detail: format!("the journal does not fit: {detail}"),
        })
    }

    /// The number of series that are durable in both files; `None` if one has to be repaired by the next call of
    /// [`Self::save`].
    pub fn saved(&self) -> Option<u32> {
        self.log.lock().saved()
    }

    /// Makes the series before number `end` durable in both files.
    ///
    /// # Errors
    ///
    /// Errors of the disk; the next call repeats the failed writes.
    pub fn save(&self, end: u32) -> Result<(), PointStoreError> {
        self.log
            .lock()
            .save(end.min(self.len()), &|series, key| self.key(series, key))
    }

    /// Writes the series before number `end` to new files, for a snapshot.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if there are files; errors of the disk.
    pub fn save_to(&self, disk: Arc<dyn Disk>, path: &Path, end: u32) -> Result<(), PointStoreError> {
        let mut log = SeriesLog::open(disk, path, self.widths, &mut |_, _| Ok(()))?;
        if log.saved() != Some(0) {
            return Err(PointStoreError::Invalid(format!("{} has series", path.display())));
        }
        log.save(end.min(self.len()), &|series, key| self.key(series, key))
    }

    /// Reads both files and compares each key.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] for the first file that is; [`PointStoreError::Io`].
    pub fn verify(&self) -> Result<(), PointStoreError> {
        let mut known_key = Vec::new();
        self.log.lock().verify(&mut |series, key| {
            if self.known.read().keys.read(series, &mut known_key) && known_key == key {
                return Ok(());
            }
            Err(format!("series {} has another key", series.0))
        })
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
            let hashes: Vec<KeyHash> = keys.iter().map(|key| KeyHash::new(key)).collect();
            let given: Vec<Option<SeriesNumber>> = {
                let known = self.known.read();
                let keys = keys.iter().zip(&hashes);
                keys.map(|(key, hash)| known.keys.find(*hash, key)).collect()
            };
            for (key, _) in keys.iter().zip(&given).filter(|(_, given)| given.is_none()) {
                self.check(key)?;
            }
            if given.iter().all(Option::is_some) {
                numbers.extend(given.into_iter().flatten());
                continue;
            }
            let mut known = self.known.write();
            for ((key, hash), given) in keys.iter().zip(hashes).zip(given) {
                numbers.push(match given {
                    Some(series) => series,
                    None => known.number(hash, key, &self.widths)?,
                });
            }
        }
        Ok(numbers)
    }

    /// The number of a key.
    pub fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        let hash = KeyHash::new(key);
        self.known.read().keys.find(hash, key)
    }

    /// Replaces `key` by the key of a series; `false` if there is no such series.
    pub fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        self.known.read().keys.read(series, key)
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

    /// How many series a metric has.
    pub fn series_count(&self, metric: MetricNumber) -> u64 {
        let known = self.known.read();
        known
            .metrics
            .get(metric.0 as usize)
            .map_or(0, |metric| metric.series.len() as u64)
    }

    /// All metrics, ascending, and how many series they have.
    pub fn metrics(&self) -> Vec<(MetricUid, u64)> {
        let known = self.known.read();
        let counts = known.metric_numbers.iter().filter_map(|(number, metric)| {
            let uid = MetricUid::from_bytes(uid_bytes(&number.to_be_bytes(), self.widths.metric)).ok()?;
            Some((uid, known.metrics[metric.0 as usize].series.len() as u64))
        });
        let mut counts: Vec<(MetricUid, u64)> = counts.collect();
        counts.sort_unstable();
        counts
    }

    /// The highest UID of each kind in the keys.
    pub fn highest_uids(&self) -> HighestUids {
        self.known.read().highest
    }

    /// Bytes of memory.
    pub fn byte_len(&self) -> usize {
        let known = self.known.read();
        let series: usize = known.metrics.iter().map(|metric| metric.series.capacity()).sum();
        known.keys.byte_len()
            + known.metric_numbers.allocation_size()
            + known.metrics.capacity() * (size_of::<Metric>() + size_of::<Mutex<MetricIndex>>())
            + series * size_of::<SeriesNumber>()
            + self.index_bytes.load(Ordering::Relaxed)
    }

    fn check(&self, key: &[u8]) -> Result<(), PointStoreError> {
        let tsuid = Tsuid::from_bytes(key, &self.widths);
        tsuid.map_err(|error| PointStoreError::Invalid(error.to_string()))?;
        Ok(())
    }
}

impl Known {
    /// Adds a series with its number, the next one unless it is known.
    fn restore(&mut self, series: SeriesNumber, key: &[u8], widths: &UidWidths) -> Result<(), String> {
        let next = self.keys.len();
        if series.0 > next {
            return Err(format!("series {} follows {next} series", series.0));
        }
        Tsuid::from_bytes(key, widths).map_err(|error| error.to_string())?;
        let number = self.number(KeyHash::new(key), key, widths);
        match number.map_err(|error| error.to_string())? {
            number if number == series => Ok(()),
            number => Err(format!("the key of series {} is that of {}", series.0, number.0)),
        }
    }

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
        // There are no more metrics than series, and the number of series is limited.
        let next = MetricNumber(u32::try_from(self.metrics.len()).unwrap_or(u32::MAX));
        let metric = self.metric_numbers.get(&uid).copied().unwrap_or(next);
        let series = self.keys.insert(hash, key, metric)?;
        if metric == next {
            self.metric_numbers.insert(uid, metric);
            self.metrics.push(Metric::default());
        }
        self.metrics[metric.0 as usize].series.push(series);
        self.highest.add(uid, &key[widths.metric.bytes()..], widths);
        Ok(series)
    }
}

/// The bytes of a UID, taken from the bytes of its number.
fn uid_bytes(number: &[u8; 8], width: UidWidth) -> &[u8] {
    &number[number.len() - width.bytes()..]
}

#[cfg(test)]
mod tests;
