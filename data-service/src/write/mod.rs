//! Writing points.
//!
//! ```text
//!   points ──► series (cache; misses in one call to the UID service) ──► row key, qualifier, value
//!          ──► one batch, points of one row that follow each other together ──► store ──► done
//! ```
//!
//! In between they may be brought together with the points of other requests, and points of a row
//! in one cell; see `lanes` and [`WriteForm`](crate::settings::WriteForm).
//!
//! A series of which this process has not written a point in this hour yet has its row of table
//! `tsdb-meta` stored with them; see `tracking`.
//!
//! Points fail one by one, by their index; the call fails when the store or the UID service does.
//! `Ok` means that every point without an error is in the store's log.

mod budget;
pub(crate) mod columns;
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
