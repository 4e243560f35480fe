//! The points of one series of a query.

use std::sync::Arc;

use oxtsdb_schema::{Annotation, Tsuid};

use crate::points::Points;

/// A series with its points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeriesPoints {
    /// The series.
    pub tsuid: Tsuid,
    /// Its points in the scanned range, which may be none, or its windows, or the rates of either.
    pub points: Points,
    /// Its rate before its first point: [`crate::function::rate::Rater::from_epoch`].
    pub from_epoch: Option<f64>,
    /// Its annotations, as far as they were requested and read; `None`: its rows have none.
    pub annotations: Option<Box<SeriesAnnotations>>,
    /// Whether its group has the same names.
    pub is_named: bool,
}

/// The annotations of a series; possibly none of them in the range of the query.
pub(crate) type SeriesAnnotations = Vec<Arc<Annotation>>;
