//! Series by their names, and the names of series.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_schema::tsuid::TsuidError;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Tsuid, Uid, UidKind};

use crate::lookup::SeriesNames;
use crate::uids::{Uids, UidsError};

/// Why a series cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// A name without a UID.
    #[error("no such name for '{kind}': '{name}'")]
    UnknownName {
        /// Metric, tag key or tag value.
        kind: UidKind,
        /// The name, as requested.
        name: String,
    },
    /// A UID without a name.
    #[error("no such unique ID for '{kind}': {uid}")]
    UidWithoutName {
        /// Metric, tag key or tag value.
        kind: UidKind,
        /// The UID, which is part of the TSUID.
        uid: Uid,
    },
    /// Tags that no series has.
    #[error(transparent)]
    Tsuid(#[from] TsuidError),
    /// The UID service failed.
    #[error(transparent)]
    Uids(#[from] UidsError),
}

/// The TSUID of a series.
///
/// # Errors
///
/// See [`SeriesError`].
pub async fn to_tsuid(
    uids: &Uids,
    metric: &str,
    tags: &[(&str, &str)],
    deadline: Option<Instant>,
) -> Result<Tsuid, SeriesError> {
    let pairs = tags.iter();
    let pairs = pairs.flat_map(|(key, value)| [(UidKind::Tagk, *key), (UidKind::Tagv, *value)]);
    let names: Vec<(UidKind, &str)> = std::iter::once((UidKind::Metric, metric)).chain(pairs).collect();
    let assigned = uids.uids(&names, deadline).await?;
    let mut resolved = Vec::with_capacity(assigned.len());
    for ((kind, name), uid) in names.into_iter().zip(assigned) {
        resolved.push(uid.ok_or_else(|| SeriesError::UnknownName {
            kind,
            name: name.to_owned(),
        })?);
    }
    let Some((metric, tags)) = resolved.split_first() else {
        unreachable!("the metric is among the names");
    };
    let tags = tags.chunks_exact(2);
    let mut tags: Vec<(TagkUid, TagvUid)> = tags
        .filter_map(|pair| Some((TagkUid::new(*pair.first()?), TagvUid::new(*pair.get(1)?))))
        .collect();
    Ok(Tsuid::new(MetricUid::new(*metric), &mut tags)?)
}

/// The names of a series.
///
/// # Errors
///
/// See [`SeriesError`].
pub async fn resolve_tsuid(
    uids: &Uids,
    tsuid: &Tsuid,
    deadline: Option<Instant>,
) -> Result<SeriesNames, SeriesError> {
    let widths = *uids.widths();
    let (tagks, tagvs): (Vec<Uid>, Vec<Uid>) = tsuid
        .tags(&widths)
        .map(|(tagk, tagv)| (tagk.uid(), tagv.uid()))
        .unzip();
    let metric = names(uids, UidKind::Metric, &[tsuid.metric(&widths).uid()], deadline).await?;
    let tagks = names(uids, UidKind::Tagk, &tagks, deadline).await?;
    let tagvs = names(uids, UidKind::Tagv, &tagvs, deadline).await?;
    Ok(SeriesNames {
        metric: metric.into_iter().next().unwrap_or_default(),
        tags: tagks.into_iter().zip(tagvs).collect(),
    })
}

async fn names(
    uids: &Uids,
    kind: UidKind,
    requested: &[Uid],
    deadline: Option<Instant>,
) -> Result<Vec<Arc<str>>, SeriesError> {
    let names = uids.names(kind, requested, deadline).await?;
    let named = requested.iter().zip(names);
    named
        .map(|(uid, name)| name.ok_or(SeriesError::UidWithoutName { kind, uid: *uid }))
        .collect()
}
