//! `/api/tree/rules`: all rules of a tree.
//!
//! POST edits one rule after the other, and PUT replaces the stored rules with all of them.

use http::Method;
use oxtsdb_metadata::tree::define::RuleChange;
use oxtsdb_metadata::tree::edit::{EditMode, EditedRule};

use super::failure::{repeated, tree_error};
use super::request::{RuleRequest, tree_id};
use super::{existing, unsupported_method};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;

/// All methods.
pub(super) async fn rules(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        method,
        parameters,
        mut body,
        ..
    } = request;
    let trees = &parts.trees;
    let (tree, requests) = if body.bytes.is_empty() {
        (tree_id(parameters)?.unwrap_or_default(), Vec::new())
    } else {
        let compute = &parts.engine.resources().compute;
        let requests = parsed(&mut body, compute, RuleRequest::list_of_json).await?;
        let first = requests.first().ok_or_else(missing_rules)?.tree;
        if requests.iter().any(|request| request.tree != first) {
            return Err(HttpError::bad_request("All rules must belong to the same tree"));
        }
        (first, requests)
    };
    let id = existing(trees, tree).await?;
    match *method {
        Method::POST | Method::PUT if requests.is_empty() => Err(missing_rules()),
        Method::POST => {
            for request in requests {
                let change = trees.edit_rule(id, &request.edit, EditMode::Merge).await;
                if change.map_err(|error| tree_error(&error))? == RuleChange::NoType {
                    return Err(missing_type());
                }
            }
            Ok(Reply::empty())
        }
        Method::PUT => {
            let mut rules = Vec::with_capacity(requests.len());
            for request in &requests {
                match request.edit.apply(id, None, EditMode::Replace) {
                    EditedRule::Changed(rule) => rules.push(*rule),
                    EditedRule::Unchanged | EditedRule::NoType => return Err(missing_type()),
                }
            }
            trees
                .set_rules(id, rules, true)
                .await
                .map_err(|error| tree_error(&error))?;
            Ok(Reply::empty())
        }
        Method::DELETE => {
            trees
                .delete_rules(id, None)
                .await
                .map_err(|error| tree_error(&error))?;
            Ok(Reply::empty())
        }
        _ => Err(unsupported_method()),
    }
}

fn missing_rules() -> HttpError {
    HttpError::bad_request("Missing tree rules")
}

fn missing_type() -> HttpError {
    repeated("Missing rule type")
}
