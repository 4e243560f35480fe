//! Names of series that were found.

use std::sync::Arc;

use oxtsdb_query::QueryError;
use oxtsdb_schema::tsuid::TagPairs;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Uid, UidKind, UidWidths};
use rustc_hash::FxHashMap;

use super::{FoundSeries, SeriesLookup};

/// The names of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesNames {
    /// Its metric.
    pub metric: Arc<str>,
    /// Its tags, in the order of the TSUID.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

impl SeriesNames {
    /// The names of a series; `None` if one of its UIDs has no name.
    pub(crate) fn from_tsuid(tsuid: &[u8], widths: &UidWidths, names: &Names) -> Option<Self> {
        let (metric, tags) = uids(tsuid, widths)?;
        let name = |kind, uid| names.get(&(kind, uid)).cloned();
        let pair = |(tagk, tagv): (TagkUid, TagvUid)| {
            Some((name(UidKind::Tagk, tagk.uid())?, name(UidKind::Tagv, tagv.uid())?))
        };
        Some(Self {
            metric: name(UidKind::Metric, metric.uid())?,
            tags: tags.map(pair).collect::<Option<_>>()?,
        })
    }

    /// Bytes of the names.
    pub(crate) fn byte_len(&self) -> usize {
        let tags = self.tags.iter().map(|(key, value)| key.len() + value.len());
        self.metric.len() + tags.sum::<usize>()
    }
}

/// UIDs by kind, in the order of [`UidKind::ALL`].
pub(crate) type UidsByKind = [Vec<Uid>; 3];

/// Names by UID.
pub type Names = FxHashMap<(UidKind, Uid), Arc<str>>;

impl SeriesLookup {
    /// Series with their names, which are looked up with one call for each kind.
    ///
    /// # Errors
    ///
    /// When names cannot be looked up. A UID without a name is no error.
    pub async fn named(&self, tsuids: Vec<Box<[u8]>>) -> Result<Vec<FoundSeries>, QueryError> {
        let widths = self.storage.layout.widths;
        let collect = move || {
            let needed = needed_uids(tsuids.iter().map(|tsuid| &**tsuid), &widths);
            (tsuids, needed)
        };
        let (tsuids, needed) = self.compute.run(collect).await?;
        let names = self.names_of(needed).await?;
        let name = move || {
            let series = tsuids.into_iter().map(|tsuid| FoundSeries {
                names: SeriesNames::from_tsuid(&tsuid, &widths, &names),
                tsuid,
            });
            series.collect()
        };
        Ok(self.compute.run(name).await?)
    }

    /// The names of UIDs, which are given in the order of [`UidKind::ALL`] and do not repeat.
    ///
    /// # Errors
    ///
    /// When names cannot be looked up.
    pub(super) async fn names_of(&self, needed: UidsByKind) -> Result<Names, QueryError> {
        let mut names = Names::default();
        for (kind, uids) in UidKind::ALL.into_iter().zip(needed) {
            if uids.is_empty() {
                continue;
            }
            let resolved = self
                .storage
                .directory
                .names(kind, &uids, self.context.deadline())
                .await?;
            let resolved = uids.into_iter().zip(resolved);
            names.extend(resolved.filter_map(|(uid, name)| Some(((kind, uid), name?))));
        }
        Ok(names)
    }
}

/// The UIDs of series, ascending.
pub fn needed_uids<'t>(tsuids: impl Iterator<Item = &'t [u8]>, widths: &UidWidths) -> UidsByKind {
    let mut needed = UidsByKind::default();
    let [metrics, tagks, tagvs] = &mut needed;
    for (metric, tags) in tsuids.filter_map(|tsuid| uids(tsuid, widths)) {
        metrics.push(metric.uid());
        for (tagk, tagv) in tags {
            tagks.push(tagk.uid());
            tagvs.push(tagv.uid());
        }
    }
    for uids in &mut needed {
        uids.sort_unstable();
        uids.dedup();
    }
    needed
}

/// The metric and the tags of a TSUID.
fn uids<'t>(tsuid: &'t [u8], widths: &UidWidths) -> Option<(MetricUid, TagPairs<'t>)> {
    let (metric, tags) = tsuid.split_at_checked(widths.metric.bytes())?;
    Some((MetricUid::from_bytes(metric).ok()?, TagPairs::new(tags, widths)))
}
