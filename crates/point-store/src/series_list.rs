//! Series in ordered maps, for stores without a catalogue of their own.

use std::collections::{BTreeMap, BTreeSet};

use oxtsdb_schema::{TagkUid, TagvUid, Tsuid, UidWidths};

use crate::{PointStoreError, SeriesNumber, TagTest};

/// Series by number and by key.
#[derive(Debug)]
pub(crate) struct SeriesList {
    widths: UidWidths,
    numbers: BTreeMap<Vec<u8>, SeriesNumber>,
    /// By series number.
    keys: Vec<Vec<u8>>,
}

impl SeriesList {
    /// An empty list of keys with UIDs of these widths.
    pub(crate) const fn new(widths: UidWidths) -> Self {
        Self {
            widths,
            numbers: BTreeMap::new(),
            keys: Vec::new(),
        }
    }

    /// The number of series.
    pub(crate) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// The numbers of keys; new ones get the next numbers.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] for a key that is no TSUID, before any number is given;
    /// [`PointStoreError::Full`] if there would be more than `most` series.
    pub(crate) fn add(&mut self, keys: &[&[u8]], most: usize) -> Result<Vec<SeriesNumber>, PointStoreError> {
        for key in keys {
            Tsuid::from_bytes(key, &self.widths)
                .map_err(|error| PointStoreError::Invalid(error.to_string()))?;
        }
        keys.iter()
            .map(|key| {
                if let Some(number) = self.numbers.get(*key) {
                    return Ok(*number);
                }
                let number = u32::try_from(self.keys.len())
                    .ok()
                    .filter(|_| self.keys.len() < most)
                    .map(SeriesNumber)
                    .ok_or_else(|| PointStoreError::Full(format!("all {most} series numbers are given")))?;
                self.keys.push(key.to_vec());
                self.numbers.insert(key.to_vec(), number);
                Ok(number)
            })
            .collect()
    }

    /// The number of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        self.numbers.get(key).copied()
    }

    /// The key of a number.
    pub(crate) fn key(&self, series: SeriesNumber) -> Option<&[u8]> {
        self.keys.get(series.index()).map(Vec::as_slice)
    }

    /// As [`crate::PointStore::key`].
    pub(crate) fn copy_key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        let Some(stored) = self.key(series) else {
            return false;
        };
        key.clear();
        key.extend_from_slice(stored);
        true
    }

    /// The UIDs of all metrics, ascending.
    pub(crate) fn metrics(&self) -> Vec<Vec<u8>> {
        let width = self.widths.metric.bytes();
        let uids = self.numbers.keys().filter_map(|key| key.get(..width));
        let mut metrics: Vec<Vec<u8>> = uids.map(<[u8]>::to_vec).collect();
        metrics.dedup();
        metrics
    }

    /// The series of a metric, in order of their keys.
    pub(crate) fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber> {
        let from = self.numbers.range(metric.to_vec()..);
        from.take_while(|(key, _)| key.starts_with(metric))
            .map(|(_, number)| *number)
            .collect()
    }

    /// The series of a metric that pass all tests, ascending by number.
    pub(crate) fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber> {
        let tagged = self.tagged(metric);
        let passing = tagged.filter(|(_, tags)| tests.iter().all(|test| test.passes(tags)));
        let mut series: Vec<SeriesNumber> = passing.map(|(series, _)| series).collect();
        series.sort_unstable();
        series
    }

    /// The values of a tag key among the series of a metric, ascending.
    pub(crate) fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid> {
        let tags = self.tagged(metric).flat_map(|(_, tags)| tags);
        let values: BTreeSet<TagvUid> = tags
            .filter(|(key, _)| *key == tagk)
            .map(|(_, value)| value)
            .collect();
        values.into_iter().collect()
    }

    /// The series of a metric with their tags.
    fn tagged(&self, metric: &[u8]) -> impl Iterator<Item = (SeriesNumber, Vec<(TagkUid, TagvUid)>)> {
        self.metric_series(metric).into_iter().filter_map(|series| {
            let tsuid = Tsuid::from_bytes(self.key(series)?, &self.widths).ok()?;
            Some((series, tsuid.tags(&self.widths).collect()))
        })
    }
}
