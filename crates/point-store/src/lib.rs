//! Points by series and time: a trait, and an embedded engine that stays flat to ten million series.
//!
//! ```text
//!   series   its key is its TSUID, its number is dense and given by the store
//!   point    series, instant (ms), resolution and type of value; one point for each instant of a series
//! ```
//!
//! [`PointStore`] appends, reads and deletes columns of points. The newest point of an instant wins, also if it
//! has another type or resolution.
//!
//! | Module | Content |
//! |---|---|
//! | [`parts`] | the embedded engine: journal, head, immutable parts by day |
//! | [`view`] | the points as rows and cells of table `tsdb` |
//! | [`rollups`] | rollups as points, and one aggregate of an interval for queries |
//! | [`rows`] | the adapter over a row store: OpenTSDB's rows and cells, for HBase |
//! | [`memory`] | a simple store for tests, and the reference of the others |
//! | `conformance` | the guarantees as executable checks (feature `testing`) |

mod batch;
mod columns;
#[cfg(feature = "testing")]
pub mod conformance;
mod error;
mod figures;
mod highest_uids;
mod keyed;
pub mod memory;
pub mod parts;
mod point;
pub mod rollups;
pub mod rows;
mod series;
mod series_list;
mod store;
pub mod view;

pub use batch::PointBatch;
pub use columns::{Kinds, SeriesColumns};
pub use error::PointStoreError;
pub use figures::{Counters, FIGURES, Figures, MergeCounters, Timings};
pub use highest_uids::HighestUids;
pub use keyed::KeyedBatch;
pub use parts::part::{Columns, Statistics};
pub use point::{Point, PointKind, Resolution, ValueKind};
pub use series::{SeriesNumber, TagTest};
pub use store::{
    BlockSummary, ColumnStream, DamagedPart, Permit, PointStore, ReadEstimate, ReadRequest, SeriesReader,
    TimeRange,
};
