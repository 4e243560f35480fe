//! `/api/tree/branch`: a branch with its leaves and children.

use futures::TryStreamExt as _;
use http::{Method, StatusCode};
use oxtsdb_query::{QueryDescription, QueryError};
use oxtsdb_schema::tree::{BranchDocument, BranchId};

use super::failure::{of_tree, repeated};
use super::request::tree_id;
use super::{render, unsupported_method};
use crate::http::api_request::ApiRequest;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::query::failure::of_query;
use crate::http::reply::Reply;
use crate::tree::branch::{Branch, LEAF_BYTES, Leaf, LeafNames};

/// Memory of a child, in bytes; an estimate.
const CHILD_BYTES: u64 = 512;

/// GET.
pub(super) async fn branch(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        method,
        parameters,
        context,
        ..
    } = request;
    if *method != Method::GET {
        return Err(unsupported_method());
    }
    let tree = tree_id(parameters)?.unwrap_or_default();
    let id = match parameters.get("branch").filter(|branch| !branch.is_empty()) {
        Some(text) => branch_id(text)?,
        None if tree < 1 => return Err(HttpError::bad_request("Missing or invalid branch and tree IDs")),
        None => BranchId::root(super::valid_id(tree)?),
    };
    let description = QueryDescription::without_range(format!("branch:{id}"));
    let admitted = parts.engine.admit(context, description, None).await;
    let admitted = admitted.map_err(|error| of_query(&error))?;
    let context = admitted.context().clone();
    let failed = |error: QueryError| of_query(&error);
    let read = context
        .run(async { Ok(parts.trees.branch(id, admitted.budget()).await) })
        .await;
    let Branch { id, document, leaves } = read.map_err(failed)?.map_err(|error| of_tree(&error))?;
    let _leaves = admitted
        .budget()
        .hold(leaves.len() as u64 * LEAF_BYTES)
        .map_err(failed)?;
    let names = context
        .run(async { Ok(parts.trees.leaf_names(&leaves).await) })
        .await;
    let names = names.map_err(failed)?.map_err(|error| of_tree(&error))?;
    let mut stream = parts.trees.children(id.clone());
    let (mut children, mut held) = (Vec::new(), admitted.budget().hold(0).map_err(failed)?);
    loop {
        let next = context.run(async { Ok(stream.try_next().await) }).await;
        let Some(batch) = next.map_err(failed)?.map_err(|error| of_tree(&error))? else {
            break;
        };
        held.grow(batch.len() as u64 * CHILD_BYTES).map_err(failed)?;
        children.extend(batch);
    }
    let budget = admitted.budget().clone();
    let written = parts.engine.resources().compute.run(move || {
        let mut writer = BodyWriter::new();
        writer.hold_of(&budget)?;
        write(&mut writer, (&id, &document), leaves, names, children)?;
        let body = writer.finish();
        drop(held);
        body
    });
    let body = written.await.map_err(QueryError::from).flatten();
    Ok(Reply::json(body.map_err(failed)?))
}

/// The branch that a text names.
fn branch_id(text: &str) -> Result<BranchId, HttpError> {
    if text.chars().count() < 4 {
        return Err(repeated("Branch ID was too short"));
    }
    let padded = if text.len().is_multiple_of(2) {
        text.to_owned()
    } else {
        format!("0{text}")
    };
    let bytes = hex::decode(&padded)
        .map_err(|_| repeated(format!("contains illegal character for hexBinary: {padded}")))?;
    BranchId::from_bytes(&bytes).map_err(|_| {
        let tree = bytes.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        let branch = hex::encode_upper(&bytes);
        let message = format!("Unable to locate branch '{branch}' for tree '{tree}'");
        HttpError::new(StatusCode::NOT_FOUND, message)
    })
}

fn write(
    writer: &mut BodyWriter,
    (id, document): (&BranchId, &BranchDocument),
    leaves: Vec<Leaf>,
    names: Vec<Option<LeafNames>>,
    mut children: Vec<(BranchId, BranchDocument)>,
) -> Result<(), QueryError> {
    // A series with a UID that has no name is left out.
    let mut leaves: Vec<(Leaf, LeafNames)> = leaves
        .into_iter()
        .zip(names)
        .filter_map(|(leaf, names)| Some((leaf, names?)))
        .collect();
    leaves.sort_by_cached_key(|(leaf, _)| name_order(&leaf.display_name));
    children.sort_by_cached_key(|(_, child)| name_order(&child.display_name));
    writer.out().extend_from_slice(b"{\"leaves\":");
    list(writer, &leaves, |out, (leaf, names)| {
        render::leaf(out, leaf, names)
    })?;
    writer.out().extend_from_slice(b",\"branches\":");
    list(writer, &children, |out, (id, child)| {
        render::child(out, id, child)
    })?;
    render::branch_end(writer.out(), id, document);
    writer.roll()
}

/// An array, or `null` if it is empty.
fn list<T>(writer: &mut BodyWriter, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) -> Result<(), QueryError> {
    if items.is_empty() {
        writer.out().extend_from_slice(b"null");
        return Ok(());
    }
    for (place, item) in items.iter().enumerate() {
        writer.out().push(if place == 0 { b'[' } else { b',' });
        write(writer.out(), item);
        writer.roll()?;
    }
    writer.out().push(b']');
    Ok(())
}

/// The order of names: without case first.
fn name_order(name: &str) -> (String, String) {
    (name.to_lowercase(), name.to_owned())
}
