//! The entry of the domain: assigns and resolves UIDs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::Stream;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{RowStore, StoreError, Writers};
use oxtsdb_schema::{AssignedUid, KindState, Name, Uid, UidKind};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::assign::Assigner;
pub use crate::assign::Purpose;
use crate::cache::UidCache;
use crate::change::{ChangeRequest, Changes};
use crate::coherence::{self, Coherence, REPLICA_LAG};
use crate::config::UidConfig;
use crate::error::UidServiceError;
use crate::fsck::Fsck;
use crate::in_use::{InUse, KindInUse};
use crate::layout::UidLayout;
use crate::lookup::{Absence, Lookup};
use crate::policy::apply;
use crate::policy::quota::{QuotaUse, Quotas};
use crate::policy::watch::LivePolicy;
use crate::reclaim::free::FreeNumbers;
use crate::reclaim::record::Records;
use crate::reclaim::{Reclaim, ReclaimError, Record, Step};
use crate::state::StateTable;
use crate::suggest::{self, Mapping, Page};
use crate::table::{KindName, KindUid, UidTable};
use crate::usage::{KindUsage, Usage, Warner};
use crate::watch::{Assignments, ForeignScan, Hub, Resumption, Token, WatchRequest, WatchUpdate};

/// Assigns and resolves the UIDs of one table.
#[derive(Debug)]
pub struct Uids {
    table: UidTable,
    lookup: Arc<Lookup>,
    assigner: Assigner,
    in_use: InUse,
    /// The identity of the table, once it was read.
    table_id: tokio::sync::OnceCell<u64>,
    changes: Arc<Changes>,
    /// The task that completes abandoned changes. It ends with this object, even within a request to the store.
    completion: Mutex<JoinSet<()>>,
    coherence: Arc<Coherence>,
    hub: Arc<Hub>,
    assignments: Arc<Assignments>,
    state: StateTable,
    /// The pause between two scans for changes by other programs; `None`: no scans.
    scan_interval: Option<Duration>,
    usage: Usage,
    /// The usage when it was read last; empty before.
    last_usage: Mutex<Vec<KindUsage>>,
    warner: Warner,
    policy: LivePolicy,
    quotas: Quotas,
    fsck: Fsck,
    records: Records,
    quarantine: Duration,
    writers: Writers,
}

/// The source of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The cache; the store on a miss.
    Cached,
    /// The store.
    Store,
}

impl Uids {
    /// The UIDs in the tables that `config` names; they must exist. Reads nothing.
    pub fn new(store: Arc<dyn RowStore>, writers: Writers, config: UidConfig) -> Self {
        let table = UidTable::new(Arc::clone(&store), config.table, config.layout);
        let state = StateTable::new(store, config.state_table);
        let cache = UidCache::new(config.cache);
        let lookup = Arc::new(Lookup::new(table.clone(), cache));
        let free = FreeNumbers::new(&state, config.quarantine);
        let hub = Arc::new(Hub::new(config.max_watches));
        let assignments = Arc::new(Assignments::new(table.clone(), writers, Arc::clone(&hub)));
        let in_use = InUse::default();
        let assigner = Assigner::new(table.clone(), Arc::clone(&assignments), free, in_use.clone());
        let coherence = Arc::new(Coherence::new(
            Arc::clone(&lookup),
            assigner.clone(),
            Arc::clone(&hub),
            Arc::clone(&assignments),
            ForeignScan::new(table.clone()),
        ));
        let changes = Arc::new(Changes::new(
            table.clone(),
            state.clone(),
            writers,
            Arc::clone(&coherence) as _,
            config.log_retention,
        ));
        Self {
            fsck: Fsck::new(table.clone(), Records::new(state.clone()), Arc::clone(&changes)),
            changes,
            completion: Mutex::default(),
            usage: Usage::new(table.clone(), state.clone()),
            last_usage: Mutex::default(),
            warner: Warner::default(),
            quotas: Quotas::new(state.clone(), table.clone()),
            policy: LivePolicy::default(),
            records: Records::new(state.clone()),
            quarantine: config.quarantine,
            lookup,
            assigner,
            in_use,
            table_id: tokio::sync::OnceCell::new(),
            coherence,
            hub,
            assignments,
            state,
            scan_interval: config.scan_interval,
            writers,
            table,
        }
    }

    /// Assigns new names as `policy` says.
    #[must_use]
    pub fn with_policy(mut self, policy: LivePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The table.
    pub fn table(&self) -> &UidTable {
        &self.table
    }

    /// Keeps UIDs that are reclaimed in quarantine for so long.
    #[must_use]
    pub fn with_quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine = quarantine;
        self.assigner.set_quarantine(quarantine);
        self
    }

    /// The format of the UIDs and names.
    pub fn layout(&self) -> &UidLayout {
        self.table.layout()
    }

    /// Returns the UID of each name, in their order. Names without one are assigned one, in that order.
    ///
    /// Each name succeeds or fails independently. New names of one call and kind get consecutive numbers,
    /// unless UIDs are random or a number is in use already.
    pub async fn get_or_create(
        &self,
        names: &[KindName],
        purpose: Purpose,
    ) -> Vec<Result<AssignedUid, UidServiceError>> {
        self.get_or_create_for(names, &[], purpose).await
    }

    /// As [`Uids::get_or_create`]. `tag_keys` has the tag key of each name that is a tag value, as far as it is
    /// known; rules and quotas may depend on it.
    pub async fn get_or_create_for(
        &self,
        names: &[KindName],
        tag_keys: &[Option<String>],
        purpose: Purpose,
    ) -> Vec<Result<AssignedUid, UidServiceError>> {
        let policy = self.policy.get();
        let may_create =
            |kind: UidKind| purpose == Purpose::Explicit || self.layout().kinds.get(kind).auto_create;
        // An assignment checks again; a rejection is final.
        let absence = if policy.is_empty() && names.iter().all(|(kind, _)| may_create(*kind)) {
            Absence::Provisional
        } else {
            Absence::Certain
        };
        let mut unknown = Vec::new();
        let mut outcomes: Vec<_> = self
            .lookup
            .uids(names, absence)
            .await
            .into_iter()
            .zip(names)
            .enumerate()
            .map(|(index, (result, (kind, name)))| match result? {
                Some(uid) => Ok(AssignedUid { uid, created: false }),
                None if may_create(*kind) => {
                    unknown.push(index);
                    Err(UidServiceError::Interrupted)
                }
                None => Err(UidServiceError::AutoCreateDisabled {
                    kind: *kind,
                    name: name.clone(),
                }),
            })
            .collect();
        if !unknown.is_empty() {
            let requested = unknown
                .iter()
                .map(|index| (names[*index].clone(), tag_keys.get(*index).cloned().flatten()))
                .collect();
            let assigned = if policy.is_empty() {
                self.assigner.assign(apply::only_names(requested)).await
            } else {
                apply::assign(&self.assigner, &self.quotas, &policy, requested, purpose).await
            };
            for (index, outcome) in unknown.into_iter().zip(assigned) {
                outcomes[index] = outcome;
            }
        }
        outcomes
    }

    /// Returns the UID of each name, in their order; [`UidServiceError::NameNotFound`] if it has none.
    pub async fn lookup_uids(
        &self,
        names: &[KindName],
        freshness: Freshness,
    ) -> Vec<Result<Uid, UidServiceError>> {
        let results = match freshness {
            Freshness::Cached => self.lookup.uids(names, Absence::Certain).await,
            Freshness::Store => self.lookup.read_uids(names).await,
        };
        results
            .into_iter()
            .zip(names)
            .map(|(result, (kind, name))| {
                result?.ok_or_else(|| UidServiceError::NameNotFound {
                    kind: *kind,
                    name: name.clone(),
                })
            })
            .collect()
    }

    /// Returns the name of each UID, in their order; [`UidServiceError::UidNotFound`] if it has none.
    pub async fn lookup_names(
        &self,
        uids: &[KindUid],
        freshness: Freshness,
    ) -> Vec<Result<Name, UidServiceError>> {
        let results = match freshness {
            Freshness::Cached => self.lookup.names(uids).await,
            Freshness::Store => self.lookup.read_names(uids).await,
        };
        results
            .into_iter()
            .zip(uids)
            .map(|(result, (kind, uid))| {
                let expected = self.layout().width(*kind);
                if uid.width() != expected {
                    return Err(UidServiceError::UidWidth {
                        kind: *kind,
                        uid: *uid,
                        expected,
                    });
                }
                result?.ok_or(UidServiceError::UidNotFound {
                    kind: *kind,
                    uid: *uid,
                })
            })
            .collect()
    }

    /// Returns up to `size` names that begin with `prefix` and follow `after`, in byte order; fewer if they
    /// are long.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &[u8],
        after: Option<&[u8]>,
        size: usize,
    ) -> Result<Page, UidServiceError> {
        suggest::page(&self.table, kind, prefix, after, size).await
    }

    /// Streams all mappings of `kinds`, in that order, then in byte order of their names; the first kind starts
    /// after the name `after`.
    pub fn export(
        &self,
        kinds: Vec<UidKind>,
        after: Option<Name>,
    ) -> BoxStream<'static, Result<Vec<Mapping>, UidServiceError>> {
        suggest::export(self.table.clone(), kinds, after)
    }

    /// Returns the use of the quotas.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn quotas(&self) -> Result<Vec<QuotaUse>, UidServiceError> {
        Ok(self.quotas.usage(&self.policy.get()).await?)
    }

    /// Counts the names of all quotas again.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn count_quotas(&self, now: SystemTime) -> Result<Vec<QuotaUse>, UidServiceError> {
        Ok(self.quotas.count_again(&self.policy.get(), now).await?)
    }

    /// Does a step of the reclaim for each of some mappings. Returns their results, in order.
    pub async fn reclaim(
        &self,
        step: Step,
        mappings: &[Mapping],
        now: SystemTime,
    ) -> Vec<Result<(), ReclaimError>> {
        let reclaim = Reclaim {
            table: self.table.clone(),
            records: self.records.clone(),
            changes: Arc::clone(&self.changes),
            quarantine: self.quarantine,
            quotas: self.quotas.clone(),
            policy: self.policy.get(),
        };
        reclaim.step(step, mappings, now).await
    }

    /// Identifies the table; 0 if other programs write to it, too: then it is part of one deployment with the points.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn table_id(&self) -> Result<u64, UidServiceError> {
        if self.has_other_writers() {
            return Ok(0);
        }
        let identity = self.table_id.get_or_try_init(|| self.state.identity()).await;
        Ok(*identity?)
    }

    /// Rejects a caller that has written its points with UIDs of another table. `expected` 0: any.
    ///
    /// # Errors
    ///
    /// [`UidServiceError::OtherTable`], or the store fails.
    pub async fn check_table(&self, expected: u64) -> Result<(), UidServiceError> {
        if expected == 0 {
            return Ok(());
        }
        match self.table_id().await? {
            table_id if table_id == 0 || table_id == expected => Ok(()),
            table_id => Err(UidServiceError::OtherTable { expected, table_id }),
        }
    }

    /// Notes UIDs that series use: they are not assigned.
    ///
    /// # Errors
    ///
    /// There are too many random ones.
    pub fn note_in_use(&self, kinds: &[KindInUse]) -> Result<(), UidServiceError> {
        self.in_use.add(kinds)
    }

    /// Compares the counters with the UIDs in use.
    ///
    /// # Errors
    ///
    /// A counter cannot be read.
    pub async fn compare_with_use(&self) -> Result<Vec<KindState>, UidServiceError> {
        self.in_use.refresh(&self.table).await
    }

    /// The state of each kind with sequential UIDs when the counters were compared last.
    pub fn kind_states(&self) -> Vec<KindState> {
        self.in_use.states(&self.table)
    }

    /// Streams the records of all UIDs that are being reclaimed, by kind and UID.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn reclaimed(
        &self,
    ) -> Result<BoxStream<'static, Result<Vec<Record>, UidServiceError>>, UidServiceError> {
        let records = self.records.list(None, None).await?;
        Ok(records.map_err(UidServiceError::from).boxed())
    }

    /// How long a UID is in quarantine.
    pub fn quarantine(&self) -> Duration {
        self.quarantine
    }

    /// Whether other programs may write to the table.
    pub fn has_other_writers(&self) -> bool {
        self.writers == Writers::Multiple
    }

    /// Reads the rules file again if it has changed, counts the names of new quotas, and compares counters with UIDs in
    /// use.
    pub(crate) async fn upkeep(&self, now: SystemTime) {
        self.in_use.keep_up(&self.table).await;
        let policy = self.policy.clone();
        // Reads a file.
        drop(tokio::task::spawn_blocking(move || policy.reload()).await);
        if let Err(error) = self.quotas.count_new(&self.policy.get(), now).await {
            warn!(%error, "failed to count the names of a quota; it has no effect yet");
        }
    }

    /// Gives a name's UID another name. When it returns, no look-up of this process finds the old mapping.
    ///
    /// # Errors
    ///
    /// See [`UidServiceError`]. After a failure of the store the rename may still be completed.
    pub async fn rename(
        &self,
        request: &ChangeRequest,
        to: &Name,
        now: SystemTime,
    ) -> Result<Mapping, UidServiceError> {
        self.changes.rename(request, to, now).await
    }

    /// Deletes a mapping and the UID's metadata. When it returns, no look-up of this process finds the mapping.
    ///
    /// # Errors
    ///
    /// See [`UidServiceError`]. After a failure of the store the delete may still be completed.
    pub async fn delete(&self, request: &ChangeRequest, now: SystemTime) -> Result<Mapping, UidServiceError> {
        self.changes.delete(request, now).await
    }

    /// Opens a watch. Its stream has no end unless the store fails; the first update comes at once.
    ///
    /// # Errors
    ///
    /// The token is none, or too old; too many watches are open; or the store cannot be read.
    pub async fn watch(
        &self,
        request: WatchRequest,
    ) -> Result<impl Stream<Item = Result<WatchUpdate, UidServiceError>> + Send + use<>, UidServiceError>
    {
        let resumed = match &request.resume {
            Some(text) => Some(Token::decode(text).ok_or(UidServiceError::InvalidResumeToken)?),
            None => None,
        };
        let identity = self.state.identity().await?;
        if resumed.is_some_and(|token| token.identity != identity) {
            return Err(UidServiceError::ResumeTokenExpired);
        }
        let position = self.hub.position();
        // Another replica may have reported more.
        if position.is_none_or(|here| resumed.is_some_and(|token| token.position.log > here.log)) {
            self.coherence.read(&self.changes).await?;
        }
        let heartbeat = request.heartbeat;
        let subscription = self
            .hub
            .subscribe(request.clone())
            .map_err(|full| UidServiceError::TooManyWatches { limit: full.limit })?
            .ok_or_else(|| StoreError::Unavailable {
                detail: "the log of changes was not read yet".to_owned(),
            })?;
        let to = subscription.position;
        let from = resumed.map_or(to, |token| token.position);
        let mut changes = VecDeque::new();
        if resumed.is_some() {
            // After the subscription: what is completed later is reported to it.
            let missed = self.changes.changes_after(from.log).await?;
            let missed = missed.ok_or(UidServiceError::ResumeTokenExpired)?;
            let wanted = missed.into_iter().map(coherence::event);
            changes.extend(wanted.filter(|event| request.wants(event)));
        }
        let numbers = match &resumed {
            Some(token) => self
                .assignments
                .missed(&request, token.position.counters, to.counters),
            None => VecDeque::new(),
        };
        let resumption = Resumption {
            subscription,
            lookup: Arc::clone(&self.lookup),
            assignments: Arc::clone(&self.assignments),
            identity,
            heartbeat,
            position: from,
            changes,
            numbers,
            is_new: true,
        };
        Ok(resumption.updates())
    }

    /// How long other replicas may return mappings as they were before a change; zero if there are none.
    pub fn replica_lag(&self) -> Duration {
        if self.changes.is_alone() {
            Duration::ZERO
        } else {
            REPLICA_LAG
        }
    }

    /// Empties the cache. Returns the number of entries, about.
    pub fn drop_caches(&self) -> u64 {
        self.coherence.clear()
    }

    /// Keeps the cache coherent with changes of other replicas, and completes changes that were interrupted, until
    /// the object is dropped. Must be called within a Tokio runtime.
    /// A second call has no effect.
    pub fn start(self: &Arc<Self>) {
        {
            let mut completion = self.completion.lock();
            if !completion.is_empty() {
                return;
            }
            let changes = Arc::clone(&self.changes);
            completion.spawn(async move { changes.keep_up().await });
        }
        let uids = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(uids) = uids.upgrade() {
                let pause = uids.coherence.poll(&uids.changes).await;
                drop(uids);
                tokio::time::sleep(pause).await;
            }
        });
        // Apart from the log: a report of many assignments must not delay its reads.
        let uids = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(uids) = uids.upgrade() {
                let pause = uids.coherence.poll_assignments(&uids.changes).await;
                drop(uids);
                tokio::time::sleep(pause).await;
            }
        });
        let Some(pause) = self.scan_interval.filter(|_| !self.changes.is_alone()) else {
            return;
        };
        let uids = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(uids) = uids.upgrade() {
                if let Err(error) = uids.coherence.scan_foreign(&uids.changes).await {
                    warn!(%error, "failed to scan for changes by other programs");
                }
                drop(uids);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Checks and repairs of the table.
    pub fn fsck(&self) -> &Fsck {
        &self.fsck
    }

    /// Samples the usage if this hour has no sample, and warns if a kind or a quota is nearly used up.
    pub async fn check_usage(&self, now: SystemTime) {
        let policy = self.policy.get();
        let checked = async {
            let sampled = self.usage.sample(now).await?;
            // The count of random UIDs takes a scan.
            if !sampled
                && UidKind::ALL
                    .iter()
                    .any(|kind| self.layout().kinds.get(*kind).random)
            {
                return Ok(());
            }
            let usages = self.usage(now).await?;
            let quotas = self.quotas.usage(&policy).await?;
            self.warner.check(policy.warnings(), &usages, &quotas);
            Ok::<_, UidServiceError>(())
        };
        if let Err(error) = checked.await {
            debug!(%error, "the usage was not sampled");
        }
    }

    /// Returns the usage of each number space. `now` becomes its read time.
    ///
    /// # Errors
    ///
    /// A counter cannot be read.
    pub async fn usage(&self, now: SystemTime) -> Result<Vec<KindUsage>, UidServiceError> {
        let usages = self.usage.read(now).await?;
        self.last_usage.lock().clone_from(&usages);
        Ok(usages)
    }

    /// Reads the usage again for [`Uids::last_usage`]. Not with random UIDs: their names are counted by a scan of the
    /// table, and the number is kept for an hour, so that a count at the start would be served to callers that long.
    pub async fn refresh_usage(&self, now: SystemTime) {
        let is_random = |kind: &UidKind| self.layout().kinds.get(*kind).random;
        if UidKind::ALL.iter().any(is_random) {
            return;
        }
        if let Err(error) = self.usage(now).await {
            debug!(%error, "the usage was not read");
        }
    }

    /// The usage when it was read last; empty before.
    pub fn last_usage(&self) -> Vec<KindUsage> {
        self.last_usage.lock().clone()
    }

    /// The cache of mappings.
    pub fn cache(&self) -> &UidCache {
        self.lookup.cache()
    }
}
