//! The write path: resolves, encodes and stores points.
//!
//! ```text
//!   points ──► series (cache; misses in one call to the UID service) ──► columns
//!          ──► one batch ──► store ──► acknowledged
//! ```
//!
//! The store is a [`PointStore`](oxtsdb_point_store::PointStore): the embedded one takes columns, and on HBase
//! [`oxtsdb_point_store::rows`] makes rows and cells of them.
//!
//! The first points of a series in an hour are stored together with its row of table `tsdb-meta`; see `tracking`.
//!
//! Points fail individually, by index; the call fails if the store or the UID service fails.
//! `Ok` means that every point without an error is in the store's log.

mod budget;
mod caches;
pub mod columns;
pub(crate) mod encoded;
mod error;
mod histogram;
mod ingest_counts;
mod limited;
mod point;
pub mod point_text;
mod rejections;
mod resolve;
pub mod rollup;
mod time;
mod time_unit;
pub(crate) mod tracking;
mod writer;

pub use error::date;
pub use error::{AggregateError, DeltaError, NamePlace, PointErrorReason, ShapeError, WriteError};
pub use histogram::NewHistogram;
pub use ingest_counts::{IngestCounts, POINT_FIGURES, ProtocolCounts};
pub use point::PointRef;
pub use point::{NewPoint, PointError, WriteOutcome};
pub use rejections::{Caller, Example, RejectionKind};
pub use resolve::{Resolution, Resolved};
pub use time::{Precision, TimeOptions, TimeRules, plausible_ms};
pub use time_unit::TimeUnit;
pub use writer::Batch;
pub use writer::{IngestResources, Writer};
