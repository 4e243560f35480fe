//! The roles of tables, by which an export names them.

/// The table of points.
pub(super) const DATA: &str = "data";

/// The table of the state of `--rollup-jobs`.
pub(super) const STATE: &str = "rollup-state";

/// Whether a table has the row keys of points.
pub(super) fn has_keys_of_points(role: &str) -> bool {
    role == DATA || role.starts_with("rollup-") && role != STATE
}
