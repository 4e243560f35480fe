//! Execution: scans rows, groups series and aggregates them, within the deadline and budget of a query.
//!
//! ```text
//!   engine ──► execution ──► sub_query ──► scan ──► collect ──► worker ──► series_builder
//!                                │                                          rows to points, downsampled
//!                                ├──► group ──► group_task                  series to groups, aggregated
//!                                ├──► extents ──► incremental               the same before the scan ends
//!                                └──► output                                frames to the client
//! ```

mod coalesce;
pub mod collect;
pub mod engine;
mod environment;
mod execution;
pub mod extents;
pub mod frame;
pub mod group;
mod group_names;
pub mod group_task;
pub mod incremental;
mod output;
pub mod scan;
pub mod series_builder;
pub mod series_points;
pub mod statistics;
mod sub_query;
mod worker;
