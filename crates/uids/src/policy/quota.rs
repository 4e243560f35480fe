//! Counts the names of each quota, in table `tsdb-uid-state`.
//!
//! ```text
//!   row                                     qualifier   value
//!   q | kind (1) | tag key                  n           names, a counter
//!                                           t           when they were counted last, ms (8)
//!   Q | length (2) | tag key | UID          v           the tag value that was assigned for this tag key
//! ```
//!
//! A request increments the counters by the names that it is about to assign, and gives back what it does not use:
//! names over the limit, names that another request assigned first, and names that failed. Concurrent requests
//! therefore never exceed a limit; near it, one may be rejected because of a reservation that another one is about
//! to give back. A crash, or a lost response of the store, leaves a counter too high by the names of one request.
//! Counting again corrects it.
//!
//! Table `tsdb-uid` does not record for which tag key a value was assigned, so rows `Q` do, for the tag keys with a
//! quota. A quota of a tag key thus counts the values that are assigned after it was set.
//!
//! A quota takes effect when its names have been counted once, which the service does in the background. A count
//! while names are being assigned is wrong by the names in flight: those that the scan missed are not counted, those
//! that it found may count twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt as _;
use oxtsdb_row_store::{CellAddress, ColumnSelection, Condition, RowStore, Scan, StoreError, WriteBatch};
use oxtsdb_schema::{Uid, UidKind};
use parking_lot::Mutex;
use tracing::{info, warn};

use super::{Policy, Scope};
use crate::assign::Outcome;
use crate::error::UidServiceError;
use crate::state::{STATE_FAMILY, StateTable};
use crate::table::{FIRST_NAME_ROW, ID, KindName, UidTable, column, is_uncertain};

const COUNTER_PREFIX: u8 = b'q';
const VALUES_PREFIX: u8 = b'Q';
const COUNT: &[u8] = b"n";
const COUNTED_AT: &[u8] = b"t";
const VALUE: &[u8] = b"v";

/// Attempts of a count to replace the counter while requests change it.
const ATTEMPTS: usize = 64;

/// The use of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The names that it counts.
    pub scope: Scope,
    /// The most names.
    pub limit: u64,
    /// The names, including those that are being assigned.
    pub used: u64,
    /// When they were counted; `None`: not yet, the quota has no effect.
    pub counted_at: Option<SystemTime>,
    /// Its place in the rules file.
    pub setting: String,
}

/// The counters. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    state: StateTable,
    table: UidTable,
    /// The scopes that were counted at least once.
    counted: Arc<Mutex<HashSet<Scope>>>,
}

/// Names that were added to the counters and are being assigned.
#[derive(Debug)]
pub(crate) struct Reserved {
    policy: Arc<Policy>,
    /// The tag key of each name.
    tag_keys: Vec<Option<String>>,
}

impl Quotas {
    pub(crate) fn new(state: StateTable, table: UidTable) -> Self {
        Self {
            state,
            table,
            counted: Arc::default(),
        }
    }

    /// Adds new names to the counters. Returns the error of each name that a quota rejects, and the reservation of
    /// the others, which the caller must [`Quotas::settle`]. Without `enforce`, rejects none.
    ///
    /// # Errors
    ///
    /// The store fails; the counters may then be too high.
    pub(crate) async fn reserve(
        &self,
        policy: &Arc<Policy>,
        names: Vec<(UidKind, Option<String>)>,
        enforce: bool,
    ) -> Result<(Vec<Option<UidServiceError>>, Reserved), StoreError> {
        let quotas = policy.quotas();
        let mut requested = vec![0_u64; quotas.len()];
        for (kind, tag_key) in &names {
            for (quota, _) in policy.quotas_of(*kind, tag_key.as_deref()) {
                requested[quota] += 1;
            }
        }
        let mut granted = vec![0; quotas.len()];
        for (index, quota) in quotas.iter().enumerate() {
            if requested[index] == 0 {
                continue;
            }
            let added = async {
                let enforced = enforce && self.is_counted(&quota.scope).await?;
                let used = self.add(&quota.scope, signed(requested[index])).await?;
                Ok((enforced, used))
            };
            let (enforced, used) = match added.await {
                Ok(added) => added,
                Err(error) => {
                    self.give_back(policy, &granted).await;
                    return Err(error);
                }
            };
            granted[index] = requested[index];
            let excess = used.saturating_sub(quota.limit).min(requested[index]);
            if enforced && excess > 0 {
                granted[index] -= excess;
                self.add_or_log(&quota.scope, -signed(excess)).await;
            }
        }
        let mut rejections = Vec::with_capacity(names.len());
        let mut reserved = Reserved {
            policy: Arc::clone(policy),
            tag_keys: Vec::new(),
        };
        for (kind, tag_key) in names {
            let of_name: Vec<usize> = policy
                .quotas_of(kind, tag_key.as_deref())
                .map(|(index, _)| index)
                .collect();
            if let Some(exceeded) = of_name.iter().find(|index| granted[**index] == 0) {
                let quota = &quotas[*exceeded];
                rejections.push(Some(UidServiceError::QuotaExceeded {
                    scope: quota.scope.clone(),
                    limit: quota.limit,
                    setting: quota.setting.clone(),
                }));
                continue;
            }
            of_name.iter().for_each(|index| granted[*index] -= 1);
            rejections.push(None);
            reserved.tag_keys.push(tag_key);
        }
        // A name that one quota rejects does not use its grants of other quotas.
        self.give_back(policy, &granted).await;
        Ok((rejections, reserved))
    }

    /// Gives back the reservations of names that were not assigned, and records the values of tag keys.
    pub(crate) async fn settle(&self, reserved: Reserved, names: &[KindName], outcomes: &[Outcome]) {
        let policy = &reserved.policy;
        let mut unused = vec![0; policy.quotas().len()];
        let mut values = WriteBatch::new(self.state.name().clone());
        let family = values.family(STATE_FAMILY);
        for (((kind, name), tag_key), outcome) in names.iter().zip(&reserved.tag_keys).zip(outcomes) {
            let used = match outcome {
                Ok(assigned) => assigned.created,
                // The name may have been assigned.
                Err(UidServiceError::Store(error)) => is_uncertain(error),
                Err(UidServiceError::Interrupted) => true,
                Err(_) => false,
            };
            for (index, quota) in policy.quotas_of(*kind, tag_key.as_deref()) {
                if !used {
                    unused[index] += 1;
                } else if let (Some(tag_key), Ok(assigned)) = (&quota.scope.tag_key, outcome) {
                    values
                        .row(&value_row(tag_key, Some(assigned.uid)))
                        .put(family, VALUE, name.as_bytes());
                }
            }
        }
        if !values.is_empty()
            && let Err(error) = self.state.store().write(values).await
        {
            warn!(%error, "failed to record the tag key of new values; the next count of the quota is too low");
        }
        self.give_back(policy, &unused).await;
    }

    /// Reads the use of the quotas.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn usage(&self, policy: &Policy) -> Result<Vec<QuotaUse>, StoreError> {
        let rows: Vec<Vec<u8>> = policy.quotas().iter().map(|quota| row(&quota.scope)).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.state.store();
        let stored_rows = store
            .get_rows(self.state.name(), &rows, &ColumnSelection::All, None)
            .await?;
        let uses = policy.quotas().iter().zip(stored_rows).map(|(quota, row)| {
            let number = |qualifier| number(row.as_ref()?.get(STATE_FAMILY, qualifier)?.value);
            QuotaUse {
                scope: quota.scope.clone(),
                limit: quota.limit,
                used: number(COUNT).unwrap_or(0),
                counted_at: number(COUNTED_AT).map(|ms| UNIX_EPOCH + Duration::from_millis(ms)),
                setting: quota.setting.clone(),
            }
        });
        Ok(uses.collect())
    }

    /// Counts the names of each quota that was never counted.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn count_new(&self, policy: &Policy, now: SystemTime) -> Result<(), StoreError> {
        for quota in policy.quotas() {
            if !self.is_counted(&quota.scope).await? {
                self.count_scope(&quota.scope, now).await?;
            }
        }
        Ok(())
    }

    /// Counts the names of all quotas, and returns their use.
    ///
    /// # Errors
    ///
    /// The store fails; some counters may be corrected.
    pub(crate) async fn count_again(
        &self,
        policy: &Policy,
        now: SystemTime,
    ) -> Result<Vec<QuotaUse>, StoreError> {
        for quota in policy.quotas() {
            self.count_scope(&quota.scope, now).await?;
        }
        self.usage(policy).await
    }

    /// Removes a name from the counter of its kind: its UID is in quarantine.
    ///
    /// # Errors
    ///
    /// The store fails; the counter may be too high.
    pub(crate) async fn quarantined(&self, policy: &Policy, kind: UidKind) -> Result<(), StoreError> {
        for (_, quota) in policy.quotas_of(kind, None) {
            self.add(&quota.scope, -1).await?;
        }
        Ok(())
    }

    /// Removes a tag value from the counters of its tag keys: its UID is released.
    ///
    /// # Errors
    ///
    /// The store fails; the counters may be too high.
    pub(crate) async fn released(&self, policy: &Policy, kind: UidKind, uid: Uid) -> Result<(), StoreError> {
        for quota in policy.quotas().iter().filter(|quota| quota.scope.kind == kind) {
            let Some(tag_key) = &quota.scope.tag_key else {
                continue;
            };
            let row = value_row(tag_key, Some(uid));
            let store = self.state.store();
            let stored_row = store.get(self.state.name(), &row, &ColumnSelection::All).await?;
            if stored_row.is_none() {
                continue;
            }
            let mut batch = WriteBatch::new(self.state.name().clone());
            batch.row(&row).delete_row();
            store.write(batch).await?;
            self.add(&quota.scope, -1).await?;
        }
        Ok(())
    }

    /// Adds a name to the counter of its kind: one that gets its UID back.
    ///
    /// # Errors
    ///
    /// The store fails; the counter may be too high.
    pub(crate) async fn restored(&self, policy: &Policy, kind: UidKind) -> Result<(), StoreError> {
        for (_, quota) in policy.quotas_of(kind, None) {
            self.add(&quota.scope, 1).await?;
        }
        Ok(())
    }

    async fn count_scope(&self, scope: &Scope, now: SystemTime) -> Result<(), StoreError> {
        let before = self.add(scope, 0).await?;
        let names = match &scope.tag_key {
            None => self.count_names(scope.kind).await?,
            Some(tag_key) => self.count_values(tag_key).await?,
        };
        let cell = cell(scope, COUNT);
        for _ in 0..ATTEMPTS {
            let present = self.add(scope, 0).await?;
            // Names that were assigned during the scan count twice if the scan found them.
            let count = names.saturating_add(present.saturating_sub(before));
            let condition = Condition {
                cell: cell.clone(),
                expected: (present > 0).then(|| present.to_be_bytes().to_vec()),
            };
            // A counter of zero may be an absent cell or one that holds zero.
            let done = count == present
                || self.put(&condition, count).await?
                || (present == 0 && {
                    let condition = Condition {
                        expected: Some(0_u64.to_be_bytes().to_vec()),
                        ..condition
                    };
                    self.put(&condition, count).await?
                });
            if done {
                let mut batch = WriteBatch::new(self.state.name().clone());
                let family = batch.family(STATE_FAMILY);
                batch
                    .row(&row(scope))
                    .put(family, COUNTED_AT, &millis(now).to_be_bytes());
                self.state.store().write(batch).await?;
                self.counted.lock().insert(scope.clone());
                info!(%scope, count, "counted the names of a quota");
                return Ok(());
            }
        }
        warn!(%scope, "the names of a quota were not counted: its counter kept changing");
        Ok(())
    }

    async fn put(&self, condition: &Condition, count: u64) -> Result<bool, StoreError> {
        let store = self.state.store();
        store
            .check_and_put(self.state.name(), condition, &count.to_be_bytes())
            .await
    }

    async fn count_names(&self, kind: UidKind) -> Result<u64, StoreError> {
        let mut scan = Scan::range(FIRST_NAME_ROW, []);
        scan.columns = column(ID, kind);
        scan.batch_rows = 1024;
        count_rows(self.table.store(), self.table.name(), scan).await
    }

    async fn count_values(&self, tag_key: &str) -> Result<u64, StoreError> {
        let mut scan = Scan::prefix(&value_row(tag_key, None));
        scan.batch_rows = 1024;
        count_rows(&**self.state.store(), self.state.name(), scan).await
    }

    /// Whether a scope was counted: by this process, or by another one.
    async fn is_counted(&self, scope: &Scope) -> Result<bool, StoreError> {
        if self.counted.lock().contains(scope) {
            return Ok(true);
        }
        let store = self.state.store();
        let stored_row = store
            .get(self.state.name(), &row(scope), &ColumnSelection::All)
            .await?;
        let counted = stored_row.is_some_and(|row| row.get(STATE_FAMILY, COUNTED_AT).is_some());
        if counted {
            self.counted.lock().insert(scope.clone());
        }
        Ok(counted)
    }

    async fn add(&self, scope: &Scope, amount: i64) -> Result<u64, StoreError> {
        let store = self.state.store();
        let sum = store
            .increment(self.state.name(), &cell(scope, COUNT), amount)
            .await?;
        // Negative only if an operator changed it.
        Ok(u64::try_from(sum).unwrap_or(0))
    }

    async fn add_or_log(&self, scope: &Scope, amount: i64) {
        if let Err(error) = self.add(scope, amount).await {
            warn!(%scope, amount, %error, "failed to change the counter of a quota; it is too high until its names are counted again");
        }
    }

    async fn give_back(&self, policy: &Policy, unused: &[u64]) {
        for (quota, count) in policy.quotas().iter().zip(unused) {
            if *count > 0 {
                self.add_or_log(&quota.scope, -signed(*count)).await;
            }
        }
    }
}

async fn count_rows(
    store: &dyn RowStore,
    table: &oxtsdb_row_store::TableName,
    scan: Scan,
) -> Result<u64, StoreError> {
    let mut rows = store.scan(table, scan).await?;
    let mut count = 0;
    while let Some(batch) = rows.try_next().await? {
        count += batch.len() as u64;
    }
    Ok(count)
}

fn row(scope: &Scope) -> Vec<u8> {
    let tag_key = scope.tag_key.as_deref().unwrap_or_default();
    [
        &[COUNTER_PREFIX, crate::state::kind_byte(scope.kind)],
        tag_key.as_bytes(),
    ]
    .concat()
}

fn cell(scope: &Scope, qualifier: &[u8]) -> CellAddress {
    CellAddress::new(row(scope), STATE_FAMILY, qualifier)
}

/// The row of a value of a tag key; without a UID, the prefix of all of them.
fn value_row(tag_key: &str, uid: Option<Uid>) -> Vec<u8> {
    let length = u16::try_from(tag_key.len()).unwrap_or(u16::MAX);
    let uid = uid.as_ref().map_or(&[][..], Uid::as_bytes);
    [
        &[VALUES_PREFIX][..],
        &length.to_be_bytes(),
        tag_key.as_bytes(),
        uid,
    ]
    .concat()
}

fn number(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
