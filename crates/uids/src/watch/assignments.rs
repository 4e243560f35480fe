//! Events of assignments.
//!
//! Assignments of this process are reported as they are made. Assignments of other replicas and of OpenTSDB are found
//! by the counters: the numbers that were reserved since the last poll are looked up. A number without a complete
//! mapping is looked up again for [`PATIENCE`]; after that it counts as lost, as numbers of crashed writers are.
//!
//! Random UIDs have no counter: only those that this process assigns are reported at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::{StoreError, Writers};
use oxtsdb_schema::{PerKind, Uid, UidKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::hub::Reported;
use super::{Event, Hub, Position, WatchRequest};
use crate::error::UidServiceError;
use crate::suggest::Mapping;
use crate::table::{KindName, KindUid, UidTable};

/// How long the mapping of a reserved number may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers that are looked up at once.
const CHUNK: u64 = 4096;

/// Numbers without a mapping that are looked up again, and own numbers that the counters have not reached; of each
/// kind. With more of the first, watches are requested to resync; with more of the second, events are sent twice.
const MAX_TRACKED: usize = 65_536;

/// Reports assignments.
#[derive(Debug)]
pub(crate) struct Assignments {
    table: UidTable,
    hub: Arc<Hub>,
    /// No other process assigns.
    alone: bool,
    tracked: Mutex<PerKind<Tracked>>,
}

#[derive(Debug, Default)]
struct Tracked {
    /// Reserved numbers without a complete mapping, and when they were found.
    incomplete: BTreeMap<u64, Instant>,
    /// The last number that was looked up. The position does not reach it while an earlier one is incomplete.
    last: u64,
    /// Numbers that this process has reported and the counter's position does not include.
    reported: HashMap<u64, Reported>,
}

impl Assignments {
    pub(crate) fn new(table: UidTable, writers: Writers, hub: Arc<Hub>) -> Self {
        Self {
            table,
            hub,
            alone: writers == Writers::Single,
            tracked: Mutex::default(),
        }
    }

    /// Reports mappings that this process has assigned.
    pub(crate) fn assigned(&self, kind: UidKind, mappings: Vec<Mapping>) {
        let Some(last) = mappings.iter().map(|mapping| mapping.uid.number()).max() else {
            return;
        };
        let numbers: Vec<u64> = mappings.iter().map(|mapping| mapping.uid.number()).collect();
        let is_position = self.alone && self.is_sequential(kind);
        // Locked until the numbers are noted: a poll would report them again.
        let mut tracked = self.tracked.lock();
        let reported = self
            .hub
            .publish(mappings.into_iter().map(Event::Assigned), |position| {
                let counter = position.counters.get_mut(kind);
                *counter = if is_position { last.max(*counter) } else { *counter };
            });
        if !self.alone && self.hub.wants_assigned(kind) {
            let known = &mut tracked.get_mut(kind).reported;
            if known.len() + numbers.len() > MAX_TRACKED {
                known.clear();
            }
            known.extend(numbers.into_iter().map(|number| (number, reported)));
        }
    }

    /// The counters, for a position. A counter that cannot be read is 0.
    pub(crate) async fn counters(&self) -> Result<PerKind<u64>, StoreError> {
        let mut counters = PerKind::default();
        for kind in UidKind::ALL {
            if self.is_sequential(kind) {
                *counters.get_mut(kind) = match self.table.counter(kind).await {
                    Ok(counter) => counter.number,
                    Err(UidServiceError::Store(error)) => return Err(error),
                    Err(_damaged) => 0,
                };
            }
        }
        Ok(counters)
    }

    /// Reports what other processes have assigned since the last poll.
    pub(crate) async fn poll(&self) -> Result<(), StoreError> {
        let Some(Position { counters, .. }) = self.hub.position() else {
            return Ok(());
        };
        let now = self.counters().await?;
        for kind in UidKind::ALL {
            let (from, to) = (*counters.get(kind), *now.get(kind));
            if self.hub.skip_assigned(kind, to) {
                *self.tracked.lock().get_mut(kind) = Tracked {
                    last: to,
                    ..Tracked::default()
                };
            } else {
                self.report(kind, from, to).await?;
            }
        }
        Ok(())
    }

    /// Returns the ranges of numbers that a watch has missed when it resumes after the counters `from`: each begins after
    /// its first number and ends with its second. `to` is the position of the watch's subscription.
    pub(crate) fn missed(
        &self,
        request: &WatchRequest,
        from: PerKind<u64>,
        to: PerKind<u64>,
    ) -> VecDeque<(UidKind, u64, u64)> {
        if request.skip_assigned {
            return VecDeque::new();
        }
        let mut kinds = request.kinds.clone();
        kinds.sort_unstable();
        let tracked = self.tracked.lock();
        let missed = kinds
            .into_iter()
            .map(|kind| (kind, *from.get(kind), tracked.get(kind).last.max(*to.get(kind))));
        missed.filter(|(_, from, to)| from < to).collect()
    }

    /// Reports the mappings of the numbers after `from` up to `to`, and of those that were incomplete before.
    async fn report(&self, kind: UidKind, from: u64, to: u64) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut numbers: Vec<u64> = {
            let mut tracked = self.tracked.lock();
            let incomplete = &mut tracked.get_mut(kind).incomplete;
            incomplete.retain(|_, since| began.duration_since(*since) < PATIENCE);
            incomplete.keys().copied().collect()
        };
        let first_new = numbers.last().map_or(from, |last| from.max(*last)) + 1;
        let mut next = first_new;
        loop {
            let end = to.min(next.saturating_add(CHUNK - 1));
            numbers.extend(next..=end);
            let mappings = self.complete(kind, &numbers).await?;
            let mut tracked = self.tracked.lock();
            let Tracked {
                incomplete,
                reported,
                last,
            } = tracked.get_mut(kind);
            *last = end.max(*last);
            for number in &numbers {
                incomplete.entry(*number).or_insert(began);
            }
            let mut events = Vec::with_capacity(mappings.len());
            for mapping in mappings {
                let number = mapping.uid.number();
                incomplete.remove(&number);
                events.push((Event::Assigned(mapping), reported.remove(&number)));
            }
            let is_excess = incomplete.len() > MAX_TRACKED;
            while incomplete.len() > MAX_TRACKED {
                incomplete.pop_first();
            }
            let first_incomplete = incomplete.keys().next().copied();
            let all_before = first_incomplete.map_or(end, |number| number - 1);
            self.hub.publish_unless_reported(events, |position| {
                *position.counters.get_mut(kind) = all_before.min(end.max(from));
            });
            drop(tracked);
            if is_excess {
                self.hub.resync(|request| request.wants_assigned(kind));
            }
            numbers.clear();
            if end >= to {
                return Ok(());
            }
            next = end + 1;
        }
    }

    /// The complete mappings among some numbers of a kind.
    pub(crate) async fn complete(&self, kind: UidKind, numbers: &[u64]) -> Result<Vec<Mapping>, StoreError> {
        let width = self.table.layout().width(kind);
        let uids: Vec<KindUid> = numbers
            .iter()
            .filter_map(|number| Some((kind, Uid::from_number(*number, width).ok()?)))
            .collect();
        let mut named: Vec<(KindName, Uid)> = Vec::with_capacity(uids.len());
        for (uid, name) in uids.iter().zip(self.table.names(&uids).await) {
            if let Some(name) = readable(name)? {
                named.push(((kind, name), uid.1));
            }
        }
        let names: Vec<KindName> = named.iter().map(|(name, _)| name.clone()).collect();
        let mut mappings = Vec::with_capacity(named.len());
        for (((_, name), uid), result) in named.into_iter().zip(self.table.uids(&names).await) {
            if readable(result)? == Some(uid) {
                mappings.push(Mapping { kind, name, uid });
            }
        }
        Ok(mappings)
    }

    fn is_sequential(&self, kind: UidKind) -> bool {
        !self.table.layout().kinds.get(kind).random
    }
}

/// A cell; `None` if it is absent or damaged.
fn readable<V>(result: Result<Option<V>, UidServiceError>) -> Result<Option<V>, StoreError> {
    match result {
        Ok(value) => Ok(value),
        Err(UidServiceError::Store(error)) => Err(error),
        Err(_damaged) => Ok(None),
    }
}
