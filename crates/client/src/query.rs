//! Results of queries, expressions and last-point look-ups.
//!
//! ```text
//!   messages ─► frames: Series, Points, Done, Statistics ─► into_result: series with their points
//! ```
//!
//! The streams return frames as the service computes them; `into_result` collects a whole result.

mod collect;
mod expression;
mod last;
mod points;
mod request;
mod series;
mod statistics;

pub use collect::{ExpressionResult, QueryResult, SeriesPoints};
pub use expression::{ExpressionFrame, ExpressionSeries};
pub use last::{LastPoint, LastPointOutcome};
pub use points::{Points, Values};
pub use request::Query;
pub use series::{QueryFrame, Series};
pub use statistics::{DamagedRow, Statistics};
