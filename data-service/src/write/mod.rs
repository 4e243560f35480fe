//! The write path: resolves, encodes and stores points.
//!
//! ```text
//!   points ──► series (cache; misses in one call to the UID service) ──► row key, qualifier, value
//!          ──► one batch, consecutive points of a row together ──► store ──► acknowledged
//! ```
//!
//! Before the store, lanes may coalesce them with the points of other requests, and the points of a row in one cell; see `lanes` and [`WriteForm`](crate::settings::WriteForm).
//!
//! The first points of a series in an hour are stored together with its row of table `tsdb-meta`; see `tracking`.
//!
//! Points fail individually, by index; the call fails if the store or the UID service fails.
//! `Ok` means that every point without an error is in the store's log.

mod budget;
mod caches;
pub(crate) mod columns;
pub(crate) mod encoded;
mod error;
mod form;
mod group;
mod lanes;
mod point;
mod resolve;
mod rows;
mod time;
mod time_unit;
pub(crate) mod tracking;
mod writer;

pub use error::{DeltaError, NamePlace, PointErrorReason, ShapeError, WriteError};
pub(crate) use point::PointRef;
pub use point::{NewPoint, PointError, WriteOutcome};
pub(crate) use resolve::{Resolution, Resolved};
pub(crate) use time::{Precision, TimeOptions, TimeRules};
pub use time_unit::TimeUnit;
pub(crate) use writer::Batch;
pub use writer::{IngestResources, Writer};
