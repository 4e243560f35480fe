//! Results of an assignment, and its retries; shared by the two protocols.

use oxtsdb_schema::{AssignedUid, Uid};

use crate::error::UidServiceError;
use crate::table::KindName;

/// The result for one name.
pub(crate) type Outcome = Result<AssignedUid, UidServiceError>;

/// Attempts of a batch while other programs change its cells.
pub(super) const ATTEMPTS: u32 = 32;

/// Numbers that a batch skips because a reverse mapping exists, before it rejects its names. The counter
/// keeps its progress, so that the next request continues there.
pub(super) const MAX_SKIPPED: usize = 4096;

/// The preliminary outcome of a name: the UID in the table, or that the name is contended.
pub(super) fn already_there(result: Result<Option<Uid>, UidServiceError>, key: &KindName) -> (bool, Outcome) {
    match result {
        Ok(Some(uid)) => (true, Ok(AssignedUid { uid, created: false })),
        Ok(None) => (
            false,
            Err(UidServiceError::Contended {
                kind: key.0,
                name: key.1.clone(),
            }),
        ),
        Err(error) => (true, Err(error)),
    }
}

/// Waits for a random time that grows with each attempt, so that one of several racing writers succeeds.
pub(super) async fn back_off(attempt: u32) {
    let limit_us = 100_u64 << attempt.min(8);
    tokio::time::sleep(std::time::Duration::from_micros(rand::random_range(0..=limit_us))).await;
}
