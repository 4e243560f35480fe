//! Execution: admission, scan, grouping, aggregation, within deadline and budget.

pub mod budget;
pub mod collect;
pub mod compute;
pub mod engine;
pub mod frame;
pub mod group;
pub mod open_groups;
pub mod resources;
pub mod running;
pub mod scan;
pub mod span;
pub mod survey;
mod whole_groups;
