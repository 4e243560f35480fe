//! The tags of a metric's series and their order by key, for queries.
//!
//! The index of a metric is built when a query first needs it, and extended when one needs it again: series that came
//! since become a new segment. Numbers ascend, so the results of segments follow each other. A segment that is not much
//! larger than the segments behind it is merged with them, so that each series is merged a few times only, and a query
//! reads few segments.
//!
//! An index that no query uses is dropped after some time: a metric whose series have ended keeps none.
//!
//! The order by key is kept, too. A few new series are inserted by searching for their places; for more, one segment
//! of all series is sorted by its columns.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oxtsdb_schema::{TagkUid, TagvUid};

use super::segment::{Segment, SegmentBuilder};
use super::{LOCKED_KEYS, MetricNumber, SeriesCatalogue, uid_bytes};
use crate::{SeriesNumber, TagTest};

/// Series that are sorted at once: their tags fit in the processor's cache.
const LEAF_SERIES: usize = 1 << 16;
/// A segment is merged with the segments behind it unless it has more than this many times their series.
const MERGE_RATIO: usize = 2;
/// All series are sorted again if more than this part of them is new.
const SORT_RATIO: usize = 16;

/// The index of a metric.
#[derive(Debug, Default)]
pub(super) struct MetricIndex {
    /// Of the metric's first series, in order of their numbers.
    segments: Vec<Arc<Segment>>,
    /// The metric's first series, in order of their keys.
    by_key: Arc<Vec<SeriesNumber>>,
    /// Whether a query has used it since the last call of [`SeriesCatalogue::drop_unused_indexes`].
    is_used: bool,
}

impl MetricIndex {
    fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    fn byte_len(&self) -> usize {
        let segments: usize = self.segments.iter().map(|segment| segment.byte_len()).sum();
        segments + self.by_key.capacity() * size_of::<SeriesNumber>()
    }

    /// Merges the last segments, at least all behind index `from`.
    fn merge(&mut self, mut from: usize) {
        let len = |segments: &[Arc<Segment>]| segments.iter().map(|segment| segment.len()).sum::<usize>();
        while let Some(before) = from.checked_sub(1)
            && self.segments[before].len() <= MERGE_RATIO * len(&self.segments[from..])
        {
            from = before;
        }
        if self.segments.len() > from + 1 {
            let merged = Segment::merge(&self.segments[from..]);
            self.segments.truncate(from);
            self.segments.push(Arc::new(merged));
        }
    }
}

/// Queries. The first query of a metric, and queries after many new series, take time in proportion to the metric.
impl SeriesCatalogue {
    /// All series of a metric, in order of their keys.
    pub fn metric_series(&self, metric: MetricNumber) -> Arc<Vec<SeriesNumber>> {
        self.with_index(metric, |index| {
            let (sorted, len) = (index.by_key.len(), index.len());
            if (len - sorted) * SORT_RATIO > len {
                index.merge(0);
                let sorted = index.segments.first().map(|segment| segment.key_order());
                index.by_key = Arc::new(sorted.unwrap_or_default());
            } else if sorted < len {
                index.by_key = Arc::new(self.insert_by_key(metric, &index.by_key, len));
            }
            Arc::clone(&index.by_key)
        })
    }

    /// The series of a metric that pass all tests, ascending by number.
    pub fn select(&self, metric: MetricNumber, tests: &[TagTest]) -> Vec<SeriesNumber> {
        let mut selected = Vec::new();
        for segment in self.segments(metric) {
            segment.select(tests, &mut selected);
        }
        selected
    }

    /// As [`Self::select`], if the index is complete, and one of the tests leaves at most `most` series or its segments have
    /// no more each.
    pub fn select_few(
        &self,
        metric: MetricNumber,
        tests: &[TagTest],
        most: usize,
    ) -> Option<Vec<SeriesNumber>> {
        let (index, count) = {
            let known = self.known.read();
            let metric = known.metrics.get(metric.0 as usize)?;
            (Arc::clone(&metric.index), metric.series.len())
        };
        let segments = {
            let mut index = index.try_lock()?;
            index.is_used = true;
            (index.len() == count).then(|| index.segments.clone())?
        };
        let mut selected = Vec::new();
        for segment in segments {
            segment.select_few(tests, most, &mut selected)?;
        }
        Some(selected)
    }

    /// The tag keys of a metric, ascending, and how many series have them.
    pub fn tag_keys(&self, metric: MetricNumber) -> Vec<(TagkUid, u64)> {
        let segments = self.segments(metric);
        let counts = sums(segments.iter().flat_map(|segment| segment.tag_keys()));
        let uid = |number| TagkUid::from_bytes(uid_bytes(&u64::to_be_bytes(number), self.widths.tagk)).ok();
        let counts = counts.into_iter();
        counts
            .filter_map(|(number, count)| Some((uid(number)?, count)))
            .collect()
    }

    /// The values of a tag key among the series of a metric, ascending, and how many series have them.
    pub fn tag_values(&self, metric: MetricNumber, tagk: TagkUid) -> Vec<(TagvUid, u64)> {
        let tagk = tagk.uid().number();
        let segments = self.segments(metric);
        let counts = sums(segments.iter().flat_map(|segment| segment.tag_values(tagk)));
        let uid = |number| TagvUid::from_bytes(uid_bytes(&u64::to_be_bytes(number), self.widths.tagv)).ok();
        let counts = counts.into_iter();
        counts
            .filter_map(|(number, count)| Some((uid(number)?, count)))
            .collect()
    }

    /// Drops the indexes that no query has used since the last call, and returns their number. The next query of such a metric
    /// builds its index anew.
    pub fn drop_unused_indexes(&self) -> usize {
        let metrics = self.known.read().metrics.len();
        let mut dropped = 0;
        for number in 0..metrics {
            let index = Arc::clone(&self.known.read().metrics[number].index);
            // An index that is being built is used.
            let Some(mut index) = index.try_lock() else {
                continue;
            };
            if std::mem::take(&mut index.is_used) || index.segments.is_empty() {
                continue;
            }
            let bytes = index.byte_len();
            *index = MetricIndex::default();
            self.index_bytes.fetch_sub(bytes, Ordering::Relaxed);
            dropped += 1;
        }
        dropped
    }

    fn segments(&self, metric: MetricNumber) -> Vec<Arc<Segment>> {
        self.with_index(metric, |index| index.segments.clone())
    }

    /// Calls `read` with the complete index of a metric, which is empty for an unknown metric.
    fn with_index<T>(&self, metric: MetricNumber, read: impl FnOnce(&mut MetricIndex) -> T) -> T {
        let index = {
            let known = self.known.read();
            let metric = known.metrics.get(metric.0 as usize);
            metric.map(|metric| (Arc::clone(&metric.index), metric.series.len()))
        };
        let Some((index, end)) = index else {
            return read(&mut MetricIndex::default());
        };
        let mut index = index.lock();
        index.is_used = true;
        let before = index.byte_len();
        let first_new = index.segments.len();
        let mut len = index.len();
        while len < end {
            let leaf = self.segment(metric, len, end.min(len + LEAF_SERIES));
            len += leaf.len();
            index.segments.push(Arc::new(leaf));
        }
        if index.segments.len() > first_new {
            index.merge(first_new);
        }
        let result = read(&mut index);
        // The difference may be negative; the sum wraps and is right.
        let grown = index.byte_len().wrapping_sub(before);
        self.index_bytes.fetch_add(grown, Ordering::Relaxed);
        result
    }

    /// The index of a metric's series from one index to another.
    fn segment(&self, metric: MetricNumber, start: usize, end: usize) -> Segment {
        let mut builder = SegmentBuilder::new(self.widths);
        let mut key = Vec::new();
        while start + builder.len() < end {
            let known = self.known.read();
            let from = start + builder.len();
            for series in &known.metrics[metric.0 as usize].series[from..end.min(from + LOCKED_KEYS)] {
                known.keys.read(*series, &mut key);
                builder.push(*series, &key);
            }
        }
        builder.finish()
    }

    /// Inserts the first `len` series of a metric that are not in `by_key`.
    fn insert_by_key(&self, metric: MetricNumber, by_key: &[SeriesNumber], len: usize) -> Vec<SeriesNumber> {
        let mut all = Vec::with_capacity(len);
        let mut rest = by_key;
        let (mut key, mut other) = (Vec::new(), Vec::new());
        for new in self.segment(metric, by_key.len(), len).key_order() {
            let at = {
                let known = self.known.read();
                known.keys.read(new, &mut key);
                rest.partition_point(|series| known.keys.read(*series, &mut other) && other < key)
            };
            let (before, behind) = rest.split_at(at);
            all.extend_from_slice(before);
            all.push(new);
            rest = behind;
        }
        all.extend_from_slice(rest);
        all
    }
}

/// The sums of counts, ascending by UID.
fn sums(counts: impl Iterator<Item = (u64, u32)>) -> Vec<(u64, u64)> {
    let mut counts: Vec<(u64, u64)> = counts.map(|(uid, count)| (uid, count.into())).collect();
    // The sort is fast on runs that are sorted.
    counts.sort();
    counts.dedup_by(|next, sum| {
        let is_same = next.0 == sum.0;
        sum.1 += if is_same { next.1 } else { 0 };
        is_same
    });
    counts
}

#[cfg(test)]
mod tests;
