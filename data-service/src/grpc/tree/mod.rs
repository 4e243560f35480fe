//! `oxtsdb.data.v1.TreeService`.

mod branch;
mod convert;
mod service;
mod status;
mod test;

#[cfg(test)]
mod tests;

use oxtsdb_metadata::tree::Trees;
use oxtsdb_query::{Admitted, Engine, QueryDescription, RequestContext};
use oxtsdb_resources::ComputePool;
use tonic::Status;

use crate::grpc::query::query_status;

/// Serves `oxtsdb.data.v1.TreeService`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct TreeServiceHandler {
    trees: Trees,
    engine: Engine,
}

impl TreeServiceHandler {
    /// A handler over trees; `engine` admits reads of branches and problems.
    pub fn new(trees: Trees, engine: Engine) -> Self {
        Self { trees, engine }
    }

    /// Admits work on many rows as a query. Reads charge their rows to the budget of the query.
    async fn admit(&self, context: RequestContext, what: String) -> Result<Admitted, Status> {
        let description = QueryDescription::without_range(what);
        let admitted = self.engine.admit(context, description, None).await;
        admitted.map_err(|error| query_status(&error, "", &self.trees.table_name().to_string()))
    }

    fn compute(&self) -> &ComputePool {
        &self.engine.resources().compute
    }
}
