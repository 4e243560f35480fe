//! The limits of a query, one for each resource.

use crate::context::resource::{Limit, Resource};
use crate::error::QueryError;

/// The limits of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Series.
    pub series: Limit,
    /// Rows.
    pub rows: Limit,
    /// Bytes.
    pub bytes: Limit,
    /// Points.
    pub points: Limit,
    /// Bytes of memory.
    pub memory: Limit,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self {
        series: Limit::from_setting("--query-max-series", 0),
        rows: Limit::from_setting("--query-max-rows", 0),
        bytes: Limit::from_setting("--query-max-bytes", 0),
        points: Limit::from_setting("--query-max-points", 0),
        memory: Limit::from_setting("--query-max-memory-mib", 0),
    };

    /// Replaces the limit of points by another setting's.
    #[must_use]
    pub const fn with_points(mut self, most: u64) -> Self {
        self.points = Limit::from_setting(self.points.setting, most);
        self
    }

    /// The lower of these limits and the limits of a request.
    #[must_use]
    pub const fn with_request(mut self, max_points: Option<u64>) -> Self {
        if let Some(most) = max_points
            && most < self.points.most
        {
            self.points = Limit::from_setting("max_scanned_points", most);
        }
        self
    }

    /// How much of a resource may be used.
    const fn get(&self, resource: Resource) -> Limit {
        match resource {
            Resource::Series => self.series,
            Resource::Rows => self.rows,
            Resource::Bytes => self.bytes,
            Resource::Points => self.points,
            Resource::Memory => self.memory,
        }
    }

    /// Whether the operator has set a limit of a resource.
    pub const fn is_set(&self, resource: Resource) -> bool {
        let limit = self.get(resource);
        limit.most < u64::MAX && !limit.is_derived
    }

    /// Rejects use of a resource above its limit.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub const fn check(&self, resource: Resource, used: u64) -> Result<(), QueryError> {
        let limit = self.get(resource);
        if used > limit.most {
            return Err(QueryError::OverBudget { resource, limit });
        }
        Ok(())
    }
}
