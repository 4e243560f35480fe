//! Calls that check a table and repair it, the same of rows and of UIDs: grace period, size of a request, results.

use std::fmt::Display;
use std::time::Duration;

use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, item_error};
use oxtsdb_row_store::StoreError;
use oxtsdb_row_store::repair::Applied;
use tonic::{Code, Status};

use crate::store_error::{code_of_store_error, status_of_store_error};

/// Default of the grace period.
const GRACE_DEFAULT: Duration = Duration::from_secs(60);

/// Longest grace period.
const GRACE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Maximum count of repairs of a request.
const MAX_REPAIRS: usize = 1024;

/// The field `grace_period` of a check.
///
/// # Errors
///
/// It is longer than 7 days.
pub fn grace_period(field: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(grace) = field else {
        return Ok(GRACE_DEFAULT);
    };
    let grace = Duration::try_from(grace).ok();
    grace
        .filter(|grace| *grace <= GRACE_MAX)
        .ok_or_else(|| invalid_field("grace_period", "is not 0 to 7 days"))
}

/// Checks the size of the field `repairs`; `changes` has the number of changes of each repair.
///
/// # Errors
///
/// There are no repairs, more than 1024, or more than `max_changes` changes of all of them.
pub fn check_size(changes: impl ExactSizeIterator<Item = usize>, max_changes: usize) -> Result<(), Status> {
    let repairs = changes.len();
    let changes: usize = changes.sum();
    let rule = if !(1..=MAX_REPAIRS).contains(&repairs) {
        format!("has {repairs} items, 1 to {MAX_REPAIRS} are allowed")
    } else if changes > max_changes {
        format!("has {changes} changes, at most {max_changes} are allowed")
    } else {
        return Ok(());
    };
    Err(invalid_field_because("repairs", ErrorReason::BatchTooLarge, rule))
}

/// Why a repair of a request was not applied.
#[derive(Debug)]
pub enum Failure {
    /// An error of this repair.
    Item(Box<ItemError>),
    /// The store failed.
    Store(StoreError),
    /// An error of the whole call.
    Call(Status),
}

impl Failure {
    /// The error of a repair with a cell that has neither its old nor its new value.
    pub fn state_changed(
        index: usize,
        error: impl Display,
        (row_key, qualifier): (&str, &str),
        is_partly_applied: bool,
    ) -> Self {
        let partly_applied = if is_partly_applied { "true" } else { "false" };
        let metadata = [
            ("row_key", row_key),
            ("qualifier", qualifier),
            ("partly_applied", partly_applied),
        ];
        let message = format!("repairs[{index}]: {error}");
        let error = item_error(Code::Aborted, ErrorReason::StateChanged, message, &metadata);
        // The same repair fails again.
        Self::Item(Box::new(ItemError {
            retryable: false,
            retry_delay: None,
            ..error
        }))
    }
}

impl From<Box<ItemError>> for Failure {
    fn from(error: Box<ItemError>) -> Self {
        Self::Item(error)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

/// Applies the repairs of a request one after the other. Returns their results, in order.
///
/// # Errors
///
/// The call failed; or the store, and no repair was applied: the call may as well be repeated as a whole.
pub async fn apply_each<R, A: Future<Output = Result<Applied, Failure>>>(
    repairs: Vec<R>,
    apply: impl Fn(usize, R) -> A,
) -> Result<Vec<Result<Applied, ItemError>>, Status> {
    let mut results = Vec::with_capacity(repairs.len());
    let mut unavailable = None;
    for (index, repair) in repairs.into_iter().enumerate() {
        results.push(match apply(index, repair).await {
            Ok(applied) => Ok(applied),
            Err(Failure::Item(error)) => Err(*error),
            Err(Failure::Store(error)) => {
                let (code, reason) = code_of_store_error(&error);
                let message = format!("repairs[{index}]: {error}");
                unavailable.get_or_insert(error);
                Err(item_error(code, reason, message, &[]))
            }
            Err(Failure::Call(status)) => return Err(status),
        });
    }
    match unavailable {
        Some(error) if results.iter().all(Result::is_err) => Err(status_of_store_error(&error)),
        _ => Ok(results),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn apply(_index: usize, outcome: Option<Applied>) -> Result<Applied, Failure> {
        outcome.ok_or_else(|| {
            let detail = "lost".to_owned();
            Failure::Store(StoreError::Unavailable { detail })
        })
    }

    #[tokio::test]
    async fn a_call_fails_if_the_store_failed_and_nothing_was_applied() {
        let results = apply_each(vec![None, Some(Applied::Changed)], apply)
            .await
            .unwrap();
        let error = results[0].as_ref().unwrap_err();
        assert!(error.message.starts_with("repairs[0]: "), "{error:?}");
        assert_eq!(results[1], Ok(Applied::Changed));
        let status = apply_each(vec![None, None], apply).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }

    #[test]
    fn sizes_and_grace_periods_have_limits() {
        let check = |changes: &[usize]| check_size(changes.iter().copied(), 3);
        let rejected = |changes: &[usize]| check(changes).unwrap_err().message().to_owned();
        assert!(check(&[1, 2]).is_ok());
        assert_eq!(rejected(&[]), "repairs: has 0 items, 1 to 1024 are allowed");
        assert_eq!(
            rejected(&[0; 1025]),
            "repairs: has 1025 items, 1 to 1024 are allowed"
        );
        assert_eq!(rejected(&[2, 2]), "repairs: has 4 changes, at most 3 are allowed");
        let grace = |seconds| grace_period(Some(prost_types::Duration { seconds, nanos: 0 }));
        assert_eq!(grace_period(None).unwrap(), GRACE_DEFAULT);
        assert_eq!(grace(604_800).unwrap(), GRACE_MAX);
        for seconds in [-1, 604_801] {
            let message = grace(seconds).unwrap_err().message().to_owned();
            assert_eq!(message, "grace_period: is not 0 to 7 days");
        }
    }
}
