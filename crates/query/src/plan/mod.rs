//! Plans: the hours to read, the rows that match, and how to find them.
//!
//! ```text
//!   filters ──► tag tests over UIDs ──► row selection ─┐
//!   range ────► hours, windows ────────────────────────┼──► access path ──► estimate
//!   series index, catalogue ──► matching series ───────┘
//! ```
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.configureFromQuery`.

pub mod access_path;
mod column_series;
pub mod estimate;
pub mod hours;
pub(crate) mod lookahead;
pub mod metric_series;
pub mod query_plan;
pub mod rollup;
pub mod selection;
pub mod single_rows;
pub mod tsuids;
pub mod windows;

#[cfg(test)]
mod tests;
