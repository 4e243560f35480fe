//! Assigns new names as far as the policy allows.

use std::collections::HashMap;
use std::sync::Arc;

use oxtsdb_schema::AssignedUid;

use super::Policy;
use super::quota::Quotas;
use crate::assign::{Assigner, Outcome, Purpose};
use crate::error::UidServiceError;
use crate::table::KindName;

/// A name without a UID, and the tag key that a tag value is assigned for.
pub(crate) type NewName = (KindName, Option<String>);

/// Returns the UIDs of names, in their order: assigned, if rules and quotas allow it. An explicit assignment is
/// counted and never rejected.
///
/// Names that were counted are assigned and counted to the end even if this future is dropped.
pub(crate) async fn assign(
    assigner: &Assigner,
    quotas: &Quotas,
    policy: &Arc<Policy>,
    names: Vec<NewName>,
    purpose: Purpose,
) -> Vec<Outcome> {
    let mut distinct: Vec<NewName> = Vec::with_capacity(names.len());
    let mut places: HashMap<KindName, usize> = HashMap::new();
    let mut sources = Vec::with_capacity(names.len());
    for (key, tag_key) in names {
        if purpose == Purpose::Write
            && let Err(denied) = policy.check(key.0, &key.1, tag_key.as_deref())
        {
            let (kind, name) = key;
            sources.push(Err(UidServiceError::AssignmentRejected {
                kind,
                name,
                tag_key,
                rule: denied.rule,
            }));
            continue;
        }
        let next = distinct.len();
        let place = *places.entry(key.clone()).or_insert(next);
        if place == next {
            distinct.push((key, tag_key));
        }
        // Only the first of equal names was created by this request.
        sources.push(Ok((place, place == next)));
    }
    let outcomes = if distinct.is_empty() {
        Vec::new()
    } else if policy.quotas().is_empty() {
        assigner.assign(only_names(distinct)).await
    } else {
        let count = distinct.len();
        let (assigner, quotas, policy) = (assigner.clone(), quotas.clone(), Arc::clone(policy));
        let counted = async move { assign_counted(&assigner, &quotas, &policy, distinct, purpose).await };
        let interrupted = |_| vec![Err(UidServiceError::Interrupted); count];
        tokio::spawn(counted).await.unwrap_or_else(interrupted)
    };
    let outcome = |source: Result<(usize, bool), UidServiceError>| {
        let (place, first) = source?;
        let outcome = outcomes.get(place).cloned();
        outcome
            .unwrap_or(Err(UidServiceError::Interrupted))
            .map(|assigned| AssignedUid {
                created: assigned.created && first,
                ..assigned
            })
    };
    sources.into_iter().map(outcome).collect()
}

async fn assign_counted(
    assigner: &Assigner,
    quotas: &Quotas,
    policy: &Arc<Policy>,
    names: Vec<NewName>,
    purpose: Purpose,
) -> Vec<Outcome> {
    let scopes = names.iter().map(|((kind, _), tag_key)| (*kind, tag_key.clone()));
    let reserved = quotas
        .reserve(policy, scopes.collect(), purpose == Purpose::Write)
        .await;
    let (rejections, reserved) = match reserved {
        Ok(reserved) => reserved,
        Err(error) => return vec![Err(error.into()); names.len()],
    };
    let admitted: Vec<KindName> = only_names(names)
        .into_iter()
        .zip(&rejections)
        .filter(|(_, rejection)| rejection.is_none())
        .map(|(name, _)| name)
        .collect();
    let assigned = if admitted.is_empty() {
        Vec::new()
    } else {
        assigner.assign(admitted.clone()).await
    };
    quotas.settle(reserved, &admitted, &assigned).await;
    let mut assigned = assigned.into_iter();
    let outcome = |rejection: Option<UidServiceError>| match rejection {
        Some(error) => Err(error),
        None => assigned.next().unwrap_or(Err(UidServiceError::Interrupted)),
    };
    rejections.into_iter().map(outcome).collect()
}

/// The names without their tag keys.
pub(crate) fn only_names(names: Vec<NewName>) -> Vec<KindName> {
    names.into_iter().map(|(name, _)| name).collect()
}
