//! Maps errors of trees to HTTP responses, with OpenTSDB's messages.

use http::StatusCode;
use oxtsdb_metadata::tree::error::TreeError as E;
use oxtsdb_metadata::tree::rule::{RuleError, RuleProblem as P};
use oxtsdb_query::QueryError;

use crate::http::error::HttpError;
use crate::http::query::failure::query_error;
use crate::http::suggest::uids_error;

/// An error of the caller; OpenTSDB repeats its message as its details.
pub(super) fn repeated(message: impl Into<String>) -> HttpError {
    let message = message.into();
    HttpError::bad_request(message.clone()).with_details(message)
}

/// The response to a failed operation.
pub(super) fn tree_error(error: &E) -> HttpError {
    let not_found = |message| HttpError::new(StatusCode::NOT_FOUND, message);
    match error {
        E::TreeNotFound(id) => not_found(format!("Unable to locate tree: {id}")),
        E::BranchNotFound(id) => {
            not_found(format!("Unable to locate branch '{id}' for tree '{}'", id.tree()))
        }
        E::RuleNotFound { tree, level, order } => {
            not_found(format!("Unable to locate rule: [{tree}:{level}:{order}:null]"))
        }
        E::InvalidRule(error) => rule_error(error),
        E::NoName => repeated("Tree was missing the name"),
        E::TextTooLong { .. } | E::TooManyRules { .. } | E::RulesTooLarge(_) | E::TreesTooLarge => {
            HttpError::bad_request(error.to_string())
        }
        E::EtagMismatch { tree, .. } | E::Contended(tree) => HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Unable to save changes to tree: {tree}"),
        )
        .with_details("Please try again at a later time"),
        E::NoFreeId => HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "Exhausted all Tree IDs"),
        E::Corrupt(_) => {
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).with_causes(error)
        }
        E::Query(error) => query_error(error),
        E::Store(error) => query_error(&QueryError::Store(error.clone())),
        E::Uids(error) => uids_error(error),
    }
}

fn rule_error(error: &RuleError) -> HttpError {
    let message = match &error.problem {
        P::Tree(_) => "Invalid Tree ID".to_owned(),
        P::NegativeLevel(_) => "Negative levels are not allowed".to_owned(),
        P::NegativeOrder(_) => "Invalid rule order".to_owned(),
        P::MissingField(rule_type) => format!("Missing field name required for {rule_type} rule"),
        P::MissingCustomField(rule_type) => {
            format!("Missing custom field name required for {rule_type} rule")
        }
        P::NegativeGroup(_) => "Invalid regex group index. Cannot be less than 0".to_owned(),
        P::NoSuchGroup { .. } | P::Regex(_) | P::Separator(_) | P::TooLong { .. } => error.to_string(),
    };
    repeated(message)
}
