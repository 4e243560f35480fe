//! The last point of each series.

mod columns;
pub mod counters;
mod last_point;
pub mod search;
pub mod stream;
