//! Trees: series sorted into a hierarchy by rules.

use oxtsdb_proto::common::v1::SeriesKey;
use oxtsdb_proto::data::v1::delete_tree_rules_request::Place;
use oxtsdb_proto::data::v1::list_tree_problems_response::Entry;
use oxtsdb_proto::data::v1::test_tree_response::Result as TestResult;
use oxtsdb_proto::data::v1::{
    CreateTreeRequest, DeleteTreeRequest, DeleteTreeResponse, DeleteTreeRulesRequest, GetBranchRequest,
    GetBranchResponse, GetTreeRequest, ListTreeProblemsRequest, ListTreesRequest, SetTreeRulesRequest,
    SyncTreesRequest, SyncTreesResponse, TestTreeRequest, Tree, TreeRule, UpdateTreeRequest,
};
use prost_types::FieldMask;

use crate::{DataClient, Error, Results};

/// `oxtsdb.data.v1.TreeService`.
impl DataClient {
    /// Creates a tree, with its rules if there are any. Do not repeat it after an error that leaves the outcome
    /// unknown without a look at [`list_trees`](Self::list_trees).
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` without a name or for a rule that cannot be applied.
    pub async fn create_tree(&self, tree: Tree) -> Result<Tree, Error> {
        let request = CreateTreeRequest { tree: Some(tree) };
        let response = self.connection().call(&request).await?;
        response.tree.ok_or_else(no_tree)
    }

    /// Returns a tree with its rules.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    pub async fn get_tree(&self, tree_id: u32) -> Result<Tree, Error> {
        let response = self.connection().call(&GetTreeRequest { tree_id }).await?;
        response.tree.ok_or_else(no_tree)
    }

    /// Returns all trees with their rules, by id.
    ///
    /// # Errors
    ///
    /// If a call fails.
    pub async fn list_trees(&self) -> Result<Vec<Tree>, Error> {
        let (mut trees, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListTreesRequest {
                page_size: 0,
                page_token,
            };
            let page = self.connection().call(&request).await?;
            trees.extend(page.trees);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(trees);
            }
        }
    }

    /// Sets these fields of a definition, or without any those that are not empty and not false. The etag, if not
    /// empty, must be the stored one.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `ABORTED` for another etag.
    pub async fn update_tree(&self, tree: Tree, fields: &[&str]) -> Result<Tree, Error> {
        let request = UpdateTreeRequest {
            tree: Some(tree),
            update_mask: (!fields.is_empty()).then(|| FieldMask {
                paths: fields.iter().map(|field| (*field).to_owned()).collect(),
            }),
        };
        let response = self.connection().call(&request).await?;
        response.tree.ok_or_else(no_tree)
    }

    /// Deletes what was placed in a tree and, on request, its definition; streams progress. A deletion that is
    /// interrupted can be repeated.
    ///
    /// # Errors
    ///
    /// If the service rejects the request; later errors come in the stream.
    pub async fn delete_tree(
        &self,
        tree_id: u32,
        definition: bool,
    ) -> Result<Results<DeleteTreeResponse>, Error> {
        let request = DeleteTreeRequest { tree_id, definition };
        let messages = self.connection().stream(&request).await?;
        Ok(Results::from_messages(messages, |message| Ok([message])).ending_with(|message| message.done))
    }

    /// Stores rules in one atomic write; with `replace_all` it deletes all others.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; `INVALID_ARGUMENT` for a rule that cannot be applied.
    pub async fn set_tree_rules(
        &self,
        tree_id: u32,
        rules: Vec<TreeRule>,
        replace_all: bool,
    ) -> Result<Tree, Error> {
        let request = SetTreeRulesRequest {
            tree_id,
            rules,
            replace_all,
        };
        let response = self.connection().call(&request).await?;
        response.tree.ok_or_else(no_tree)
    }

    /// Deletes the rules of these levels and orders in one atomic write; of none all rules.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` for the tree or a rule; then none is deleted.
    pub async fn delete_tree_rules(&self, tree_id: u32, places: &[(u32, u32)]) -> Result<Tree, Error> {
        let places = places.iter().map(|(level, order)| Place {
            level: *level,
            order: *order,
        });
        let request = DeleteTreeRulesRequest {
            tree_id,
            places: places.collect(),
        };
        let response = self.connection().call(&request).await?;
        response.tree.ok_or_else(no_tree)
    }

    /// Streams a branch, its leaves, and its children without theirs.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; later errors come in the stream.
    pub async fn get_branch(&self, request: GetBranchRequest) -> Result<Results<GetBranchResponse>, Error> {
        let messages = self.connection().stream(&request).await?;
        Ok(Results::from_messages(messages, |message| Ok([message])))
    }

    /// Returns where up to 100 series would be placed, in their order.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` for the tree.
    pub async fn test_tree(&self, tree_id: u32, series: Vec<SeriesKey>) -> Result<Vec<TestResult>, Error> {
        let request = TestTreeRequest { tree_id, series };
        Ok(self.connection().call(&request).await?.results)
    }

    /// Places all series and streams progress. A stream that breaks can be resumed behind its last series.
    ///
    /// # Errors
    ///
    /// If the service rejects the request; later errors come in the stream.
    pub async fn sync_trees(&self, request: SyncTreesRequest) -> Result<Results<SyncTreesResponse>, Error> {
        let messages = self.connection().stream(&request).await?;
        Ok(Results::from_messages(messages, |message| Ok([message])).ending_with(|message| message.done))
    }

    /// Streams the series that have no place in a tree.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`; later errors come in the stream.
    pub async fn list_tree_problems(
        &self,
        request: ListTreeProblemsRequest,
    ) -> Result<Results<Entry>, Error> {
        let messages = self.connection().stream(&request).await?;
        Ok(Results::from_messages(messages, |message| Ok(message.entries)))
    }
}

fn no_tree() -> Error {
    Error::protocol("the response has no tree")
}
