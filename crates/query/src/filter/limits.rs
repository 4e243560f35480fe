//! Limits of filters.

/// Filters of a sub-query: each is tested against each row, and finding equal ones takes quadratic time. OpenTSDB
/// limits only the size of the request.
pub const MAX_FILTERS: usize = 100;

/// Regular expressions in all filters of a query: each is a program in memory.
pub const MAX_REGEXPS: usize = 100;
