//! Which gRPC error a failure of an operation on trees gets.

use oxtsdb_metadata::tree::error::TreeError as E;
use oxtsdb_metadata::tree::rule::RuleError;
use oxtsdb_proto::common::v1::ErrorReason as R;
use oxtsdb_proto::error::{invalid_field, invalid_field_with, status};
use tonic::{Code, Status};

use crate::grpc::query::query_status;
use crate::grpc::status::{store_status, uids_status};

/// The error of an operation on trees.
pub(super) fn tree_status(error: &E) -> Status {
    let message = error.to_string();
    let not_found =
        |reason, metadata: &[(&str, &str)]| status(Code::NotFound, reason, message.clone(), metadata);
    match error {
        E::TreeNotFound(id) => not_found(R::TreeNotFound, &[("tree_id", &id.to_string())]),
        E::BranchNotFound(id) => not_found(R::BranchNotFound, &[("branch_id", &id.to_string())]),
        E::RuleNotFound { tree, level, order } => {
            let (tree, level, order) = (tree.to_string(), level.to_string(), order.to_string());
            not_found(
                R::RuleNotFound,
                &[("tree_id", &tree), ("level", &level), ("order", &order)],
            )
        }
        E::InvalidRule(error) => rule_status("rules", error),
        E::NoName => invalid_field("tree.name", "is empty"),
        E::TextTooLong { part, .. } => invalid_field(&format!("tree.{part}"), message),
        E::TooManyRules { .. } | E::RulesTooLarge(_) => invalid_field("rules", message),
        E::TreesTooLarge => invalid_field("tree_ids", message),
        E::EtagMismatch { stored, .. } => {
            status(Code::Aborted, R::EtagMismatch, message, &[("etag", stored)])
        }
        E::Contended(id) => {
            let row_key = hex::encode_upper(id.row_key());
            status(
                Code::Aborted,
                R::StateChanged,
                message,
                &[("row_key", &row_key), ("qualifier", "tree")],
            )
        }
        E::NoFreeId => status(Code::ResourceExhausted, R::NoFreeTreeId, message, &[]),
        E::Corrupt(cell) => {
            let table = cell.table.to_string();
            let (row_key, qualifier) = (
                hex::encode_upper(&cell.row_key),
                hex::encode_upper(&cell.qualifier),
            );
            let metadata = [
                ("table", &*table),
                ("row_key", &row_key),
                ("qualifier", &qualifier),
            ];
            status(Code::DataLoss, R::CorruptCell, message, &metadata)
        }
        E::Query(error) => query_status(error, "", ""),
        E::Store(error) => store_status(error),
        E::Uids(error) => uids_status(error),
    }
}

/// A rule that cannot be applied. `field` is the path of the rule, or of the rules.
pub(super) fn rule_status(field: &str, error: &RuleError) -> Status {
    let (tree, level, order) = (
        error.tree.to_string(),
        error.level.to_string(),
        error.order.to_string(),
    );
    let part = error.problem.part();
    let position = error.problem.position().map(|position| position.to_string());
    let mut metadata = vec![
        ("tree_id", &*tree),
        ("level", &level),
        ("order", &order),
        ("part", part),
    ];
    metadata.extend(position.as_deref().map(|position| ("position", position)));
    invalid_field_with(
        &format!("{field}.{part}"),
        R::InvalidRule,
        error.to_string(),
        &metadata,
    )
}
