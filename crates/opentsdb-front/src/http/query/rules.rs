//! Settings of the query endpoints.

use oxtsdb_schema::DuplicatePolicy;

/// Settings that apply to every query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryRules {
    /// Keep the newest of several values at one timestamp instead of failing the query.
    pub(crate) fix_duplicates: bool,
    /// Leave out NaN points.
    pub(crate) omits_nan: bool,
    /// Whether queries may delete the points that they read.
    pub(crate) allow_delete: bool,
    /// Whether the caller has the right to delete points.
    pub(crate) may_delete: bool,
}

impl QueryRules {
    /// How several values at one timestamp are resolved.
    pub(crate) const fn duplicates(self) -> DuplicatePolicy {
        if self.fix_duplicates {
            DuplicatePolicy::KeepNewest
        } else {
            DuplicatePolicy::Error
        }
    }
}
