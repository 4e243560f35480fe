//! The generated trait, call by call.

use std::time::{SystemTime, UNIX_EPOCH};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_metadata::tree::Problem;
use oxtsdb_metadata::tree::edit::EditMode;
use oxtsdb_metadata::tree::error::TreeError;
use oxtsdb_metadata::tree::sync::SyncRequest;
use oxtsdb_proto::data::v1::get_branch_request::Branch as BranchKey;
use oxtsdb_proto::data::v1::list_tree_problems_response::Entry;
use oxtsdb_proto::data::v1::tree_service_server::TreeService;
use oxtsdb_proto::data::v1::{
    CreateTreeRequest, CreateTreeResponse, DeleteTreeRequest, DeleteTreeResponse, DeleteTreeRulesRequest,
    DeleteTreeRulesResponse, GetBranchRequest, GetBranchResponse, GetTreeRequest, GetTreeResponse,
    ListTreeProblemsRequest, ListTreeProblemsResponse, ListTreesRequest, ListTreesResponse,
    SetTreeRulesRequest, SetTreeRulesResponse, SyncTreesRequest, SyncTreesResponse, TestTreeRequest,
    TestTreeResponse, TreeProblem, UpdateTreeRequest, UpdateTreeResponse,
};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_resources::Panicked;
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::tree::{BranchId, TreeId};
use tonic::{Request, Response, Status};

use super::TreeServiceHandler;
use super::branch::get_branch;
use super::convert::{new_tree, rules, tree_edit, tree_id, tree_message};
use super::status::tree_status;
use super::test::test_tree;
use crate::grpc::query::field_error::{missing, no_such};
use crate::grpc::results::{context_of, result_stream};

/// Trees of a page if the request does not say, and at most.
const PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 1000;

#[tonic::async_trait]
impl TreeService for TreeServiceHandler {
    async fn create_tree(
        &self,
        request: Request<CreateTreeRequest>,
    ) -> Result<Response<CreateTreeResponse>, Status> {
        let tree = request.into_inner().tree.ok_or_else(|| missing("tree"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let created = now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or_default());
        // Rules are compiled.
        let converted = self.compute().run(move || new_tree(tree, created));
        let (definition, rules) = converted.await.map_err(panicked)??;
        let tree = self.trees.create(definition, rules).await.map_err(failed)?;
        Ok(Response::new(CreateTreeResponse {
            tree: Some(tree_message(tree)),
        }))
    }

    async fn get_tree(&self, request: Request<GetTreeRequest>) -> Result<Response<GetTreeResponse>, Status> {
        let id = tree_id("tree_id", request.into_inner().tree_id)?;
        let tree = self.trees.tree(id).await.map_err(failed)?;
        Ok(Response::new(GetTreeResponse {
            tree: Some(tree_message(tree)),
        }))
    }

    async fn list_trees(
        &self,
        request: Request<ListTreesRequest>,
    ) -> Result<Response<ListTreesResponse>, Status> {
        let request = request.into_inner();
        let size = match usize::try_from(request.page_size).unwrap_or(MAX_PAGE_SIZE) {
            0 => PAGE_SIZE,
            size => size.min(MAX_PAGE_SIZE),
        };
        let after = match request.page_token.as_str() {
            "" => None,
            token => {
                let id = token
                    .parse()
                    .ok()
                    .and_then(|number: u16| TreeId::new(number).ok());
                Some(id.ok_or_else(|| invalid_field("page_token", "is not from the page before"))?)
            }
        };
        let page = self.trees.list(after, size).await.map_err(failed)?;
        Ok(Response::new(ListTreesResponse {
            next_page_token: page.next_after.map_or_else(String::new, |id| id.to_string()),
            trees: page.trees.into_iter().map(tree_message).collect(),
        }))
    }

    async fn update_tree(
        &self,
        request: Request<UpdateTreeRequest>,
    ) -> Result<Response<UpdateTreeResponse>, Status> {
        let request = request.into_inner();
        let mut tree = request.tree.ok_or_else(|| missing("tree"))?;
        let id = tree_id("tree.tree_id", tree.tree_id)?;
        let etag = Some(std::mem::take(&mut tree.etag)).filter(|etag| !etag.is_empty());
        let edit = tree_edit(tree, request.update_mask.as_ref())?;
        let tree = self
            .trees
            .update(id, &edit, EditMode::Merge, etag.as_deref())
            .await
            .map_err(failed)?;
        Ok(Response::new(UpdateTreeResponse {
            tree: Some(tree_message(tree)),
        }))
    }

    async fn delete_tree(
        &self,
        request: Request<DeleteTreeRequest>,
    ) -> Result<Response<MessageStream<DeleteTreeResponse>>, Status> {
        let context = context_of(&request);
        let request = request.into_inner();
        let id = tree_id("tree_id", request.tree_id)?;
        let admitted = self.admit(context, format!("deletion of tree {id}")).await?;
        let progress = self
            .trees
            .delete(id, request.definition)
            .map_ok(|deleted| DeleteTreeResponse {
                branches: deleted.branches,
                leaves: deleted.leaves,
                problems: deleted.problems,
                done: deleted.is_done,
            });
        Ok(Response::new(result_stream(
            progress.map_err(failed),
            &self.engine,
            Some(admitted),
        )))
    }

    async fn set_tree_rules(
        &self,
        request: Request<SetTreeRulesRequest>,
    ) -> Result<Response<SetTreeRulesResponse>, Status> {
        let request = request.into_inner();
        let id = tree_id("tree_id", request.tree_id)?;
        let converted = self.compute().run(move || rules("rules", id, request.rules));
        let rules = converted.await.map_err(panicked)??;
        let tree = self
            .trees
            .set_rules(id, rules, request.replace_all)
            .await
            .map_err(failed)?;
        Ok(Response::new(SetTreeRulesResponse {
            tree: Some(tree_message(tree)),
        }))
    }

    async fn delete_tree_rules(
        &self,
        request: Request<DeleteTreeRulesRequest>,
    ) -> Result<Response<DeleteTreeRulesResponse>, Status> {
        let request = request.into_inner();
        let id = tree_id("tree_id", request.tree_id)?;
        let places: Vec<_> = request
            .places
            .iter()
            .map(|place| (place.level, place.order))
            .collect();
        let places = Some(&*places).filter(|places| !places.is_empty());
        let tree = self.trees.delete_rules(id, places).await.map_err(failed)?;
        Ok(Response::new(DeleteTreeRulesResponse {
            tree: Some(tree_message(tree)),
        }))
    }

    async fn get_branch(
        &self,
        request: Request<GetBranchRequest>,
    ) -> Result<Response<MessageStream<GetBranchResponse>>, Status> {
        let context = context_of(&request);
        let id = match request.into_inner().branch {
            None => {
                return Err(invalid_field(
                    "branch",
                    "is missing, expected branch_id or tree_id",
                ));
            }
            Some(BranchKey::TreeId(number)) => BranchId::root(tree_id("tree_id", number)?),
            Some(BranchKey::BranchId(bytes)) => {
                BranchId::from_bytes(&bytes).map_err(|error| invalid_field("branch_id", error.to_string()))?
            }
        };
        Ok(Response::new(get_branch(self.clone(), id, context).await?))
    }

    async fn test_tree(
        &self,
        request: Request<TestTreeRequest>,
    ) -> Result<Response<TestTreeResponse>, Status> {
        let request = request.into_inner();
        let id = tree_id("tree_id", request.tree_id)?;
        Ok(Response::new(test_tree(self, id, request.series).await?))
    }

    async fn sync_trees(
        &self,
        request: Request<SyncTreesRequest>,
    ) -> Result<Response<MessageStream<SyncTreesResponse>>, Status> {
        let context = context_of(&request);
        let request = request.into_inner();
        let id = |(index, number): (usize, &u32)| tree_id(&format!("tree_ids[{index}]"), *number);
        let request = SyncRequest {
            trees: request
                .tree_ids
                .iter()
                .enumerate()
                .map(id)
                .collect::<Result<_, _>>()?,
            start_after: request.start_after_tsuid.to_vec(),
            with_counters_only: request.all_series,
        };
        let admitted = self.admit(context, "treesync".to_owned()).await?;
        let progress = self.trees.sync(request).map_ok(|progress| SyncTreesResponse {
            series: progress.series,
            placed: progress.counts.placed,
            existing: progress.counts.existing,
            collisions: progress.counts.collisions,
            not_matched: progress.counts.not_matched,
            without_place: progress.counts.without_place,
            invalid: progress.invalid + progress.without_names,
            last_tsuid: progress.last.into(),
            done: progress.is_done,
        });
        Ok(Response::new(result_stream(
            progress.map_err(failed),
            &self.engine,
            Some(admitted),
        )))
    }

    async fn list_tree_problems(
        &self,
        request: Request<ListTreeProblemsRequest>,
    ) -> Result<Response<MessageStream<ListTreeProblemsResponse>>, Status> {
        let context = context_of(&request);
        let request = request.into_inner();
        let id = tree_id("tree_id", request.tree_id)?;
        let problem = match request.problem() {
            TreeProblem::Unspecified => return Err(no_such("problem", request.problem)),
            TreeProblem::Collision => Problem::Collision,
            TreeProblem::NotMatched => Problem::NotMatched,
        };
        let tsuids: Vec<Vec<u8>> = request.tsuids.iter().map(|tsuid| tsuid.to_vec()).collect();
        let admitted = self.admit(context, format!("problems of tree {id}")).await?;
        let budget = admitted.budget().clone();
        let mut problems = self.trees.problems(id, problem, tsuids, budget).fuse();
        // An error of the first read takes the place of the response.
        let first = admitted
            .context()
            .run(problems.try_next())
            .await
            .map_err(failed)?;
        let widths = *self.trees.uids().widths();
        let entry = move |(tsuid, text): (Vec<u8>, String)| {
            let other = Tsuid::parse(&text, &widths)
                .ok()
                .filter(|_| problem == Problem::Collision);
            Entry {
                tsuid: tsuid.into(),
                other_tsuid: other.map_or_else(Default::default, |other| other.as_bytes().to_vec().into()),
                message: if problem == Problem::NotMatched {
                    text
                } else {
                    String::new()
                },
            }
        };
        let context = admitted.context().clone();
        let rest = stream::unfold(Some((problems, context)), |state| async move {
            let (mut problems, context) = state?;
            match context.run(problems.try_next()).await {
                Ok(batch) => Some((Ok(batch?), Some((problems, context)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        let batches = stream::iter(first.map(Ok)).chain(rest);
        let messages = batches.map(move |batch| {
            let problems = batch.map_err(failed)?.problems;
            Ok(ListTreeProblemsResponse {
                entries: problems.into_iter().map(entry).collect(),
            })
        });
        Ok(Response::new(result_stream(
            messages,
            &self.engine,
            Some(admitted),
        )))
    }
}

fn panicked(error: Panicked) -> Status {
    failed(error.into())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: TreeError) -> Status {
    tree_status(&error)
}
