//! Inputs of rules: a series' names, and custom fields of their metadata.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_schema::tree::RuleType;
use oxtsdb_schema::{Tsuid, Uid, UidKind};

use super::enabled::ReadyTree;
use super::error::TreeError;
use super::evaluate::{SeriesFacts, Subject};
use super::{NAMES_TIMEOUT, Trees};
use crate::uids::UidsError;

/// Documents of metadata that are requested at a time; each may have a megabyte.
const DOCUMENTS: usize = 64;

/// Custom fields of the metadata of UIDs.
#[async_trait]
pub trait CustomFields: Send + Sync + std::fmt::Debug {
    /// The custom fields of UIDs of one kind, in their order; `None` for a UID without any.
    ///
    /// # Errors
    ///
    /// If the UID service fails.
    async fn custom_fields(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<BTreeMap<String, String>>>, UidsError>;
}

/// A UID of a series that has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} UID {uid} has no name")]
pub struct NoName {
    pub kind: UidKind,
    pub uid: Uid,
}

/// The custom fields that rules use, by kind of UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NeededFields([BTreeSet<String>; 3]);

impl NeededFields {
    /// The inputs that the rules of trees use.
    pub(super) fn from_trees<'a>(trees: impl IntoIterator<Item = &'a Arc<ReadyTree>>) -> Self {
        let mut needed = Self::default();
        for tree in trees {
            for (rule_type, field) in tree.rules.custom_fields() {
                let kind = match rule_type {
                    RuleType::MetricCustom => UidKind::Metric,
                    RuleType::TagkCustom => UidKind::Tagk,
                    RuleType::TagvCustom => UidKind::Tagv,
                    RuleType::Metric | RuleType::Tagk => continue,
                };
                needed.fields_mut(kind).insert(field.to_owned());
            }
        }
        needed
    }

    fn fields(&self, kind: UidKind) -> &BTreeSet<String> {
        let [metric, tagk, tagv] = &self.0;
        match kind {
            UidKind::Metric => metric,
            UidKind::Tagk => tagk,
            UidKind::Tagv => tagv,
        }
    }

    fn fields_mut(&mut self, kind: UidKind) -> &mut BTreeSet<String> {
        let [metric, tagk, tagv] = &mut self.0;
        match kind {
            UidKind::Metric => metric,
            UidKind::Tagk => tagk,
            UidKind::Tagv => tagv,
        }
    }
}

/// The names of one kind.
type Subjects = HashMap<Uid, Option<Subject>>;

impl Trees {
    /// The facts of series, in their order.
    pub(super) async fn facts(
        &self,
        series: &[Tsuid],
        needed: &NeededFields,
    ) -> Result<Vec<Result<SeriesFacts, NoName>>, TreeError> {
        let widths = *self.0.uids.widths();
        let mut subjects: [Subjects; 3] = Default::default();
        let [metrics, tagks, tagvs] = &mut subjects;
        for tsuid in series {
            metrics.insert(tsuid.metric(&widths).into(), None);
            for (tagk, tagv) in tsuid.tags(&widths) {
                tagks.insert(tagk.into(), None);
                tagvs.insert(tagv.into(), None);
            }
        }
        for (kind, subjects) in UidKind::ALL.into_iter().zip(&mut subjects) {
            self.load(kind, needed.fields(kind), subjects).await?;
        }
        let [metrics, tagks, tagvs] = &subjects;
        let get = |kind, subjects: &Subjects, uid: Uid| {
            let known = subjects.get(&uid).cloned().flatten();
            known.ok_or(NoName { kind, uid })
        };
        let facts = series.iter().map(|tsuid| {
            let tag = |(tagk, tagv): (_, _)| {
                let tagk = get(UidKind::Tagk, tagks, Uid::from(tagk))?;
                Ok((tagk, get(UidKind::Tagv, tagvs, Uid::from(tagv))?))
            };
            Ok(SeriesFacts {
                tsuid: tsuid.clone(),
                metric: get(UidKind::Metric, metrics, tsuid.metric(&widths).into())?,
                tags: tsuid.tags(&widths).map(tag).collect::<Result<_, _>>()?,
            })
        });
        Ok(facts.collect())
    }

    async fn load(
        &self,
        kind: UidKind,
        needed: &BTreeSet<String>,
        subjects: &mut Subjects,
    ) -> Result<(), TreeError> {
        let uids: Vec<Uid> = subjects.keys().copied().collect();
        let deadline = Some(Instant::now() + NAMES_TIMEOUT);
        let names = self.0.uids.names(kind, &uids, deadline).await?;
        let mut custom = Vec::with_capacity(uids.len());
        if let Some(source) = self.0.custom_fields.as_ref().filter(|_| !needed.is_empty()) {
            for uids in uids.chunks(DOCUMENTS) {
                for fields in source.custom_fields(kind, uids, deadline).await? {
                    custom.push(fields.map(|mut fields| {
                        fields.retain(|field, _| needed.contains(field));
                        Arc::new(fields)
                    }));
                }
            }
        }
        custom.resize(uids.len(), None);
        for ((uid, name), custom) in uids.into_iter().zip(names).zip(custom) {
            subjects.insert(uid, name.map(|name| Subject { name, custom }));
        }
        Ok(())
    }
}
