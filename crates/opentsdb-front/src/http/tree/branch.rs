//! `/api/tree/branch`: a branch with its leaves and children.

use futures::TryStreamExt as _;
use http::{Method, StatusCode};
use oxtsdb_metadata::tree::branch::{Leaf, Leaves};
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_query::{Budget, Held, QueryContext, QueryDescription, QueryError};
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::tree::{BranchDocument, BranchId};

use super::failure::{repeated, tree_error};
use super::request::tree_id;
use super::{render, unsupported_method};
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::error::HttpError;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;

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
    let admitted = admitted.map_err(|error| query_error(&error))?;
    let (context, budget) = (admitted.context(), admitted.budget());
    let compute = context.compute(&parts.engine.resources().compute);
    let read = read(parts, id, context, budget).await;
    let branch = read.map_err(|error| tree_error(&error))?;
    let written = write(branch, &compute, budget);
    let body = context.run(written).await;
    Ok(Reply::json(body.map_err(|error| query_error(&error))?))
}

/// A branch as it was read, and the memory of its leaves and children.
struct Branch {
    id: BranchId,
    document: BranchDocument,
    /// In the order of the response; leaves of a series with a UID that has no name are left out.
    leaves: Vec<Ordered<Leaf>>,
    of_leaves: Held,
    children: Vec<Ordered<(BranchId, BranchDocument)>>,
    of_children: Held,
}

/// An item with its place in the order of names: without case first.
struct Ordered<T> {
    order: (Box<str>, Box<str>),
    item: T,
}

impl<T> Ordered<T> {
    fn new(name: &str, item: T) -> Self {
        let order = (name.to_lowercase().into(), name.into());
        Self { order, item }
    }

    /// Memory of the order, in bytes.
    fn order_bytes(&self) -> u64 {
        (size_of_val(&self.order) + self.order.0.len() + self.order.1.len()) as u64
    }
}

/// Sorts on the computation threads. It takes little time if the items are a sequence of sorted ones.
async fn sorted<T: Send + 'static>(
    compute: &ComputePool,
    mut items: Vec<Ordered<T>>,
) -> Result<Vec<Ordered<T>>, QueryError> {
    let sort = move || {
        items.sort_by(|one, other| one.order.cmp(&other.order));
        items
    };
    Ok(compute.run(sort).await?)
}

/// Reads a branch.
async fn read(
    parts: &ApiParts,
    id: BranchId,
    context: &QueryContext,
    budget: &Budget,
) -> Result<Branch, TreeError> {
    let compute = &context.compute(&parts.engine.resources().compute);
    let document = context.run(parts.trees.branch(&id)).await?;
    let mut batches = parts.trees.leaves(id.clone(), budget.clone());
    let (mut leaves, mut of_leaves) = (Vec::new(), budget.hold(0)?);
    while let Some(Leaves { leaves: batch, held }) = context.run(batches.try_next()).await? {
        of_leaves.merge(held);
        let order = move || {
            let named = batch.into_iter().filter(|leaf| leaf.names.is_some());
            let mut ordered: Vec<_> = named
                .map(|leaf| Ordered::new(&leaf.display_name.clone(), leaf))
                .collect();
            ordered.sort_by(|one, other| one.order.cmp(&other.order));
            ordered
        };
        let batch: Vec<Ordered<Leaf>> = compute.run(order).await?;
        of_leaves.grow(batch.iter().map(Ordered::order_bytes).sum())?;
        leaves.extend(batch);
    }
    let mut batches = parts.trees.children(id.clone());
    let (mut children, mut of_children) = (Vec::new(), budget.hold(0)?);
    while let Some(batch) = context.run(batches.try_next()).await? {
        let batch = batch
            .into_iter()
            .map(|(id, child)| Ordered::new(&child.display_name.clone(), (id, child)));
        let batch: Vec<_> = batch.collect();
        of_children.grow(batch.iter().map(|child| CHILD_BYTES + child.order_bytes()).sum())?;
        children.extend(batch);
    }
    Ok(Branch {
        leaves: sorted(compute, leaves).await?,
        children: sorted(compute, children).await?,
        id,
        document,
        of_leaves,
        of_children,
    })
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

/// Writes a branch; the memory of each item is released after it is written.
async fn write(branch: Branch, compute: &ComputePool, budget: &Budget) -> Result<ReplyBody, QueryError> {
    let Branch {
        id,
        document,
        leaves,
        mut of_leaves,
        children,
        mut of_children,
    } = branch;
    let mut writer = BodyWriter::with_budget(budget)?;
    writer.out().extend_from_slice(b"{\"leaves\":");
    let leaf = move |out: &mut Vec<u8>, leaf: Ordered<Leaf>| {
        render::leaf(out, &leaf.item);
        let released = leaf.order_bytes() + leaf.item.memory_bytes();
        of_leaves.shrink_to(of_leaves.bytes().saturating_sub(released));
    };
    writer = list(writer, compute, leaves, leaf).await?;
    writer.out().extend_from_slice(b",\"branches\":");
    let child = move |out: &mut Vec<u8>, child: Ordered<(BranchId, BranchDocument)>| {
        let (id, document) = &child.item;
        render::child(out, id, document);
        let released = CHILD_BYTES + child.order_bytes();
        of_children.shrink_to(of_children.bytes().saturating_sub(released));
    };
    writer = list(writer, compute, children, child).await?;
    render::branch_end(writer.out(), &id, &document);
    writer.finish()
}

/// An array, or `null` if it is empty.
async fn list<T: Send + 'static>(
    mut writer: BodyWriter,
    compute: &ComputePool,
    items: Vec<T>,
    write: impl FnMut(&mut Vec<u8>, T) + Send + 'static,
) -> Result<BodyWriter, QueryError> {
    if items.is_empty() {
        writer.out().extend_from_slice(b"null");
        return Ok(writer);
    }
    writer.out().push(b'[');
    let mut writer = writer.write_items(compute, items, write).await?;
    writer.out().push(b']');
    Ok(writer)
}
