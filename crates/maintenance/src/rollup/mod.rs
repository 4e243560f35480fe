//! Rollups that are built from points: on request, and by the standing job.

pub mod build;
pub mod jobs;
