//! The census of series: how many there are, by metric and by tag key, and how many values each key has.
//!
//! Exact, in bounded memory: series arrive ascending by TSUID, so a metric is complete when the next one begins,
//! and of metrics only the largest are kept. The values of a key are a compressed bitmap of tagv UIDs, which are
//! small consecutive numbers: 16 million values take 2 MiB. Its memory is charged to the query.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use oxtsdb_query::{Held, QueryError};
use oxtsdb_schema::tsuid::TagPairs;
use oxtsdb_schema::{MetricUid, TagkUid, Uid, UidKind, UidWidths};
use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;

use super::extent::Extent;
use super::{LookupQuery, SeriesLookup};

/// Memory of a tag key beside its values, in bytes; an estimate.
const KEY_BYTES: u64 = 256;

/// Memory of a value that may begin a container of a bitmap, in bytes; an upper bound.
const VALUE_BYTES: u64 = 64;

/// Memory that new values may take before the bitmaps are measured.
const UNMEASURED_BYTES: u64 = 4 << 20;

/// The order of tag keys, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// By their number of values.
    Values,
    /// By the number of series that have them.
    Series,
}

/// A metric and its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSeries {
    /// The UID of the metric.
    pub uid: MetricUid,
    /// `None` if the UID has no name.
    pub name: Option<String>,
    /// Matching series of the metric.
    pub series: u64,
}

/// A tag key and its series and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagKeySeries {
    /// The UID of the key.
    pub uid: TagkUid,
    /// `None` if the UID has no name.
    pub name: Option<String>,
    /// Matching series that have the key.
    pub series: u64,
    /// Distinct values of the key in these series.
    pub values: u64,
}

/// The results of a census beside the number of series.
#[derive(Clone, Copy, Debug)]
pub struct CensusRequest {
    /// Metrics at most; 0: none.
    pub metrics: usize,
    /// Tag keys at most; 0: tag keys are not counted.
    pub tag_keys: usize,
    /// The order that decides which tag keys are returned.
    pub order: KeyOrder,
}

/// The numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// All matching series.
    pub series: u64,
    /// Metrics that have matching series, also if `metrics` leaves them out.
    pub metric_count: u64,
    /// Those with the most series.
    pub metrics: Vec<MetricSeries>,
    /// Tag keys of matching series, also if `tag_keys` leaves them out; 0 if none were requested.
    pub tag_key_count: u64,
    /// The first in the requested order.
    pub tag_keys: Vec<TagKeySeries>,
}

impl SeriesLookup {
    /// Counts the series of a query.
    ///
    /// # Errors
    ///
    /// As [`SeriesLookup::batches`]; [`QueryError::OverBudget`] if the numbers take more memory than the
    /// query may hold.
    pub async fn census(&self, query: &LookupQuery, request: CensusRequest) -> Result<Census, QueryError> {
        let mut batches = self.batches(query, &[], Extent::All).await?;
        let held = self.context.budget().hold(0)?;
        let mut counter = Counter::new(self.storage.layout.widths, request, held);
        while let Some(batch) = batches.next().await? {
            let counted = self.compute.run(move || {
                let counted = batch.iter().try_for_each(|tsuid| counter.add(tsuid));
                (counter, counted)
            });
            let (counting, counted) = counted.await?;
            counted?;
            counter = counting;
        }
        let mut census = counter.finish();
        let needed = [
            census.metrics.iter().map(|metric| metric.uid.uid()).collect(),
            census.tag_keys.iter().map(|key| key.uid.uid()).collect(),
            Vec::new(),
        ];
        let names = self.context.run(self.names_of(needed)).await?;
        let name = |kind, uid: Uid| names.get(&(kind, uid)).map(ToString::to_string);
        for metric in &mut census.metrics {
            metric.name = name(UidKind::Metric, metric.uid.uid());
        }
        for key in &mut census.tag_keys {
            key.name = name(UidKind::Tagk, key.uid.uid());
        }
        Ok(census)
    }
}

/// Counts series, which come ascending by TSUID.
struct Counter {
    widths: UidWidths,
    request: CensusRequest,
    series: u64,
    metric_count: u64,
    /// The metric of the last series, and its series so far.
    current: Option<(MetricUid, u64)>,
    /// The largest metrics, the smallest of them last.
    largest: BTreeSet<(Reverse<u64>, MetricUid)>,
    keys: FxHashMap<TagkUid, Key>,
    held: Held,
    /// The most bytes by which `keys` has grown since it was measured.
    unmeasured: u64,
}

#[derive(Default)]
struct Key {
    series: u64,
    values: RoaringTreemap,
}

impl Counter {
    fn new(widths: UidWidths, request: CensusRequest, held: Held) -> Self {
        Self {
            widths,
            request,
            series: 0,
            metric_count: 0,
            current: None,
            largest: BTreeSet::new(),
            keys: FxHashMap::default(),
            held,
            unmeasured: 0,
        }
    }

    fn add(&mut self, tsuid: &[u8]) -> Result<(), QueryError> {
        let (metric, tags) = tsuid.split_at(self.widths.metric.bytes().min(tsuid.len()));
        let Ok(metric) = MetricUid::from_bytes(metric) else {
            return Ok(());
        };
        self.series += 1;
        match &mut self.current {
            Some((current, series)) if *current == metric => *series += 1,
            _ => {
                self.end_metric();
                self.current = Some((metric, 1));
            }
        }
        if self.request.tag_keys == 0 {
            return Ok(());
        }
        for (tagk, tagv) in TagPairs::new(tags, &self.widths) {
            let key = self.keys.entry(tagk).or_default();
            if key.series == 0 {
                self.unmeasured += KEY_BYTES;
            }
            key.series += 1;
            if key.values.insert(tagv.uid().number()) {
                self.unmeasured += VALUE_BYTES;
            }
        }
        if self.unmeasured >= UNMEASURED_BYTES {
            self.measure()?;
        }
        Ok(())
    }

    /// Holds what the keys take, and what they may grow by until the next time.
    fn measure(&mut self) -> Result<(), QueryError> {
        let values = self.keys.values().map(|key| key.values.serialized_size() as u64);
        let bytes = values.sum::<u64>() + self.keys.len() as u64 * KEY_BYTES + UNMEASURED_BYTES;
        self.unmeasured = 0;
        match bytes.checked_sub(self.held.bytes()) {
            Some(more) => self.held.grow(more),
            None => {
                self.held.shrink_to(bytes);
                Ok(())
            }
        }
    }

    fn end_metric(&mut self) {
        let Some((metric, series)) = self.current.take() else {
            return;
        };
        self.metric_count += 1;
        self.largest.insert((Reverse(series), metric));
        if self.largest.len() > self.request.metrics {
            self.largest.pop_last();
        }
    }

    fn finish(mut self) -> Census {
        self.end_metric();
        let largest = self.largest.iter();
        let metrics = largest.map(|(Reverse(series), uid)| MetricSeries {
            uid: *uid,
            name: None,
            series: *series,
        });
        let keys = self.keys.iter();
        let mut tag_keys: Vec<TagKeySeries> = keys
            .map(|(uid, key)| TagKeySeries {
                uid: *uid,
                name: None,
                series: key.series,
                values: key.values.len(),
            })
            .collect();
        let order = self.request.order;
        tag_keys.sort_unstable_by_key(|key| match order {
            KeyOrder::Values => (Reverse((key.values, key.series)), key.uid),
            KeyOrder::Series => (Reverse((key.series, key.values)), key.uid),
        });
        let tag_key_count = tag_keys.len() as u64;
        tag_keys.truncate(self.request.tag_keys);
        Census {
            series: self.series,
            metric_count: self.metric_count,
            metrics: metrics.collect(),
            tag_key_count,
            tag_keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_query::{Budget, Limits};

    use super::*;

    fn census(series: &[&[u8]], request: CensusRequest) -> Census {
        let held = Budget::from_limits(Limits::NONE).hold(0).unwrap();
        let mut counter = Counter::new(UidWidths::default(), request, held);
        for numbers in series {
            let tsuid: Vec<u8> = numbers.iter().flat_map(|number| [0, 0, *number]).collect();
            counter.add(&tsuid).unwrap();
        }
        counter.finish()
    }

    fn request(metrics: usize, tag_keys: usize, order: KeyOrder) -> CensusRequest {
        CensusRequest {
            metrics,
            tag_keys,
            order,
        }
    }

    const SERIES: &[&[u8]] = &[
        &[1, 1, 1],
        &[1, 1, 2, 2, 7],
        &[1, 1, 3],
        &[2, 2, 7],
        &[3, 2, 8],
        &[3, 2, 7],
    ];

    #[test]
    fn counts_metrics_keys_and_distinct_values() {
        let census = census(SERIES, request(2, 9, KeyOrder::Values));
        assert_eq!(
            (census.series, census.metric_count, census.tag_key_count),
            (6, 3, 2)
        );
        let metrics = census.metrics.iter();
        let metrics: Vec<_> = metrics
            .map(|metric| (metric.uid.uid().number(), metric.series))
            .collect();
        assert_eq!(metrics, [(1, 3), (3, 2)]);
        let keys = census.tag_keys.iter();
        let keys: Vec<_> = keys
            .map(|key| (key.uid.uid().number(), key.series, key.values))
            .collect();
        assert_eq!(keys, [(1, 3, 3), (2, 4, 2)]);
    }

    #[test]
    fn returns_the_first_keys_in_the_requested_order() {
        let census = census(SERIES, request(0, 1, KeyOrder::Series));
        assert!(census.metrics.is_empty());
        let keys: Vec<_> = census.tag_keys.iter().map(|key| key.uid.uid().number()).collect();
        assert_eq!((keys, census.tag_key_count), (vec![2], 2));
    }

    #[test]
    fn memory_of_values_is_charged() {
        let limits = Limits {
            memory: oxtsdb_query::Limit::from_setting("--query-max-memory-mib", 1 << 20),
            ..Limits::NONE
        };
        let held = Budget::from_limits(limits).hold(0).unwrap();
        let mut counter = Counter::new(UidWidths::default(), request(0, 1, KeyOrder::Values), held);
        let rejected = (0..1_u32 << 24).map(|number| {
            let [_, a, b, c] = number.to_be_bytes();
            counter.add(&[0, 0, 1, 0, 0, 1, a, b, c])
        });
        let error = rejected.into_iter().find_map(Result::err).unwrap();
        assert!(matches!(error, QueryError::OverBudget { .. }), "{error}");
    }
}
