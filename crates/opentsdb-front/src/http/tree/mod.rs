//! `/api/tree` and all below it: definitions, rules, branches, and the testing of rules.
//!
//! Intended differences from OpenTSDB:
//! - A separator that is no regular expression, and expressions that cannot be matched in linear time, are rejected
//!   when they are set (400).
//! - A body that is not the JSON of its endpoint, and an unknown type of rule in it, are errors of the client (400),
//!   not of the server.
//! - `rules` stores all rules of a PUT or none, and accepts a rule that changes nothing.
//! - A branch lists children and leaves with names that differ in case only; OpenTSDB leaves out all but one.
//! - `test` responds with a branch of its own for each series; OpenTSDB shows the last one's for all of them.
//! - An edit that other edits overtake repeatedly is rejected (500); OpenTSDB ignores that it lost.
//!
//! Source: OpenTSDB 2.4, `TreeRpc`.

mod branch;
mod failure;
mod problems;
mod render;
mod request;
mod rule;
mod rules;
mod test;

use http::{Method, StatusCode};
use oxtsdb_metadata::tree::Tree;
use oxtsdb_metadata::tree::edit::EditMode;
use oxtsdb_query::QueryDescription;
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::tree::{TreeDocument, TreeId};

use crate::http::api_request::ApiRequest;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;
use failure::tree_error;
use request::{TreeRequest, valid_id};

/// Trees that are read at a time.
const PAGE: usize = 64;

/// All methods and paths.
pub(crate) async fn tree(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let mut segments = request.path.split('/').filter(|segment| !segment.is_empty());
    segments.find(|segment| segment.eq_ignore_ascii_case("tree"));
    match segments.next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "" => definition(request).await,
        "branch" => branch::branch(request).await,
        "rule" => rule::rule(request).await,
        "rules" => rules::rules(request).await,
        "test" => test::test(request).await,
        "collisions" => problems::problems(request, oxtsdb_metadata::tree::Problem::Collision).await,
        "notmatched" => problems::problems(request, oxtsdb_metadata::tree::Problem::NotMatched).await,
        _ => Err(HttpError::new(
            StatusCode::NOT_FOUND,
            "This endpoint is not supported",
        )),
    }
}

/// `/api/tree`.
async fn definition(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        method,
        parameters,
        context,
        mut body,
        ..
    } = request;
    let (trees, compute) = (&parts.trees, &parts.engine.resources().compute);
    let request = if body.bytes.is_empty() {
        TreeRequest::from_parameters(parameters)?
    } else {
        parsed(&mut body, compute, TreeRequest::from_json).await?
    };
    match *method {
        Method::GET if request.id == 0 => {
            let description = QueryDescription::without_range("trees");
            let admitted = parts.engine.admit(context, description, None).await;
            let admitted = admitted.map_err(|error| query_error(&error))?;
            let mut writer = BodyWriter::new();
            writer
                .hold_of(admitted.budget())
                .map_err(|error| query_error(&error))?;
            writer.out().push(b'[');
            let (mut after, mut is_first) = (None, true);
            loop {
                let page = trees
                    .list(after, PAGE)
                    .await
                    .map_err(|error| tree_error(&error))?;
                if !page.trees.is_empty() && !std::mem::replace(&mut is_first, false) {
                    writer.out().push(b',');
                }
                let written = writer.write_items(compute, page.trees, |out, tree| render::tree(out, &tree));
                writer = written.await.map_err(|error| query_error(&error))?;
                after = page.next_after;
                if after.is_none() {
                    break;
                }
            }
            writer.out().push(b']');
            Ok(Reply::json(writer.finish().map_err(|error| query_error(&error))?))
        }
        Method::GET => {
            let tree = trees
                .tree(valid_id(request.id)?)
                .await
                .map_err(|error| tree_error(&error))?;
            reply(tree, compute).await
        }
        Method::POST | Method::PUT => edit(request, method, trees, compute).await,
        Method::DELETE => {
            use futures::TryStreamExt as _;

            let id = valid_id(request.id)?;
            trees.tree(id).await.map_err(|error| tree_error(&error))?;
            let description = QueryDescription::without_range(format!("deletion of tree {id}"));
            let admitted = parts.engine.admit(context, description, None).await;
            let _turn = admitted.map_err(|error| query_error(&error))?;
            let mut progress = trees.delete(id, request.with_definition);
            while progress
                .try_next()
                .await
                .map_err(|error| tree_error(&error))?
                .is_some()
            {}
            Ok(Reply::empty())
        }
        _ => Err(unsupported_method()),
    }
}

/// Creates or changes a tree.
async fn edit(
    request: TreeRequest,
    method: &Method,
    trees: &oxtsdb_metadata::tree::Trees,
    compute: &ComputePool,
) -> Result<Reply, HttpError> {
    let tree = if request.id > 0 {
        let id = valid_id(request.id)?;
        let mut edit = request.edit;
        if edit.is_empty() {
            trees.tree(id).await.map_err(|error| tree_error(&error))?;
            return Ok(Reply::not_modified());
        }
        let mode = mode(method);
        if mode == EditMode::Merge {
            // An empty text counts as not sent.
            for text in [&mut edit.name, &mut edit.description, &mut edit.notes] {
                *text = text.take().filter(|text| !text.is_empty());
            }
        }
        trees.update(id, &edit, mode, None).await
    } else {
        let created = TreeDocument {
            created: request.created,
            ..TreeDocument::default()
        };
        let definition = request
            .edit
            .apply(&created, EditMode::Replace)
            .map_err(|error| tree_error(&error))?;
        trees.create(definition, Vec::new()).await
    };
    reply(tree.map_err(|error| tree_error(&error))?, compute).await
}

/// A tree; its rules may take megabytes.
async fn reply(tree: Tree, compute: &ComputePool) -> Result<Reply, HttpError> {
    let reply = compute.run(move || render::reply(|out| render::tree(out, &tree)));
    reply.await.map_err(|error| query_error(&error.into()))
}

/// The treatment of unsent fields by a method.
fn mode(method: &Method) -> EditMode {
    if *method == Method::PUT {
        EditMode::Replace
    } else {
        EditMode::Merge
    }
}

fn unsupported_method() -> HttpError {
    HttpError::bad_request("Unsupported HTTP request method")
}

/// The tree of a request; 404 without it.
async fn existing(trees: &oxtsdb_metadata::tree::Trees, id: i64) -> Result<TreeId, HttpError> {
    let id = valid_id(id)?;
    trees.check_exists(id).await.map_err(|error| tree_error(&error))?;
    Ok(id)
}

#[cfg(test)]
mod tests;
