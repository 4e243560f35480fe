//! Brings metadata in line with the points: creates missing documents of series and UIDs, and corrects times of
//! creation that are unknown, or more than an hour after the first point.
//!
//! ```text
//!   row keys of tsdb ─► slice: series that were not seen, with their hours ─┬─► ts_meta, ts_ctr
//!        ▲                                                                  └─► UIDMeta, at the UID service
//!        └── the next slice begins after the last key of this one ◄────────────────────┘
//! ```
//!
//! A slice is a scan that rejects every row, so that only keys are read; it ends after [`SLICE_KEYS`] keys or
//! [`SLICE_SERIES`] series. Rows of a metric and a salt bucket ascend by time, so a series is seen with its first
//! hour first. The series of one metric and bucket are remembered up to [`MEMORY_BYTES`]; beyond that they are
//! forgotten and checked again, which changes nothing.
//!
//! A missing document gets the first hour as its time of creation. OpenTSDB takes the clock if the counter is
//! missing too, and corrects that in its next run.
//!
//! Source: OpenTSDB 2.4, `MetaSync`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_query::{Held, QueryContext, QueryError, Storage};
use oxtsdb_row_store::{ColumnSelection, RowFilter, Scan};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::ts_meta::TsMeta;
use oxtsdb_schema::uid_meta::UidMetaAction;
use oxtsdb_schema::{RowKeyLayout, RowKeyRef, Tsuid, Uid, UidKind};
use parking_lot::Mutex;
use tracing::warn;

use super::MetaTable;
use super::documents::{MetaError, Stored, columns};
use crate::uids::{Uids, name_error};

/// Row keys of a slice.
const SLICE_KEYS: u64 = 1 << 17;

/// Series of a slice.
const SLICE_SERIES: usize = 2048;

/// Memory of the series and UIDs that are remembered.
const MEMORY_BYTES: u64 = 24 << 20;

/// Memory of a remembered series beside its bytes, and of a UID; estimates.
const ENTRY_BYTES: u64 = 48;

/// `created` is left as it is if it is not later than the first hour by more.
const TOLERANCE_SECONDS: i64 = 3600;

/// Bytes of a key that is greater than all of series: no time is FFFFFFFF.
const LAST_KEY_BYTES: usize = 64;

/// Failures that are logged, of a run.
const LOGGED_FAILURES: u64 = 20;

/// What a slice did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Synced {
    /// Row keys read.
    pub rows: u64,
    /// Series among them that were not remembered.
    pub series: u64,
    /// Documents of series created.
    pub series_created: u64,
    /// Times of creation of series corrected.
    pub series_corrected: u64,
    /// Documents of UIDs created.
    pub uids_created: u64,
    /// Times of creation of UIDs corrected.
    pub uids_corrected: u64,
    /// Series and UIDs left as they are, and row keys that are none.
    pub failed: u64,
    /// The last row; `None`: all are done.
    pub position: Option<Vec<u8>>,
}

/// A run in progress. Dropping it ends it.
#[derive(Debug)]
pub struct MetaSync {
    table: MetaTable,
    storage: Storage,
    uids: Uids,
    plan_only: bool,
    position: Vec<u8>,
    seen: Arc<Mutex<Seen>>,
    /// The earliest hour with which each UID was synced.
    synced_uids: HashMap<(UidKind, Uid), u32>,
    failures: u64,
    _memory: Held,
}

/// The series of the current metric and bucket that were seen.
#[derive(Debug, Default)]
struct Seen {
    /// Salt and metric.
    prefix: Vec<u8>,
    series: HashSet<Box<[u8]>>,
    bytes: u64,
}

/// The keys of a slice.
#[derive(Debug, Default)]
struct Slice {
    rows: u64,
    invalid: u64,
    /// New series, with the first second of their first hour.
    series: Vec<(Vec<u8>, u32)>,
    /// The last key that was read.
    last: Vec<u8>,
    is_full: bool,
}

impl MetaSync {
    /// Begins with the rows after `start_after`. With `plan_only` nothing is changed.
    ///
    /// # Errors
    ///
    /// If the query may not hold the memory of the run.
    pub fn start(
        table: MetaTable,
        storage: Storage,
        uids: Uids,
        context: &QueryContext,
        start_after: Vec<u8>,
        plan_only: bool,
    ) -> Result<Self, QueryError> {
        Ok(Self {
            table,
            storage,
            uids,
            plan_only,
            position: start_after,
            seen: Arc::default(),
            synced_uids: HashMap::new(),
            failures: 0,
            _memory: context.budget().hold(2 * MEMORY_BYTES)?,
        })
    }

    /// Processes the next slice.
    ///
    /// # Errors
    ///
    /// Those of the store and of the UID service, and interruptions of the query. A slice may be processed in part; its
    /// repetition is safe.
    pub async fn next(&mut self, context: &QueryContext) -> Result<Synced, QueryError> {
        let slice = context.run(self.read()).await?;
        let mut synced = Synced {
            rows: slice.rows,
            series: slice.series.len() as u64,
            failed: slice.invalid,
            ..Synced::default()
        };
        context.run(self.sync_series(&slice.series, &mut synced)).await?;
        context
            .run(self.sync_uids(&slice.series, context, &mut synced))
            .await?;
        if slice.is_full {
            self.position = slice.last;
            synced.position = Some(self.position.clone());
        }
        Ok(synced)
    }

    /// Reads the keys of a slice.
    async fn read(&self) -> Result<Slice, QueryError> {
        let slice: Arc<Mutex<Slice>> = Arc::default();
        let mut scan = Scan::range(Vec::new(), Vec::new());
        if !self.position.is_empty() {
            scan = scan.resume_after(&self.position);
        }
        scan.columns = ColumnSelection::Family(String::from_utf8_lossy(FAMILY).into_owned());
        let visit = {
            let (layout, slice, seen) = (self.storage.layout, Arc::clone(&slice), Arc::clone(&self.seen));
            move |key: &[u8]| {
                slice.lock().visit(key, &layout, &mut seen.lock());
                false
            }
        };
        let is_full = Arc::clone(&slice);
        // No row of a series has a greater key: the scan ends.
        let end = vec![0xff; LAST_KEY_BYTES];
        let seek = move |_: &[u8]| is_full.lock().is_full.then(|| end.clone());
        scan.filter = Some(RowFilter::new(visit).with_seek(seek));
        let mut batches = self.storage.store.scan(&self.storage.table, scan).await?;
        while batches.try_next().await?.is_some() {}
        drop(batches);
        let slice = std::mem::take(&mut *slice.lock());
        Ok(slice)
    }

    async fn sync_series(
        &mut self,
        series: &[(Vec<u8>, u32)],
        synced: &mut Synced,
    ) -> Result<(), QueryError> {
        if series.is_empty() {
            return Ok(());
        }
        let keys: Vec<Vec<u8>> = series.iter().map(|(tsuid, _)| tsuid.clone()).collect();
        let rows = self
            .table
            .store
            .get_rows(&self.table.name, &keys, &columns(), None)
            .await?;
        let (mut missing, mut uncounted) = (Vec::new(), Vec::new());
        for ((tsuid, hour), row) in series.iter().zip(&rows) {
            let stored = Stored::of(row.as_ref());
            let first_point = i64::from(*hour);
            let Some(document) = &stored.document else {
                if !stored.has_counter() {
                    uncounted.push((tsuid.clone(), 1));
                }
                missing.push((tsuid.clone(), first_point));
                continue;
            };
            match TsMeta::decode(document) {
                Ok(document) if !is_too_late(&document, first_point) => {}
                Ok(_) => self.correct(tsuid, first_point, synced).await?,
                Err(error) => self.failed(synced, &format!("series {}: {error}", hex::encode_upper(tsuid))),
            }
        }
        synced.series_created += missing.len() as u64;
        if !self.plan_only {
            if !uncounted.is_empty() {
                self.table.count(uncounted).await?;
            }
            self.table.create_documents(&missing, false).await?;
        }
        Ok(())
    }

    async fn correct(
        &mut self,
        tsuid: &[u8],
        first_point: i64,
        synced: &mut Synced,
    ) -> Result<(), QueryError> {
        synced.series_corrected += 1;
        let Some(tsuid) = Tsuid::from_bytes(tsuid, &self.storage.layout.widths)
            .ok()
            .filter(|_| !self.plan_only)
        else {
            return Ok(());
        };
        let correct = |document: &mut TsMeta| {
            if is_too_late(document, first_point) {
                document.created_seconds = first_point;
            }
        };
        match self.table.update(&tsuid, None, false, correct).await {
            // Deleted meanwhile.
            Ok(_) | Err(MetaError::NotFound { .. }) => Ok(()),
            Err(MetaError::Store(error)) => Err(error.into()),
            Err(error) => {
                self.failed(synced, &error.to_string());
                Ok(())
            }
        }
    }

    async fn sync_uids(
        &mut self,
        series: &[(Vec<u8>, u32)],
        context: &QueryContext,
        synced: &mut Synced,
    ) -> Result<(), QueryError> {
        let widths = self.storage.layout.widths;
        let mut due: HashMap<(UidKind, Uid), u32> = HashMap::new();
        for (tsuid, hour) in series {
            let Ok(tsuid) = Tsuid::from_bytes(tsuid, &widths) else {
                continue;
            };
            let tags = tsuid.tags(&widths);
            let tags =
                tags.flat_map(|(tagk, tagv)| [(UidKind::Tagk, tagk.uid()), (UidKind::Tagv, tagv.uid())]);
            for uid in std::iter::once((UidKind::Metric, tsuid.metric(&widths).uid())).chain(tags) {
                if self.synced_uids.get(&uid).is_none_or(|known| hour < known) {
                    due.entry(uid)
                        .and_modify(|first| *first = (*first).min(*hour))
                        .or_insert(*hour);
                }
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let due: Vec<(UidKind, Uid, u32)> = due
            .into_iter()
            .map(|((kind, uid), hour)| (kind, uid, hour))
            .collect();
        let results = self
            .uids
            .sync_metas(&due, self.plan_only, context.deadline())
            .await
            .map_err(name_error)?;
        if self.synced_uids.len() as u64 * ENTRY_BYTES > MEMORY_BYTES {
            self.synced_uids.clear();
        }
        for ((kind, uid, hour), result) in due.into_iter().zip(results) {
            match result {
                Ok(UidMetaAction::None) => {}
                Ok(UidMetaAction::Created) => synced.uids_created += 1,
                Ok(UidMetaAction::Corrected) => synced.uids_corrected += 1,
                Err(rejection) if rejection.is_retry_safe() => {
                    return Err(oxtsdb_query::NameError::Unavailable {
                        detail: rejection.message,
                    }
                    .into());
                }
                Err(rejection) => self.failed(synced, &rejection.message),
            }
            self.synced_uids.insert((kind, uid), hour);
        }
        Ok(())
    }

    fn failed(&mut self, synced: &mut Synced, reason: &str) {
        synced.failed += 1;
        self.failures += 1;
        if self.failures <= LOGGED_FAILURES {
            warn!(reason, "metasync left metadata as it is");
        }
    }
}

impl Slice {
    fn visit(&mut self, key: &[u8], layout: &RowKeyLayout, seen: &mut Seen) {
        // A key may be visited more than once, and after the end of the slice.
        if self.is_full || key <= self.last.as_slice() {
            return;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.rows += 1;
        match RowKeyRef::decode(key, layout) {
            Ok(row) if row.is_global() => {}
            Ok(row) => {
                let mut tsuid = Vec::with_capacity(key.len());
                row.tsuid_bytes(&mut tsuid);
                let prefix = key.get(..layout.salt.width() + layout.widths.metric.bytes());
                if seen.is_new(prefix.unwrap_or_default(), &tsuid) {
                    self.series.push((tsuid, row.base_time().seconds()));
                }
            }
            Err(_) => self.invalid += 1,
        }
        self.is_full = self.rows >= SLICE_KEYS || self.series.len() >= SLICE_SERIES;
    }
}

impl Seen {
    /// Whether a series was not seen; then it is remembered.
    fn is_new(&mut self, prefix: &[u8], tsuid: &[u8]) -> bool {
        if self.prefix != prefix || self.bytes > MEMORY_BYTES {
            self.prefix = prefix.to_vec();
            self.series.clear();
            self.bytes = 0;
        }
        if self.series.contains(tsuid) {
            return false;
        }
        self.bytes += tsuid.len() as u64 + ENTRY_BYTES;
        self.series.insert(tsuid.into())
    }
}

fn is_too_late(document: &TsMeta, first_point: i64) -> bool {
    document.created_seconds == 0 || document.created_seconds > first_point.saturating_add(TOLERANCE_SECONDS)
}
