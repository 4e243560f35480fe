//! UIDs that the series of data services use.
//!
//! Series outlive the table of names: if the table was lost or replaced by an older copy, its counters are behind, and
//! the next new name would get the UID of a series that exists. Data services report what they use, with each request
//! that may assign, too, so that a service that was restarted on an older folder assigns nothing wrong.
//!
//! - Sequential UIDs: a kind with a counter below a UID in use assigns nothing until the counter was raised. A single
//!   number for each kind is enough, because assignments only take numbers after the counter.
//! - Random UIDs have no counter: the numbers in use are avoided, as those with a name are.
//!
//! Reports last until the process ends; they are not stored, because a copy of the folder would have older ones.

use std::collections::HashSet;
use std::sync::Arc;

use oxtsdb_schema::{KindState, PerKind, Uid, UidKind};
use parking_lot::{Mutex, RwLock};
use tracing::{error, info, warn};

use crate::error::UidServiceError;
use crate::table::UidTable;

/// Random UIDs that are remembered at most, of all reports; about 24 MiB.
pub(crate) const MAX_RANDOM: usize = 1 << 20;

/// The UIDs of one kind that a data service uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindInUse {
    /// The kind.
    pub kind: UidKind,
    /// The highest number.
    pub highest: u64,
    /// For a kind with random UIDs: all.
    pub random: Vec<Uid>,
}

/// The error of assignments of a blocked kind.
pub const fn error_of(state: &KindState) -> UidServiceError {
    UidServiceError::CounterBelowUse {
        kind: state.kind,
        counter: state.counter,
        in_use: state.highest_in_use,
    }
}

/// The UIDs in use that data services have reported. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct InUse(Arc<Reports>);

#[derive(Debug, Default)]
struct Reports {
    sequential: Mutex<PerKind<Sequential>>,
    random: RwLock<PerKind<HashSet<u64>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sequential {
    highest: u64,
    /// The counter when it was read last.
    counter: u64,
    /// The log has that no UID is assigned.
    is_logged: bool,
}

impl InUse {
    /// Adds a report.
    ///
    /// # Errors
    ///
    /// There are more random UIDs than [`MAX_RANDOM`].
    pub(crate) fn add(&self, kinds: &[KindInUse]) -> Result<(), UidServiceError> {
        for KindInUse {
            kind,
            highest,
            random,
        } in kinds
        {
            let mut sequential = self.0.sequential.lock();
            let known = sequential.get_mut(*kind);
            known.highest = known.highest.max(*highest);
            drop(sequential);
            let is_known = {
                let known = self.0.random.read();
                random.iter().all(|uid| known.get(*kind).contains(&uid.number()))
            };
            if is_known {
                continue;
            }
            let mut known = self.0.random.write();
            let known = known.get_mut(*kind);
            known.extend(random.iter().map(Uid::number));
            if known.len() > MAX_RANDOM {
                return Err(UidServiceError::TooManyInUse {
                    kind: *kind,
                    limit: MAX_RANDOM,
                });
            }
        }
        Ok(())
    }

    /// Whether a series has this random UID.
    pub(crate) fn has_random(&self, kind: UidKind, uid: Uid) -> bool {
        self.0.random.read().get(kind).contains(&uid.number())
    }

    /// Accepts the counter of a kind that is about to assign.
    ///
    /// # Errors
    ///
    /// [`UidServiceError::CounterBelowUse`] if a UID in use is above it.
    pub(crate) fn check(&self, kind: UidKind, counter: u64) -> Result<(), UidServiceError> {
        let mut sequential = self.0.sequential.lock();
        let known = sequential.get_mut(kind);
        known.counter = counter;
        if counter >= known.highest {
            if std::mem::take(&mut known.is_logged) {
                info!(%kind, counter, "the kind assigns UIDs again");
            }
            return Ok(());
        }
        let error = UidServiceError::CounterBelowUse {
            kind,
            counter,
            in_use: known.highest,
        };
        if !std::mem::replace(&mut known.is_logged, true) {
            error!(%kind, counter, in_use = known.highest, "{error}");
        }
        Err(error)
    }

    /// Reads the counters that may be behind, and returns the state of each kind with sequential UIDs.
    ///
    /// # Errors
    ///
    /// A counter cannot be read.
    pub(crate) async fn refresh(&self, table: &UidTable) -> Result<Vec<KindState>, UidServiceError> {
        for state in self.states(table) {
            if state.is_blocked() {
                let counter = table.counter(state.kind).await?.number;
                // The state has the result.
                let _ = self.check(state.kind, counter);
            }
        }
        Ok(self.states(table))
    }

    /// As [`InUse::refresh`]; a counter that cannot be read is logged.
    pub(crate) async fn keep_up(&self, table: &UidTable) {
        if let Err(error) = self.refresh(table).await {
            warn!(%error, "the counters were not compared with the UIDs in use");
        }
    }

    /// The state of each kind with sequential UIDs, as it was read last.
    pub(crate) fn states(&self, table: &UidTable) -> Vec<KindState> {
        let sequential = *self.0.sequential.lock();
        let kinds = UidKind::ALL.into_iter();
        kinds
            .filter(|kind| !table.layout().kinds.get(*kind).random)
            .map(|kind| {
                let known = sequential.get(kind);
                KindState {
                    kind,
                    counter: known.counter,
                    highest_in_use: known.highest,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    fn highest(kind: UidKind, highest: u64) -> KindInUse {
        KindInUse {
            kind,
            highest,
            random: Vec::new(),
        }
    }

    #[test]
    fn a_counter_below_a_reported_uid_is_rejected_until_it_was_raised() {
        let in_use = InUse::default();
        in_use.check(UidKind::Tagv, 0).unwrap();
        in_use.add(&[highest(UidKind::Tagv, 42)]).unwrap();
        in_use.add(&[highest(UidKind::Tagv, 7)]).unwrap();
        let error = in_use.check(UidKind::Tagv, 41).unwrap_err().to_string();
        for part in ["`tagv`", "41", "42", "tsdb uid recover"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        in_use.check(UidKind::Metric, 0).unwrap();
        in_use.check(UidKind::Tagv, 42).unwrap();
    }

    #[test]
    fn random_uids_of_all_reports_are_known() {
        let in_use = InUse::default();
        let uid = |number| Uid::from_number(number, UidWidth::DEFAULT).unwrap();
        for numbers in [[3, 9], [9, 11]] {
            let random = numbers.map(uid).to_vec();
            let report = KindInUse {
                random,
                ..highest(UidKind::Metric, 0)
            };
            in_use.add(&[report]).unwrap();
        }
        let known: Vec<u64> = (1..20)
            .filter(|number| in_use.has_random(UidKind::Metric, uid(*number)))
            .collect();
        assert_eq!(known, [3, 9, 11]);
    }
}
