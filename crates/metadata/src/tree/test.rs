//! Tests the rules of a tree on series, without storing anything.

use std::sync::Arc;

use oxtsdb_schema::Tsuid;
use oxtsdb_schema::tree::TreeId;

use super::Trees;
use super::enabled::ReadyTree;
use super::error::TreeError;
use super::evaluate::Outcome;
use super::facts::{NeededFields, NoName};

/// Where a series would be placed, and the messages; the error of a series with a UID that has no name.
pub(crate) type Tested = Result<(Outcome, Vec<String>), NoName>;

/// A tree with compiled rules. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct TreeTester {
    trees: Trees,
    tree: Arc<ReadyTree>,
}

impl Trees {
    /// Prepares tests of the rules of a tree.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`]; [`TreeError::InvalidRule`] if a stored rule cannot be applied; errors of the
    /// store.
    pub async fn tester(&self, id: TreeId) -> Result<TreeTester, TreeError> {
        Ok(TreeTester {
            trees: self.clone(),
            tree: self.ready(self.tree(id).await?).await?,
        })
    }
}

impl TreeTester {
    /// Memory of the compiled rules.
    pub fn memory_bytes(&self) -> u64 {
        self.tree.rules.memory_bytes() as u64
    }

    /// Tests series, in their order.
    ///
    /// # Errors
    ///
    /// Errors of the store and of the UID service.
    pub async fn test(&self, series: &[Tsuid]) -> Result<Vec<Tested>, TreeError> {
        let (trees, tree) = (&self.trees, Arc::clone(&self.tree));
        let facts = trees.facts(series, &NeededFields::from_trees([&tree])).await?;
        let test = move || {
            let tested = facts.into_iter();
            tested
                .map(|facts| facts.map(|facts| tree.rules.test(&facts)))
                .collect()
        };
        Ok(trees.0.compute.run(test).await?)
    }
}
