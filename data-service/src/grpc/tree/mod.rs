//! `oxtsdb.data.v1.TreeService`.

mod branch;
mod convert;
mod service;
mod status;
mod test;

#[cfg(test)]
mod tests;

use oxtsdb_query::Engine;
use oxtsdb_resources::ComputePool;

use crate::tree::Trees;

/// Serves `oxtsdb.data.v1.TreeService`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct TreeServiceHandler {
    trees: Trees,
    engine: Engine,
}

impl TreeServiceHandler {
    /// A handler over trees; `engine` admits reads of branches.
    pub fn new(trees: Trees, engine: Engine) -> Self {
        Self { trees, engine }
    }

    fn compute(&self) -> &ComputePool {
        &self.engine.resources().compute
    }
}
