//! Execution: reads the items of scans, groups series and aggregates them, within the deadline and budget of a query.
//!
//! ```text
//!   engine ──► execution ──► sub_query ──► collect ──► worker ──► series_builder
//!                                │                                          columns and rows to points, downsampled
//!                                ├──► filled_result                         rejects results that cannot fit
//!                                ├──► batches                               groups, if not all fit at once
//!                                ├──► extents                               when each series ends, for early results
//!                                ├──► incremental ──► group                 series to groups
//!                                │         └──► group_task                  the next final instants of a group
//!                                ├──► aggregation ──► group_frames          aggregated, as frames
//!                                └──► output                                frames to the client
//! ```

mod aggregation;
mod batches;
pub(crate) mod collect;
mod column_read;
pub(crate) mod encoded;
pub(crate) mod engine;
pub(crate) mod environment;
mod execution;
pub(crate) mod extents;
mod filled_result;
pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod group_frames;
pub(crate) mod group_task;
pub(crate) mod incremental;
pub(crate) mod output;
pub(crate) mod rollup_row;
pub(crate) mod series_builder;
pub(crate) mod series_points;
pub(crate) mod statistics;
mod sub_query;
pub(crate) mod totals;
mod worker;
