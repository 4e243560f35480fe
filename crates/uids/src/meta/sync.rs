//! Creates missing documents of UIDs, and corrects times of creation, from the times of points.
//!
//! A UID cannot be younger than a point that uses it. A difference of less than an hour is none: the time of a point
//! is known by its row, which is an hour.
//!
//! Source: OpenTSDB 2.4, `MetaSync`.

use futures::StreamExt as _;
use oxtsdb_row_store::WriteBatch;
use oxtsdb_schema::uid_meta::{UidDocument, UidMetaAction};
use oxtsdb_schema::uid_table::meta_qualifier;

use super::{Metadata, READ_ROWS, absent, described, meta_cell};
use crate::error::UidServiceError;
use crate::table::{KindUid, NAME};

/// Documents that are written at a time where they cannot be committed together.
const CONCURRENCY: usize = 16;

/// `created` is left as it is if it is not later than the first point by more.
const TOLERANCE_SECONDS: i64 = 3600;

impl Metadata {
    /// Brings the documents of UIDs in line with the times of their first points, in seconds. With `plan_only`
    /// nothing is written.
    pub async fn sync(
        &self,
        items: &[(KindUid, i64)],
        plan_only: bool,
    ) -> Vec<Result<UidMetaAction, UidServiceError>> {
        let mut all = Vec::with_capacity(items.len());
        for items in items.chunks(READ_ROWS) {
            let keys: Vec<KindUid> = items.iter().map(|(key, _)| *key).collect();
            let actions: Vec<_> = self
                .read(&keys)
                .await
                .into_iter()
                .zip(items)
                .map(|(stored, (key, first_point))| {
                    let stored = stored?;
                    if stored.name.is_some() && stored.document.is_none() {
                        return Ok(UidMetaAction::Created);
                    }
                    let document = described(*key, stored.name, stored.document.as_deref())?.document;
                    Ok(if is_too_late(&document, *first_point) {
                        UidMetaAction::Corrected
                    } else {
                        UidMetaAction::None
                    })
                })
                .collect();
            if plan_only {
                all.extend(actions);
                continue;
            }
            let is_created = |action: &Result<UidMetaAction, _>| matches!(action, Ok(UidMetaAction::Created));
            let missing = actions.iter().zip(items).filter(|(action, _)| is_created(action));
            let missing: Vec<(KindUid, i64)> = missing.map(|(_, item)| *item).collect();
            let were_committed = self.commit(&missing).await;
            let written: Vec<_> = actions
                .into_iter()
                .zip(items)
                .map(|(action, item)| {
                    let (metadata, item) = (self.clone(), *item);
                    async move {
                        match action? {
                            UidMetaAction::Created if were_committed => Ok(UidMetaAction::Created),
                            UidMetaAction::None => Ok(UidMetaAction::None),
                            UidMetaAction::Created | UidMetaAction::Corrected => {
                                metadata.sync_one(item).await
                            }
                        }
                    }
                })
                .collect();
            let mut written = futures::stream::iter(written).buffered(CONCURRENCY);
            while let Some(outcome) = written.next().await {
                all.push(outcome);
            }
        }
        all
    }

    /// Creates documents in one commit; `false` if that is not possible.
    async fn commit(&self, missing: &[(KindUid, i64)]) -> bool {
        let Some(commit) = self.table.store().atomic().filter(|_| !missing.is_empty()) else {
            return false;
        };
        let mut batch = WriteBatch::new(self.table.name().clone());
        let family = batch.family(NAME);
        let mut conditions = Vec::with_capacity(missing.len());
        for (key, first_point) in missing {
            let document = UidDocument::new(key.0, *first_point).encode();
            batch
                .row(key.1.as_bytes())
                .put(family, meta_qualifier(key.0), &document);
            conditions.push(absent(*key));
        }
        // After a failure each document is written by itself, and fails by itself.
        commit.commit_if(&conditions, batch).await.unwrap_or(false)
    }

    /// Creates or corrects one document, whatever it is by now.
    async fn sync_one(&self, (key, first_point): (KindUid, i64)) -> Result<UidMetaAction, UidServiceError> {
        let new = UidDocument::new(key.0, first_point).encode();
        if self.table.check_and_put(meta_cell(key), None, &new).await? {
            return Ok(UidMetaAction::Created);
        }
        let correct = |document: &mut UidDocument| {
            if is_too_late(document, first_point) {
                document.created_seconds = first_point;
            }
        };
        self.update(key, None, correct)
            .await
            .map(|_| UidMetaAction::Corrected)
    }
}

fn is_too_late(document: &UidDocument, first_point: i64) -> bool {
    document.created_seconds == 0 || document.created_seconds > first_point.saturating_add(TOLERANCE_SECONDS)
}
