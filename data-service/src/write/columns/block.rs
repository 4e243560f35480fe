//! Points of the packed form, as a view of the message that they arrived in.

use crate::write::PointErrorReason;

/// Points with one type of value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    /// Numbers of declared series: one for all points, or one for each.
    pub(crate) series: &'a [u32],
    /// What the first delta adds to.
    pub(crate) base_ms: i64,
    /// Each timestamp less the one before.
    pub(crate) deltas_ms: &'a [i64],
    pub(crate) values: Values<'a>,
}

/// A column of values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    Ints(&'a [i64]),
    Doubles(&'a [f64]),
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Ints(ints) => ints.len(),
            Self::Doubles(doubles) => doubles.len(),
        }
    }
}

impl Block<'_> {
    /// How many points it has. A block whose columns differ in length has as many as the longest.
    pub(crate) fn point_count(&self) -> usize {
        self.deltas_ms.len().max(self.values.len())
    }

    /// Checks that its columns fit each other.
    pub(super) fn check_shape(&self) -> Result<(), PointErrorReason> {
        let series = self.series.len();
        let timestamps = self.deltas_ms.len();
        let values = self.values.len();
        let rule = if timestamps != values {
            "expected as many values as timestamps"
        } else if series != 1 && series != values {
            "expected 1 series or as many as points"
        } else {
            return Ok(());
        };
        Err(PointErrorReason::BlockShape {
            series,
            timestamps,
            values,
            rule,
        })
    }
}
