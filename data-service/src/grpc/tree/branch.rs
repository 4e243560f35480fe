//! `TreeService.GetBranch`.

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_proto::data::v1::GetBranchResponse;
use oxtsdb_query::{Admitted, RequestContext};
use oxtsdb_schema::tree::BranchId;
use tonic::Status;

use super::TreeServiceHandler;
use super::convert::{branch_message, leaf_message};
use super::status::of_tree;
use crate::grpc::query::of_query;
use crate::grpc::results::result_stream;
use crate::tree::branch::{Branch, LEAF_BYTES};
use crate::tree::error::TreeError;

/// Leaves or children of a message.
const MESSAGE_ITEMS: usize = 512;

type Messages = BoxStream<'static, Result<GetBranchResponse, Status>>;

/// Streams a branch. It is admitted as a query, whose budget the leaves are charged to.
pub(super) async fn get_branch(
    handler: TreeServiceHandler,
    id: BranchId,
    context: RequestContext,
) -> Result<Messages, Status> {
    let table = handler.trees.table_name().to_string();
    let admitted = handler.admit(context, format!("branch:{id}")).await?;
    let read = admitted
        .context()
        .run(async { Ok(handler.trees.branch(id.clone(), admitted.budget()).await) });
    let read = read.await.map_err(|error| of_query(&error, "", &table))?;
    let branch = read.map_err(|error| of_tree(&error))?;
    let held = admitted.budget().hold(branch.leaves.len() as u64 * LEAF_BYTES);
    let held = held.map_err(|error| of_query(&error, "", &table))?;
    let messages = messages(&handler, branch, &admitted).chain(stream::poll_fn(move |_| {
        let _ = &held;
        std::task::Poll::Ready(None)
    }));
    Ok(result_stream(messages, &handler.engine, Some(admitted)))
}

fn messages(handler: &TreeServiceHandler, branch: Branch, admitted: &Admitted) -> Messages {
    let Branch { id, document, leaves } = branch;
    let first = GetBranchResponse {
        branch: Some(branch_message(&id, document)),
        ..GetBranchResponse::default()
    };
    let children = handler.trees.children(id).map_ok(|children| GetBranchResponse {
        children: children
            .into_iter()
            .map(|(id, document)| branch_message(&id, document))
            .collect(),
        ..GetBranchResponse::default()
    });
    let trees = handler.trees.clone();
    let leaves = stream::try_unfold((trees, leaves.into_iter()), |(trees, mut rest)| async move {
        let batch: Vec<_> = rest.by_ref().take(MESSAGE_ITEMS).collect();
        if batch.is_empty() {
            return Ok(None);
        }
        let names = trees.leaf_names(&batch).await?;
        let leaves = batch
            .iter()
            .zip(names)
            .map(|(leaf, names)| leaf_message(leaf, names));
        let message = GetBranchResponse {
            leaves: leaves.collect(),
            ..GetBranchResponse::default()
        };
        Ok::<_, TreeError>(Some((message, (trees, rest))))
    });
    let context = admitted.context().clone();
    let rest = leaves.chain(children).map_err(|error| of_tree(&error)).boxed();
    let rest = stream::unfold(Some((rest, context)), |state| async move {
        let (mut rest, context) = state?;
        tokio::select! {
            biased;
            message = rest.next() => message.map(|message| (message, Some((rest, context)))),
            error = context.interrupted() => Some((Err(of_query(&error, "", "")), None)),
        }
    });
    stream::iter([Ok(first)]).chain(rest).boxed()
}
