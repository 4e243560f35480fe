//! A checker of recorded histories of names and UIDs.
//!
//! Each operation has an interval: it took effect at an instant between its start and its end, if it did. From these
//! the checker derives, for each UID, which names it had and when:
//!
//! ```text
//!   create a      rename a to b       delete b
//!   |------|        |------|          |-----|
//!   ....aaaaaaaaaaaaaaaaaaaaa         .......        possible: from the start of one to the end of the next
//!          aaaaaaaaaa                                certain: from the end of one to the start of the next
//! ```
//!
//! Rules:
//!
//! 1. The renames and the delete of a UID form one chain: each one's old name is the new name of the one before, in an
//!    order that agrees with the intervals. (The retry of a rename is acknowledged without effect.) Nothing follows a
//!    delete, so that a deleted UID never comes back.
//! 2. A UID is created once. At no instant do two UIDs certainly have one name. (Two names of one UID break rule 1.)
//! 3. A response with a mapping was possible at an instant between its start, less the bound of staleness, and its end.
//! 4. A response without one is wrong if the name, or the UID, was certainly mapped all the time from its start to its
//!    end. (Absence is not cached.)
//!
//! [`check_watch`] has the rules of watches.
//!
//! An operation that failed may have taken effect, at any instant after its start, or not at all. So the checker accepts
//! every correct history; it does not find every wrong one.

mod lives;
mod record;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::fmt;

use lives::{Life, Tenure, collect, tenures_of};
pub use record::{Plan, Recorded, record};
pub use watch::{Event, Watch, check_watch};

/// Microseconds since the start of the recording.
pub type Instant = u64;

/// An action of a client, and the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Requested the UID of a name, to be assigned if there is none.
    GetOrCreate {
        /// The name.
        name: String,
        /// The UID, and whether this request assigned it; `None`: the request failed.
        outcome: Option<(u64, bool)>,
    },
    /// Renamed a UID.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
        /// The UID.
        outcome: Change,
    },
    /// Deleted a mapping.
    Delete {
        /// The name.
        name: String,
        /// The UID.
        outcome: Change,
    },
    /// Looked up a name.
    LookupUid {
        /// The name.
        name: String,
        /// Its UID; `None`: it has none.
        uid: Option<u64>,
    },
    /// Looked up a UID.
    LookupName {
        /// The UID.
        uid: u64,
        /// Its name; `None`: it has none.
        name: Option<String>,
    },
}

/// The response to a rename or a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Done, to this UID.
    Done(u64),
    /// Rejected because there is no such name.
    NotFound,
    /// Rejected without effect for another reason.
    Rejected,
    /// Not known. The UID is what the client expected.
    Unknown(u64),
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When the client sent it.
    pub start: Instant,
    /// When the client had the response.
    pub end: Instant,
    /// The action.
    pub action: Action,
}

/// A history that the service must not produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Checks a history. A response may be older than its request by `staleness` microseconds.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &[Operation], staleness: Instant) -> Result<(), Violation> {
    let mut lives: BTreeMap<u64, Life> = BTreeMap::new();
    // Requests with a lost response may have assigned any UID to their name.
    let mut lost: BTreeMap<&str, Instant> = BTreeMap::new();
    for operation in history {
        collect(operation, &mut lives, &mut lost);
    }
    let mut tenures: BTreeMap<u64, Vec<Tenure>> = BTreeMap::new();
    for (uid, life) in &lives {
        tenures.insert(*uid, tenures_of(*uid, life, &lost)?);
    }
    let mut by_name: BTreeMap<&str, Vec<&Tenure>> = BTreeMap::new();
    for tenure in tenures.values().flatten() {
        by_name.entry(&tenure.name).or_default().push(tenure);
    }
    for (name, tenures) in &mut by_name {
        check_one_uid(name, tenures)?;
    }
    for operation in history {
        check_response(operation, staleness, &tenures, &by_name)?;
    }
    Ok(())
}

/// Rule 2.
fn check_one_uid(name: &str, tenures: &mut [&Tenure]) -> Result<(), Violation> {
    tenures.sort_by_key(|tenure| tenure.certain);
    let certain = tenures
        .iter()
        .filter(|tenure| tenure.certain.0 < tenure.certain.1);
    let mut last: Option<&Tenure> = None;
    for tenure in certain {
        if let Some(last) = last
            && last.uid != tenure.uid
            && last.certain.1 > tenure.certain.0
        {
            return Err(Violation(format!(
                "`{name}` has two UIDs at once: {last:?} and {tenure:?}"
            )));
        }
        if last.is_none_or(|last| last.certain.1 < tenure.certain.1) {
            last = Some(tenure);
        }
    }
    Ok(())
}

/// Rules 3 and 4.
fn check_response(
    operation: &Operation,
    staleness: Instant,
    by_uid: &BTreeMap<u64, Vec<Tenure>>,
    by_name: &BTreeMap<&str, Vec<&Tenure>>,
) -> Result<(), Violation> {
    let (start, end) = (operation.start, operation.end);
    let of_uid = |uid: u64| by_uid.get(&uid).map_or(&[][..], Vec::as_slice);
    let of_name = |name: &str| by_name.get(name).map_or(&[][..], Vec::as_slice);
    let had_name = |uid: u64, name: &str, staleness: Instant| {
        let since = start.saturating_sub(staleness);
        let mut tenures = of_uid(uid).iter().filter(|tenure| tenure.name == name);
        if tenures.any(|tenure| tenure.possible.0 <= end && tenure.possible.1 >= since) {
            return Ok(());
        }
        Err(Violation(format!(
            "{operation:?}: UID {uid} did not have the name `{name}` at any instant from {since} on, but {:?}",
            of_uid(uid)
        )))
    };
    let covers = |tenure: &Tenure| tenure.certain.0 < start && end < tenure.certain.1;
    let no_uid = |name: &str| match of_name(name).iter().find(|tenure| covers(tenure)) {
        Some(tenure) => Err(Violation(format!(
            "{operation:?}: the name has a UID: {tenure:?}"
        ))),
        None => Ok(()),
    };
    match &operation.action {
        Action::GetOrCreate { name, outcome } => match outcome {
            Some((uid, created)) => had_name(*uid, name, if *created { 0 } else { staleness }),
            None => Ok(()),
        },
        Action::LookupUid { name, uid: Some(uid) } => had_name(*uid, name, staleness),
        Action::LookupUid { name, uid: None } => no_uid(name),
        Action::LookupName {
            uid,
            name: Some(name),
        } => had_name(*uid, name, staleness),
        Action::LookupName { uid, name: None } => match of_uid(*uid).iter().find(|tenure| covers(tenure)) {
            Some(tenure) => Err(Violation(format!(
                "{operation:?}: the UID has a name: {tenure:?}"
            ))),
            None => Ok(()),
        },
        Action::Rename {
            from,
            outcome: Change::NotFound,
            ..
        } => no_uid(from),
        Action::Delete {
            name,
            outcome: Change::NotFound,
        } => no_uid(name),
        Action::Rename { .. } | Action::Delete { .. } => Ok(()),
    }
}
