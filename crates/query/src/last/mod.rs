//! The last point of each series.

pub mod counters;
pub mod search;
pub mod stream;
