//! `/api/tree/rule`: one rule.

use http::{Method, StatusCode};
use oxtsdb_metadata::tree::define::RuleChange;

use super::failure::{repeated, tree_error};
use super::request::RuleRequest;
use super::{existing, mode, render, unsupported_method};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;

/// All methods.
pub(super) async fn rule(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        method,
        parameters,
        mut body,
        ..
    } = request;
    let trees = &parts.trees;
    let RuleRequest { tree, edit } = if body.bytes.is_empty() {
        RuleRequest::from_parameters(parameters)?
    } else {
        parsed(
            &mut body,
            &parts.engine.resources().compute,
            RuleRequest::from_json,
        )
        .await?
    };
    if edit.level < 0 {
        return Err(repeated("Negative levels are not allowed"));
    }
    let id = existing(trees, tree).await?;
    let place = u32::try_from(edit.level).ok().zip(u32::try_from(edit.order).ok());
    let absent = || {
        let rule_type = edit
            .rule_type
            .map_or("null", oxtsdb_schema::tree::RuleType::as_str);
        let message = format!(
            "Unable to locate rule: [{id}:{}:{}:{rule_type}]",
            edit.level, edit.order
        );
        HttpError::new(StatusCode::NOT_FOUND, message)
    };
    match *method {
        Method::GET => {
            let tree = trees.tree(id).await.map_err(|error| tree_error(&error))?;
            let rule = place
                .and_then(|place| tree.rules.get(&place))
                .ok_or_else(absent)?;
            Ok(render::reply(|out| render::rule(out, rule)))
        }
        Method::POST | Method::PUT => {
            let change = trees.edit_rule(id, &edit, mode(method)).await;
            match change.map_err(|error| tree_error(&error))? {
                RuleChange::Unchanged => Ok(Reply::not_modified()),
                RuleChange::NoType => Err(repeated("Missing rule type")),
                RuleChange::Stored(rule) => Ok(render::reply(|out| render::rule(out, &rule))),
            }
        }
        Method::DELETE => {
            use oxtsdb_metadata::tree::error::TreeError;

            let place = place.ok_or_else(absent)?;
            match trees.delete_rules(id, Some(&[place])).await {
                Ok(_) => Ok(Reply::empty()),
                Err(TreeError::RuleNotFound { .. }) => Err(absent()),
                Err(error) => Err(tree_error(&error)),
            }
        }
        _ => Err(unsupported_method()),
    }
}
