//! Points in columns, as a view of the message that they arrived in.

use crate::{DeltaError, PointErrorReason, ShapeError};

/// Points with one type of value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block<'a> {
    /// Numbers of series: one for all points, or one for each.
    pub series: &'a [u32],
    /// One for each point, in the unit that the client declares.
    pub timestamps: &'a [i64],
    /// In place of `timestamps`.
    pub deltas: Option<DeltaTimestamps<'a>>,
    /// One value for each point.
    pub doubles: &'a [f64],
    /// In place of `doubles`.
    pub ints: &'a [i64],
}

/// Timestamps as differences.
#[derive(Clone, Copy, Debug)]
pub struct DeltaTimestamps<'a> {
    /// The timestamp of the first point, in the unit that the client declares.
    pub first: i64,
    /// Each further timestamp less the one before it.
    pub deltas: &'a [i64],
    /// The last timestamp, to detect deltas that are something else.
    pub last: i64,
}

impl<'a> Block<'a> {
    /// The number of points: the length of the longest column, if columns differ in length.
    pub fn point_count(&self) -> usize {
        // One series stands for any number of points.
        let series = Some(self.series.len()).filter(|count| *count > 1);
        let deltas = self.deltas.map(|deltas| deltas.deltas.len() + 1);
        let columns = [series.unwrap_or(0), deltas.unwrap_or(0)];
        let columns = columns
            .into_iter()
            .chain([self.timestamps.len(), self.doubles.len(), self.ints.len()]);
        columns.max().unwrap_or(0)
    }

    /// The number of the series, and the time and value of a point as text; `None` for columns that do not fit each
    /// other.
    fn describe(&self, point: usize) -> Option<(u32, String)> {
        self.check().ok()?;
        let series = match self.series {
            [one] => *one,
            many => *many.get(point)?,
        };
        let timestamp = match self.deltas {
            Some(deltas) => deltas.timestamps().nth(point)?,
            None => *self.timestamps.get(point)?,
        };
        let value = match self.ints.get(point) {
            Some(value) => value.to_string(),
            None => self.doubles.get(point)?.to_string(),
        };
        Some((series, format!("{timestamp} {value}")))
    }

    /// Checks that the columns fit each other, and that delta timestamps add up.
    pub(super) fn check(&self) -> Result<(), PointErrorReason> {
        self.check_shape().map_err(PointErrorReason::Shape)?;
        match self.deltas {
            Some(deltas) => deltas.check().map_err(PointErrorReason::DeltaTimestamps),
            None => Ok(()),
        }
    }

    fn check_shape(&self) -> Result<(), ShapeError> {
        if self.deltas.is_some() && !self.timestamps.is_empty() {
            return Err(ShapeError::BothTimestamps);
        }
        if !self.doubles.is_empty() && !self.ints.is_empty() {
            return Err(ShapeError::BothValues);
        }
        let points = self.doubles.len() + self.ints.len();
        match self.deltas {
            Some(deltas) if deltas.deltas.len() + 1 != points => {
                return Err(ShapeError::Deltas {
                    deltas: deltas.deltas.len(),
                    values: points,
                });
            }
            None if self.timestamps.len() != points => {
                return Err(ShapeError::Values {
                    timestamps: self.timestamps.len(),
                    values: points,
                });
            }
            Some(_) | None => {}
        }
        let series = self.series.len();
        // A block without points needs no series.
        if series != points && !(series == 1 || points == 0 && series == 0) {
            return Err(ShapeError::Series { series, points });
        }
        Ok(())
    }
}

/// A point of blocks as text, by its number through all blocks; `series` returns names by the number of a series.
pub fn describe<'a>(
    blocks: impl Iterator<Item = Block<'a>>,
    mut point: usize,
    series: impl Fn(u32) -> Option<String>,
) -> String {
    for (index, block) in blocks.enumerate() {
        let count = block.point_count();
        if point >= count {
            point -= count;
            continue;
        }
        let Some((number, point)) = block.describe(point) else {
            return format!("block {index} of {count} points");
        };
        return match series(number) {
            Some(series) => format!("{series} {point}"),
            None => format!("series {number} {point}"),
        };
    }
    String::new()
}

impl DeltaTimestamps<'_> {
    fn check(&self) -> Result<(), DeltaError> {
        let mut deltas = self.deltas.iter();
        let sum = deltas.try_fold(self.first, |sum, delta| sum.checked_add(*delta));
        if sum == Some(self.last) {
            return Ok(());
        }
        Err(DeltaError { sum, last: self.last })
    }
}

impl<'a> DeltaTimestamps<'a> {
    /// The timestamps. The deltas must have passed their check.
    pub(super) fn timestamps(&self) -> impl Iterator<Item = i64> + use<'a> {
        let mut next = Some(self.first);
        let mut deltas = self.deltas.iter();
        std::iter::from_fn(move || {
            let timestamp = next?;
            next = deltas.next().map(|delta| timestamp.wrapping_add(*delta));
            Some(timestamp)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deltas(first: i64, deltas: &[i64], last: i64) -> DeltaTimestamps<'_> {
        DeltaTimestamps { first, deltas, last }
    }

    #[test]
    fn decodes_delta_timestamps() {
        let encoded = deltas(1_700_000_000_000, &[10_000, -10_500], 1_699_999_999_500);
        encoded.check().unwrap();
        let decoded: Vec<i64> = encoded.timestamps().collect();
        assert_eq!(decoded, [1_700_000_000_000, 1_700_000_010_000, 1_699_999_999_500]);
        let one = deltas(7, &[], 7);
        one.check().unwrap();
        assert_eq!(one.timestamps().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn rejects_deltas_that_are_offsets_or_timestamps() {
        const T: i64 = 1_700_000_000_000;
        for (case, error) in [
            (deltas(T, &[1000, 3000, 6000], T + 6000), Some(T + 10_000)),
            (deltas(T, &[T + 1000, T + 2000], T + 2000), Some(3 * T + 3000)),
            (deltas(T, &[], 0), Some(T)),
            (deltas(T, &[i64::MAX, i64::MAX, 2], T), None),
        ] {
            let last = case.last;
            assert_eq!(case.check(), Err(DeltaError { sum: error, last }));
        }
        assert_eq!(
            deltas(T, &[1000, 3000, 6000], T + 6000)
                .check()
                .unwrap_err()
                .to_string(),
            "`first` plus all `deltas` is 1700000010000, `last` is 1700000006000; each delta is the \
             difference from the timestamp before it, neither an offset from `first` nor a timestamp"
        );
    }

    #[test]
    fn counts_the_longest_column_and_checks_the_shape() {
        let block = Block {
            series: &[0],
            timestamps: &[1, 2, 3],
            doubles: &[0.5, 0.5],
            ..Block::default()
        };
        assert_eq!(block.point_count(), 3);
        let wrong = block.check_shape().unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "3 timestamps and 2 values, expected one value for each timestamp"
        );
        let offsets = Block {
            timestamps: &[],
            deltas: Some(deltas(1, &[0, 1, 3, 6], 7)),
            ints: &[1, 2, 3, 4],
            doubles: &[],
            ..block
        };
        assert_eq!(offsets.point_count(), 5);
        assert_eq!(
            offsets.check_shape(),
            Err(ShapeError::Deltas { deltas: 4, values: 4 })
        );
        let both = Block { ints: &[1], ..block };
        assert_eq!(both.check_shape(), Err(ShapeError::BothValues));
        let both = Block {
            deltas: Some(deltas(1, &[], 1)),
            ..block
        };
        assert_eq!(both.check_shape(), Err(ShapeError::BothTimestamps));
        let series = Block {
            series: &[0, 1],
            timestamps: &[1],
            ints: &[1],
            ..Block::default()
        };
        assert_eq!(series.point_count(), 2);
        assert_eq!(
            series.check_shape(),
            Err(ShapeError::Series { series: 2, points: 1 })
        );
        assert_eq!(Block::default().check_shape(), Ok(()), "no points at all");
        assert_eq!(Block::default().point_count(), 0);
    }
}
