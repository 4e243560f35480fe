//! The UIDs that the series here use, and what the UID service says to them.
//!
//! Series are in this service's folder, their names in the UID service's. If the names are lost or replaced by an
//! older copy, the next new name would get the UID of a series that exists, and that series' points would be served under it.
//! So every request that may assign carries the highest UIDs in use, and the UID service rejects it if its counters are
//! below. The same is reported at start and whenever the watch is opened again, so that health shows it before a name is
//! rejected. The points of HBase have no such folder: nothing is reported.
//!
//! The folder remembers which table of UIDs its series were written with, and the highest number that the UID service
//! has assigned for any data service; see [`memory`]. Every look-up names the table, so that names of another
//! deployment are never mixed with the points here.

mod memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use oxtsdb_client::{Error, UidUse};
use oxtsdb_point_store::{HighestUids, PointStore};
use oxtsdb_proto::common::v1::{self as common, ErrorReason};
use oxtsdb_proto::uid::v1::UidsInUse;
use oxtsdb_proto::uid::v1::uids_in_use::KindInUse;
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::{KindState, Uid, UidKind, UidWidths};
use parking_lot::Mutex;
use tracing::{debug, error, info, warn};

use self::memory::{Memory, Remembered};
use super::requests::not_found;
use super::{Uids, UidsError};

/// The most UIDs that are compared with the UID service by name.
const MAX_COMPARED: usize = 4096;

/// The UIDs of the series here. They are not known before [`Uids::protect`].
#[derive(Debug)]
pub(super) struct SeriesUse {
    widths: UidWidths,
    /// Kinds with random UIDs.
    random: Vec<UidKind>,
    /// The table that the series were written with; 0: any.
    table_id: AtomicU64,
    stores: OnceLock<Vec<Arc<dyn PointStore>>>,
    memory: OnceLock<Memory>,
    /// The highest numbers that the UID service has reported as assigned.
    assigned: Mutex<HighestUids>,
    health: Mutex<UidHealth>,
}

/// Faults between the series here and the UID service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UidHealth {
    /// The state of each kind, as the UID service has reported it last.
    pub kinds: Vec<KindState>,
    /// How many of the UIDs that were compared last have no name.
    pub nameless: Vec<(UidKind, u64)>,
    /// The UID service has another table.
    pub(crate) other_table: Option<String>,
}

impl UidHealth {
    /// Whether the UID service assigns no UIDs of a kind.
    pub(crate) fn has_blocked_kinds(&self) -> bool {
        self.other_table.is_some() || self.kinds.iter().any(KindState::is_blocked)
    }

    /// Whether UIDs have no name.
    pub(crate) fn has_nameless(&self) -> bool {
        self.nameless.iter().any(|(_, count)| *count > 0)
    }

    /// A sentence for each problem.
    pub fn notes(&self) -> Vec<String> {
        let blocked = self.kinds.iter().filter(|state| state.is_blocked());
        let blocked = blocked.map(|state| {
            format!(
                "the UID service assigns no {}: its counter is {}, series here use UIDs up to {}; run `tsdb uid recover`",
                state.kind, state.counter, state.highest_in_use
            )
        });
        let nameless = self.nameless.iter().filter(|(_, count)| *count > 0);
        let nameless = nameless.map(|(kind, count)| {
            format!("{count} UIDs of {kind} that series here use have no name: deleted, or lost; `tsdb uid recover` names them")
        });
        self.other_table
            .iter()
            .cloned()
            .chain(blocked)
            .chain(nameless)
            .collect()
    }
}

impl SeriesUse {
    pub(super) fn new(widths: UidWidths, random: Vec<UidKind>) -> Self {
        Self {
            widths,
            random,
            table_id: AtomicU64::new(0),
            stores: OnceLock::new(),
            memory: OnceLock::new(),
            assigned: Mutex::default(),
            health: Mutex::default(),
        }
    }

    fn stores(&self) -> Option<&[Arc<dyn PointStore>]> {
        self.stores.get().map(Vec::as_slice)
    }

    /// The highest UIDs of the series.
    fn highest(&self) -> HighestUids {
        let stores = self.stores().unwrap_or_default().iter();
        let highest = stores.filter_map(|store| store.highest_uids());
        highest.fold(HighestUids::default(), HighestUids::max)
    }

    /// The UIDs of all metrics, ascending.
    fn metrics(&self) -> Vec<Vec<u8>> {
        let stores = self.stores().unwrap_or_default().iter();
        let mut metrics: Vec<Vec<u8>> = stores.flat_map(|store| store.metrics()).collect();
        metrics.sort_unstable();
        metrics.dedup();
        metrics
    }

    fn max_number(&self, kind: UidKind) -> u64 {
        self.widths.get(kind).max_number()
    }

    /// UIDs to compare with the UID service: the highest of each kind, and the metrics, or some of them.
    fn samples(&self) -> Vec<(UidKind, Uid)> {
        let metrics = self.metrics();
        let step = metrics.len().div_ceil(MAX_COMPARED).max(1);
        let metrics = metrics.iter().rev().step_by(step);
        let metrics = metrics.filter_map(|uid| Some((UidKind::Metric, Uid::from_bytes(uid).ok()?)));
        let highest = self.highest();
        let of_tags = [UidKind::Tagk, UidKind::Tagv].into_iter().filter_map(|kind| {
            let number = Some(highest.get(kind)).filter(|number| *number > 0)?;
            Some((kind, Uid::from_number(number, self.widths.get(kind)).ok()?))
        });
        metrics.chain(of_tags).collect()
    }
}

impl UidUse for SeriesUse {
    fn table_id(&self) -> u64 {
        self.table_id.load(Ordering::Relaxed)
    }

    fn in_use(&self, kinds: &[UidKind]) -> Option<UidsInUse> {
        self.stores()?;
        let highest = self.highest().max(*self.assigned.lock());
        let kinds = kinds.iter().map(|kind| {
            let is_random = self.random.contains(kind);
            KindInUse {
                kind: common::UidKind::from(*kind).into(),
                highest: if is_random { 0 } else { highest.get(*kind) },
                uids: match (is_random, kind) {
                    (true, UidKind::Metric) => self.metrics().concat().into(),
                    // UIDs of tags are never random.
                    _ => Default::default(),
                },
            }
        });
        Some(UidsInUse {
            table_id: self.table_id(),
            kinds: kinds.collect(),
        })
    }
}

impl Uids {
    /// Protects the UIDs of the series in these stores from a table of names that was lost or replaced. `rows` is the row
    /// store of their folder, `folder` its name for errors. With `accepts_table`, the folder belongs to the table of the
    /// UID service from now on.
    ///
    /// # Errors
    ///
    /// [`UidsError::Layout`] if the series were written with another table; the store fails.
    pub async fn protect(
        &self,
        stores: Vec<Arc<dyn PointStore>>,
        rows: Arc<dyn RowStore>,
        table: &TableName,
        folder: &str,
        accepts_table: bool,
    ) -> anyhow::Result<()> {
        let uses = &self.0.uses;
        let memory = Memory::open(rows, table).await;
        let memory = memory.context("open the memory of the table of UIDs")?;
        let table_id = self.0.table_id;
        let mut remembered = memory.read().await?.unwrap_or_default();
        if table_id != 0 && remembered.table_id != table_id {
            if remembered.table_id != 0 && !accepts_table {
                let detail = other_table(folder, remembered.table_id, table_id);
                return Err(UidsError::Layout { detail }.into());
            }
            if remembered.table_id != 0 {
                warn!(
                    table = format!("{table_id:016x}"),
                    before = format!("{:016x}", remembered.table_id),
                    "the points belong to another table of UIDs from now on; run `tsdb uid recover`"
                );
            }
            remembered = Remembered {
                table_id,
                assigned: HighestUids::default(),
            };
            memory.write(&remembered).await?;
        }
        uses.table_id.store(remembered.table_id, Ordering::Relaxed);
        *uses.assigned.lock() = remembered.assigned;
        // The report and the protection begin here.
        let _ = uses.memory.set(memory);
        let _ = uses.stores.set(stores);
        self.compare_use().await;
        Ok(())
    }

    /// Returns the faults between the series here and the UID service.
    pub fn uid_health(&self) -> UidHealth {
        self.0.uses.health.lock().clone()
    }

    /// Remembers the highest numbers that the UID service has assigned, for any data service.
    pub(super) async fn note_assigned(&self, counters: &[(UidKind, u64)]) {
        let uses = &self.0.uses;
        let Some(memory) = uses.memory.get() else { return };
        let mut assigned = HighestUids::default();
        for (kind, number) in counters {
            // A counter that OpenTSDB has moved beyond the largest number assigns nothing anyway.
            let number = Some(*number).filter(|number| *number <= uses.max_number(*kind));
            let number = number.filter(|_| !uses.random.contains(kind)).unwrap_or_default();
            match kind {
                UidKind::Metric => assigned.metric = number,
                UidKind::Tagk => assigned.tagk = number,
                UidKind::Tagv => assigned.tagv = number,
            }
        }
        let remembered = {
            let mut known = uses.assigned.lock();
            let higher = known.max(assigned);
            if higher == *known {
                return;
            }
            *known = higher;
            Remembered {
                table_id: uses.table_id(),
                assigned: higher,
            }
        };
        if let Err(error) = memory.write(&remembered).await {
            debug!(%error, "the counters of UIDs were not remembered");
        }
    }

    /// Reports the UIDs in use, compares their names, and records what is wrong.
    pub(super) async fn compare_use(&self) {
        let uses = &self.0.uses;
        if uses.stores().is_none() {
            return;
        }
        let reported = self.0.client.report_uids_in_use().await;
        let mut health = uses.health.lock().clone();
        match reported {
            Ok(states) => {
                health.other_table = None;
                health.kinds = states;
            }
            Err(error) if error.reason() == Some(ErrorReason::TableMismatch) => {
                health.other_table = Some(error.to_string());
            }
            Err(error) => {
                debug!(%error, "the UIDs in use were not reported");
                return;
            }
        }
        if health.other_table.is_none() {
            match self.nameless().await {
                Ok(nameless) => health.nameless = nameless,
                Err(error) => debug!(%error, "the names of the UIDs in use were not compared"),
            }
        }
        let before = std::mem::replace(&mut *uses.health.lock(), health.clone());
        log_changes(&before, &health);
    }

    /// How many of some UIDs in use have no name.
    async fn nameless(&self) -> Result<Vec<(UidKind, u64)>, Error> {
        let samples = self.0.uses.samples();
        let names = self.0.client.lookup_names(&samples).await?;
        let count = |kind: UidKind| {
            let of_kind = samples
                .iter()
                .zip(&names)
                .filter(|((other, _), _)| *other == kind);
            let unknown = of_kind.filter(|(_, name)| matches!(name, Err(rejection) if not_found(rejection)));
            (kind, unknown.count() as u64)
        };
        Ok(UidKind::ALL.map(count).into())
    }
}

fn log_changes(before: &UidHealth, now: &UidHealth) {
    if before == now {
        return;
    }
    let notes = now.notes();
    match notes.join("; ") {
        text if text.is_empty() && before.notes().is_empty() => {}
        text if text.is_empty() => info!("the UID service knows all UIDs in use"),
        text if now.has_blocked_kinds() => error!("{text}"),
        text => warn!("{text}"),
    }
}

fn other_table(folder: &str, remembered: u64, table_id: u64) -> String {
    format!(
        "it has table {table_id:016x} of UIDs, the points in {folder} were written with {remembered:016x}: its folder uid \
         was removed, or belongs to another deployment; restore the folder, or start once with --accept-uid-table and run \
         `tsdb uid recover`"
    )
}
