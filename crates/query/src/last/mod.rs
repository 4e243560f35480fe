//! The last point of each series.

mod columns;
pub mod counters;
pub mod search;
pub mod stream;
