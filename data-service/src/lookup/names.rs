//! Names of series that were found.

use std::sync::Arc;

use oxtsdb_query::QueryError;
use oxtsdb_schema::tsuid::TagPairs;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Uid, UidKind, UidWidths};
use rustc_hash::FxHashMap;

use super::{FoundSeries, SeriesLookup};

/// The names of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesNames {
    /// Its metric.
    pub(crate) metric: Arc<str>,
    /// Its tags, in the order of the TSUID.
    pub(crate) tags: Vec<(Arc<str>, Arc<str>)>,
}

impl SeriesNames {
    /// Bytes of the names.
    pub(crate) fn byte_len(&self) -> usize {
        let tags = self.tags.iter().map(|(key, value)| key.len() + value.len());
        self.metric.len() + tags.sum::<usize>()
    }
}

type Names = FxHashMap<(UidKind, Uid), Arc<str>>;

impl SeriesLookup {
    /// Series with their names, which are looked up with one call for each kind.
    ///
    /// # Errors
    ///
    /// When names cannot be looked up. A UID without a name is no error.
    pub(crate) async fn named(&self, tsuids: Vec<Box<[u8]>>) -> Result<Vec<FoundSeries>, QueryError> {
        let widths = self.storage.layout.widths;
        let mut needed: [Vec<Uid>; 3] = Default::default();
        for (metric, tags) in tsuids.iter().filter_map(|tsuid| uids(tsuid, &widths)) {
            needed[0].push(metric.uid());
            for (tagk, tagv) in tags {
                needed[1].push(tagk.uid());
                needed[2].push(tagv.uid());
            }
        }
        let names = self.names_of(needed).await?;
        let series = tsuids.into_iter().map(|tsuid| FoundSeries {
            names: uids(&tsuid, &widths).and_then(|(metric, tags)| series_names(metric, tags, &names)),
            tsuid,
        });
        Ok(series.collect())
    }

    /// The names of UIDs, which are given in the order of [`UidKind::ALL`] and may repeat.
    ///
    /// # Errors
    ///
    /// When names cannot be looked up.
    pub(super) async fn names_of(&self, needed: [Vec<Uid>; 3]) -> Result<Names, QueryError> {
        let mut names = Names::default();
        for (kind, mut uids) in UidKind::ALL.into_iter().zip(needed) {
            uids.sort_unstable();
            uids.dedup();
            if uids.is_empty() {
                continue;
            }
            let found = self
                .storage
                .directory
                .names(kind, &uids, self.context.deadline())
                .await?;
            let found = uids.into_iter().zip(found);
            names.extend(found.filter_map(|(uid, name)| Some(((kind, uid), name?))));
        }
        Ok(names)
    }
}

/// The metric and the tags of a TSUID.
fn uids<'t>(tsuid: &'t [u8], widths: &UidWidths) -> Option<(MetricUid, TagPairs<'t>)> {
    let (metric, tags) = tsuid.split_at_checked(widths.metric.bytes())?;
    Some((MetricUid::from_bytes(metric).ok()?, TagPairs::new(tags, widths)))
}

/// The names of a series, unless one is missing.
fn series_names(metric: MetricUid, tags: TagPairs<'_>, names: &Names) -> Option<SeriesNames> {
    let name = |kind, uid| names.get(&(kind, uid)).cloned();
    let pair = |(tagk, tagv): (TagkUid, TagvUid)| {
        Some((name(UidKind::Tagk, tagk.uid())?, name(UidKind::Tagv, tagv.uid())?))
    };
    Some(SeriesNames {
        metric: name(UidKind::Metric, metric.uid())?,
        tags: tags.map(pair).collect::<Option<_>>()?,
    })
}
