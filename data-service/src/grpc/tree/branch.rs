//! `TreeService.GetBranch`.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_proto::data::v1::GetBranchResponse;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::{Admitted, RequestContext};
use oxtsdb_schema::tree::{BranchDocument, BranchId};
use tonic::Status;

use super::TreeServiceHandler;
use super::convert::{branch_message, leaf_message};
use super::status::tree_status;
use crate::grpc::query::query_status;
use crate::grpc::results::result_stream;

type Messages = MessageStream<GetBranchResponse>;

/// Streams a branch. It is admitted as a query, and the leaves are charged to the query's budget.
pub(super) async fn get_branch(
    handler: TreeServiceHandler,
    id: BranchId,
    context: RequestContext,
) -> Result<Messages, Status> {
    let admitted = handler.admit(context, format!("branch:{id}")).await?;
    let read = admitted.context().run(handler.trees.branch(&id)).await;
    let document = read.map_err(|error| tree_status(&error))?;
    let messages = messages(&handler, (id, document), &admitted);
    Ok(result_stream(messages, &handler.engine, Some(admitted)))
}

fn messages(
    handler: &TreeServiceHandler,
    (id, document): (BranchId, BranchDocument),
    admitted: &Admitted,
) -> Messages {
    let first = GetBranchResponse {
        branch: Some(branch_message(&id, document)),
        ..GetBranchResponse::default()
    };
    let leaves = handler.trees.leaves(id.clone(), admitted.budget().clone());
    let leaves = leaves.map_ok(|batch| GetBranchResponse {
        leaves: batch.leaves.into_iter().map(leaf_message).collect(),
        ..GetBranchResponse::default()
    });
    let children = handler.trees.children(id).map_ok(|children| GetBranchResponse {
        children: children
            .into_iter()
            .map(|(id, document)| branch_message(&id, document))
            .collect(),
        ..GetBranchResponse::default()
    });
    let context = admitted.context().clone();
    let rest = leaves
        .chain(children)
        .map_err(|error| tree_status(&error))
        .boxed();
    let rest = stream::unfold(Some((rest, context)), |state| async move {
        let (mut rest, context) = state?;
        tokio::select! {
            biased;
            message = rest.next() => message.map(|message| (message, Some((rest, context)))),
            error = context.interrupted() => Some((Err(query_status(&error, "", "")), None)),
        }
    });
    stream::iter([Ok(first)]).chain(rest).boxed()
}
