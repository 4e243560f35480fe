//! Tests the rules of a tree on series, without storing anything.

use oxtsdb_schema::Tsuid;
use oxtsdb_schema::tree::TreeId;

use super::Trees;
use super::error::TreeError;
use super::evaluate::Outcome;
use super::facts::{NeededFields, NoName};

/// Where a series would be placed, and the messages; the error of a series with a UID that has no name.
pub(crate) type Tested = Result<(Outcome, Vec<String>), NoName>;

impl Trees {
    /// Tests series, in their order.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`]; [`TreeError::InvalidRule`] if a stored rule cannot be applied; errors of the
    /// store and of the UID service.
    pub(crate) async fn test(&self, id: TreeId, series: &[Tsuid]) -> Result<Vec<Tested>, TreeError> {
        let tree = self.ready(self.tree(id).await?).await?;
        let facts = self.facts(series, &NeededFields::of([&tree])).await?;
        let test = move || {
            let tested = facts.into_iter();
            tested
                .map(|facts| facts.map(|facts| tree.rules.test(&facts)))
                .collect()
        };
        Ok(self.0.compute.run(test).await?)
    }
}
