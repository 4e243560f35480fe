//! Budgets: what a query may use, and what it has used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::QueryError;

/// What a query uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Series that have rows in the range.
    Series,
    /// Rows read from the store.
    Rows,
    /// Bytes of these rows: keys, qualifiers, values.
    Bytes,
    /// Points decoded or made up by a fill policy.
    Points,
    /// Points held at a time, 16 bytes each.
    Memory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Series => "series",
            Self::Rows => "rows",
            Self::Bytes => "bytes",
            Self::Points => "points",
            Self::Memory => "bytes of memory",
        })
    }
}

/// How much of a resource a query may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// So much is allowed.
    pub most: u64,
    /// The setting or field that says so, for error messages.
    pub setting: &'static str,
}

impl Limit {
    /// The limit of a setting; 0: none.
    pub const fn of_setting(setting: &'static str, most: u64) -> Self {
        let most = if most == 0 { u64::MAX } else { most };
        Self { most, setting }
    }
}

/// What a query may use.
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

/// Memory of a point that is held: its instant and its value.
pub(super) const POINT_BYTES: u64 = 16;

impl Limits {
    /// No limits.
    pub const NONE: Self = Self {
        series: Limit::of_setting("--query-max-series", 0),
        rows: Limit::of_setting("--query-max-rows", 0),
        bytes: Limit::of_setting("--query-max-bytes", 0),
        points: Limit::of_setting("--query-max-points", 0),
        memory: Limit::of_setting("--query-max-memory-mib", 0),
    };

    /// These limits with another one of points, that of a setting.
    #[must_use]
    pub const fn with_points(mut self, most: u64) -> Self {
        self.points = Limit::of_setting(self.points.setting, most);
        self
    }

    /// The lesser of these limits and what a request asks for itself.
    #[must_use]
    pub const fn with_request(mut self, max_points: Option<u64>) -> Self {
        if let Some(most) = max_points
            && most < self.points.most
        {
            self.points = Limit {
                most,
                setting: "max_scanned_points",
            };
        }
        self
    }

    /// How much of a resource may be used.
    const fn of(&self, resource: Resource) -> Limit {
        match resource {
            Resource::Series => self.series,
            Resource::Rows => self.rows,
            Resource::Bytes => self.bytes,
            Resource::Points => self.points,
            Resource::Memory => self.memory,
        }
    }

    /// Whether there is a limit of a resource.
    pub const fn has(&self, resource: Resource) -> bool {
        self.of(resource).most < u64::MAX
    }

    /// Refuses more of a resource than is allowed.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub const fn check(&self, resource: Resource, used: u64) -> Result<(), QueryError> {
        let limit = self.of(resource);
        if used > limit.most {
            return Err(QueryError::OverBudget { resource, limit });
        }
        Ok(())
    }
}

/// What a query has used so far.
#[derive(Debug, Default)]
pub struct Usage {
    series: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    points: AtomicU64,
    held: AtomicU64,
}

impl Usage {
    /// How much of a resource; of memory, how much now.
    pub fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Series => self.series.load(Ordering::Relaxed),
            Resource::Rows => self.rows.load(Ordering::Relaxed),
            Resource::Bytes => self.bytes.load(Ordering::Relaxed),
            Resource::Points => self.points.load(Ordering::Relaxed),
            Resource::Memory => self.held.load(Ordering::Relaxed).saturating_mul(POINT_BYTES),
        }
    }
}

/// What a query has used, and may use. Clones share what was used.
#[derive(Clone, Debug)]
pub struct Budget {
    usage: Arc<Usage>,
    limits: Limits,
}

impl Budget {
    /// A budget of which `usage` is used up.
    pub const fn new(limits: Limits, usage: Arc<Usage>) -> Self {
        Self { usage, limits }
    }

    /// What may be used.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was used.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Uses rows with so many bytes.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`], as of all that use something.
    pub fn use_rows(&self, rows: u64, bytes: u64) -> Result<(), QueryError> {
        self.add(Resource::Rows, &self.usage.rows, rows)?;
        self.add(Resource::Bytes, &self.usage.bytes, bytes)
    }

    /// Uses points.
    pub(super) fn use_points(&self, points: u64) -> Result<(), QueryError> {
        self.add(Resource::Points, &self.usage.points, points)
    }

    /// Uses a series.
    pub(super) fn use_series(&self) -> Result<(), QueryError> {
        self.add(Resource::Series, &self.usage.series, 1)
    }

    /// Holds points.
    pub(super) fn hold(&self, points: u64) -> Result<(), QueryError> {
        let held = self.usage.held.fetch_add(points, Ordering::Relaxed);
        let bytes = held.saturating_add(points).saturating_mul(POINT_BYTES);
        self.limits.check(Resource::Memory, bytes)
    }

    /// Lets points go that were held.
    pub(super) fn release(&self, points: u64) {
        self.usage.held.fetch_sub(points, Ordering::Relaxed);
    }

    /// Points that are held.
    pub(super) fn held_points(&self) -> u64 {
        self.usage.held.load(Ordering::Relaxed)
    }

    fn add(&self, resource: Resource, used: &AtomicU64, more: u64) -> Result<(), QueryError> {
        let before = used.fetch_add(more, Ordering::Relaxed);
        self.limits.check(resource, before.saturating_add(more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_budget_is_refused_with_figure_and_setting() {
        let budget = Budget::new(Limits::NONE.with_points(10), Arc::default());
        budget.use_points(10).unwrap();
        let error = budget.use_points(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "query needs more than 10 points, the limit of --query-max-points"
        );
        let asked = Limits::NONE.with_points(10).with_request(Some(3));
        let error = asked.check(Resource::Points, 4).unwrap_err();
        assert!(error.to_string().ends_with("of max_scanned_points"), "{error}");
        assert_eq!(
            Limits::NONE.with_points(10).with_request(Some(11)).points.most,
            10
        );
    }

    #[test]
    fn memory_is_given_back() {
        let memory = Limit::of_setting("--query-max-memory-mib", 160);
        let budget = Budget::new(
            Limits {
                memory,
                ..Limits::NONE
            },
            Arc::default(),
        );
        budget.hold(10).unwrap();
        assert!(budget.hold(1).is_err());
        budget.release(11);
        budget.hold(10).unwrap();
        assert_eq!(budget.usage().of(Resource::Memory), 160);
    }
}
