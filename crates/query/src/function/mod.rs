//! Pure functions over points: aggregators, downsampling, calendar windows, rate.

pub mod aggregate;
pub mod aggregator;
pub mod calendar;
pub mod downsample;
pub mod rate;
pub(crate) mod summary;
