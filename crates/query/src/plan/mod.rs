//! Plans: the hours to read, the series that match, and the access path to them.
//!
//! ```text
//!   filters ──► tag tests over UIDs ──► selection ─┐
//!   range ────► hours, windows ────────────────────┴──► reader ──► access path
//! ```
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.configureFromQuery`.

pub(crate) mod hours;
pub(crate) mod lookahead;
pub(crate) mod metric_series;
pub(crate) mod query_plan;
pub(crate) mod rollup;
pub(crate) mod selection;
pub(crate) mod tsuids;
pub(crate) mod windows;

#[cfg(test)]
mod tests;
