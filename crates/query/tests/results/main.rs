//! Results of the query engine: from columns as from rows, from statistics as from points.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod columns_damage;
mod columns_equal_rows;
mod filled_results;
mod small_memory;
mod summaries_equal_points;
mod support;
