//! Settings that apply to all queries of this server.

/// What all queries of this server have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryRules {
    /// Take the newest of several values for one instant, in place of failing.
    pub(crate) fix_duplicates: bool,
}
