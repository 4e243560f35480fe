//! Names and UIDs: the trait through which queries resolve them, and one look-up for each direction.
//!
//! ```text
//!   names of a request ─► ResolvedNames ─► UIDs     an unknown name is an error, or its filter matches no series
//!   UIDs of a result   ─► Names         ─► names    a UID without a name is an error
//! ```

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Tsuid, Uid, UidKind, UidWidths};
use rustc_hash::FxHashMap;

use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::{NameError, QueryError};

/// Resolves names to UIDs and UIDs to names. The caller of the crate implements it.
#[async_trait]
pub trait NameDirectory: Send + Sync + std::fmt::Debug {
    /// The UIDs of names, in their order; `None` for each that has none.
    ///
    /// # Errors
    ///
    /// When the directory fails as a whole.
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError>;

    /// The names of UIDs of one kind, in their order; `None` for each that has none.
    ///
    /// # Errors
    ///
    /// When the directory fails as a whole.
    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError>;

    /// The generation of the names: returned names can be kept until it changes. `None`: they cannot be kept.
    fn generation(&self) -> Option<NameGeneration> {
        None
    }

    /// Whether some metrics are rejected ([`NameError::Refused`]), also all UIDs of metrics that have no name. If so,
    /// the metrics of TSUIDs are resolved before their points are read, also where the result has no names, and
    /// queries return no global annotations.
    fn refuses_metrics(&self) -> bool {
        false
    }
}

/// Resolves the metrics of TSUIDs, if the directory rejects some.
///
/// # Errors
///
/// [`NameError::Refused`] for the first metric that is rejected, and when the directory fails as a whole.
pub async fn check_metrics<'t>(
    tsuids: impl IntoIterator<Item = &'t Tsuid>,
    widths: &UidWidths,
    directory: &dyn NameDirectory,
    deadline: Option<Instant>,
) -> Result<(), QueryError> {
    if !directory.refuses_metrics() {
        return Ok(());
    }
    let mut metrics: Vec<Uid> = tsuids
        .into_iter()
        .map(|tsuid| tsuid.metric(widths).uid())
        .collect();
    metrics.sort_unstable();
    metrics.dedup();
    directory.names(UidKind::Metric, &metrics, deadline).await?;
    Ok(())
}

/// A generation of names: another one follows when a name may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameGeneration {
    /// Reported changes.
    pub changes: u64,
    /// Times that cached names have expired, for changes without a notification.
    pub age: u64,
}

/// UIDs by name: the UIDs of a set of names.
#[derive(Debug, Default)]
pub struct ResolvedNames<'n>(FxHashMap<(UidKind, &'n str), Uid>);

impl<'n> ResolvedNames<'n> {
    /// Resolves names with one call, or with none if there are no names. Names may occur more than once; unknown
    /// names are left out.
    ///
    /// # Errors
    ///
    /// When the directory fails as a whole.
    pub async fn resolve(
        names: impl IntoIterator<Item = (UidKind, &'n str)>,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Self, QueryError> {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(Self::default());
        }
        let uids = directory.uids(&names, deadline).await?;
        let known = names.into_iter().zip(uids);
        Ok(Self(known.filter_map(|(name, uid)| Some((name, uid?))).collect()))
    }

    /// The UID of a name that was resolved; `None` if it has none.
    pub fn find(&self, kind: UidKind, name: &str) -> Option<Uid> {
        self.0.get(&(kind, name)).copied()
    }

    /// The UID of a name that was resolved.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`] if it has none.
    pub fn uid(&self, kind: UidKind, name: &str) -> Result<Uid, QueryError> {
        self.find(kind, name).ok_or_else(|| QueryError::UnknownName {
            kind,
            name: name.to_owned(),
        })
    }
}

/// The UIDs of a series: its metric, and its tags in the order given.
///
/// # Errors
///
/// [`QueryError::UnknownName`] for the first unknown name, and when the directory fails as a whole.
pub async fn uids_of_series(
    metric: &str,
    tags: &[(&str, &str)],
    directory: &dyn NameDirectory,
    deadline: Option<Instant>,
) -> Result<(MetricUid, Vec<(TagkUid, TagvUid)>), QueryError> {
    let of_tags = tags
        .iter()
        .flat_map(|(tagk, tagv)| [(UidKind::Tagk, *tagk), (UidKind::Tagv, *tagv)]);
    let names = [(UidKind::Metric, metric)].into_iter().chain(of_tags);
    let names = ResolvedNames::resolve(names, directory, deadline).await?;
    let metric = MetricUid::new(names.uid(UidKind::Metric, metric)?);
    let pair = |(tagk, tagv): &(&str, &str)| {
        let tagk = TagkUid::new(names.uid(UidKind::Tagk, tagk)?);
        Ok((tagk, TagvUid::new(names.uid(UidKind::Tagv, tagv)?)))
    };
    Ok((metric, tags.iter().map(pair).collect::<Result<_, QueryError>>()?))
}

/// UIDs of one look-up; other tasks run between two look-ups.
const CHUNK: usize = 4096;

/// Memory of a name beside its text: the entry of the table, which is up to half empty, and the counters of its `Arc`.
const NAME_BYTES: u64 = 112;

/// Names by UID: the names of the UIDs of a result. A query holds their memory.
#[derive(Debug)]
pub(crate) struct Names {
    names: FxHashMap<(UidKind, Uid), Arc<str>>,
    _held: Held,
}

impl Names {
    /// Resolves UIDs by kind, in the order of [`UidKind::ALL`]. UIDs may occur more than once.
    pub(crate) async fn resolve(
        needed: [Vec<Uid>; 3],
        directory: &dyn NameDirectory,
        context: &QueryContext,
    ) -> Result<Self, QueryError> {
        let mut names = FxHashMap::default();
        let mut held = context.budget().hold(0)?;
        for (kind, mut uids) in UidKind::ALL.into_iter().zip(needed) {
            uids.sort_unstable();
            uids.dedup();
            for uids in uids.chunks(CHUNK) {
                held.grow(uids.len() as u64 * NAME_BYTES)?;
                let resolved = directory.names(kind, uids, context.deadline()).await?;
                let mut bytes = 0;
                for (uid, name) in uids.iter().zip(resolved) {
                    let name = name.ok_or(QueryError::UidWithoutName { kind, uid: *uid })?;
                    bytes += name.len() as u64;
                    names.insert((kind, *uid), name);
                }
                held.grow(bytes)?;
                tokio::task::consume_budget().await;
            }
        }
        Ok(Self { names, _held: held })
    }

    /// The name of a UID that was resolved.
    pub(crate) fn name(&self, kind: UidKind, uid: Uid) -> Result<Arc<str>, QueryError> {
        self.names
            .get(&(kind, uid))
            .map(Arc::clone)
            .ok_or(QueryError::UidWithoutName { kind, uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::budget::Budget;
    use crate::context::limits::Limits;
    use crate::context::resource::{Limit, Resource};
    use crate::testing::NumberedNames;

    fn uids(count: u64) -> [Vec<Uid>; 3] {
        let width = oxtsdb_schema::UidWidth::DEFAULT;
        let uids = (10_000..10_000 + count).map(|number| Uid::from_number(number, width).unwrap());
        [Vec::new(), Vec::new(), uids.collect()]
    }

    #[tokio::test]
    async fn memory_of_names_is_charged() {
        // Names of UIDs from 10,000 on have 6 bytes.
        let bytes = NAME_BYTES + 6;
        let budget = Budget::from_limits(Limits {
            memory: Limit::from_setting("--query-max-memory-mib", 15_000 * bytes),
            ..Limits::NONE
        });
        let context = QueryContext::unregistered(budget.clone());
        let directory = NumberedNames::default();
        let names = Names::resolve(uids(10_000), &directory, &context).await.unwrap();
        assert_eq!(budget.usage().get(Resource::Memory), 10_000 * bytes);
        let calls = directory.take_requested();
        assert_eq!(calls.concat().len(), 10_000);
        assert!(
            calls.iter().all(|uids| uids.len() <= CHUNK),
            "other tasks run between look-ups"
        );
        drop(names);
        assert_eq!(budget.usage().get(Resource::Memory), 0);
        let error = Names::resolve(uids(20_000), &directory, &context)
            .await
            .unwrap_err();
        assert!(matches!(error, QueryError::OverBudget { .. }), "{error}");
        assert_eq!(budget.usage().get(Resource::Memory), 0);
    }
}
