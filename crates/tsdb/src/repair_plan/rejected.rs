//! Repairs that a service has rejected: whether their undo is needed.

use oxtsdb_client::{ErrorReason, Rejection};

/// Whether a rejected repair changed nothing for certain. The client may have repeated the request: an attempt before
/// the rejected one may have applied a part.
pub(super) fn has_no_effect(rejection: &Rejection) -> bool {
    match rejection.reason {
        Some(ErrorReason::StateChanged) => rejection
            .metadata
            .get("partly_applied")
            .is_some_and(|value| value == "false"),
        Some(ErrorReason::InvalidField) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::Code;
    use oxtsdb_client::proto::error::item_error;

    use super::*;

    #[test]
    fn a_repair_that_may_be_applied_in_part_keeps_its_undo() {
        let rejected = |reason, metadata: &[(&str, &str)]| {
            let error = item_error(Code::Aborted, reason, "rejected", metadata);
            has_no_effect(&Rejection::from(error))
        };
        assert!(rejected(
            ErrorReason::StateChanged,
            &[("partly_applied", "false")]
        ));
        assert!(rejected(ErrorReason::InvalidField, &[]));
        assert!(!rejected(
            ErrorReason::StateChanged,
            &[("partly_applied", "true")]
        ));
        assert!(!rejected(ErrorReason::StateChanged, &[]), "an older server");
        assert!(!rejected(ErrorReason::OperationInProgress, &[]));
        assert!(!rejected(ErrorReason::StoreUnavailable, &[]));
    }
}
