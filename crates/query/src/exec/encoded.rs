//! Groups that are encoded for the protocol by the threads that compute them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use oxtsdb_schema::Annotation;

use crate::context::budget::{Budget, Held};
use crate::error::QueryError;
use crate::exec::frame::Group;

/// Encodes groups for a protocol.
pub trait GroupEncoder: fmt::Debug + Send + Sync {
    /// Encodes whole groups in their order, each with the memory of its points, and holds the memory of their encoding.
    /// `global` are the global annotations, if requested and found.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = (Group, Option<Held>)>,
        global: Option<&[Arc<Annotation>]>,
        budget: &Budget,
    ) -> Result<(Vec<Bytes>, Held), QueryError>;
}

/// The form of a result.
#[derive(Clone, Debug)]
pub(crate) enum ResultForm {
    /// Groups, and points as soon as they are final.
    Frames,
    /// Whole groups, one after the other.
    WholeGroups,
    /// Whole groups that are encoded.
    Encoded(Arc<dyn GroupEncoder>),
}

impl ResultForm {
    /// Whether points are sent before all points of their group are complete.
    pub(crate) const fn is_early(&self) -> bool {
        matches!(self, Self::Frames)
    }
}
