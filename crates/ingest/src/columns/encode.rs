//! Encodes blocks into a batch.

use std::sync::Arc;

use oxtsdb_schema::Value;
use oxtsdb_schema::value::ValueError;

use super::{Block, Failures, ProtocolViolation, SeriesTable};
use crate::encoded::EncodedPoints;
use crate::{PointErrorReason, TimeRules};

/// Adds the points of `blocks` to `points`, and points that cannot be stored to `failures`. Points are
/// numbered from 0 through all blocks.
///
/// # Errors
///
/// If a block refers to a series that is not in the table.
pub fn encode<'a>(
    blocks: impl Iterator<Item = Block<'a>>,
    rules: &TimeRules,
    table: &mut SeriesTable,
    points: &mut EncodedPoints,
    failures: &mut Failures,
) -> Result<(), ProtocolViolation> {
    let mut first = 0;
    for (index, block) in blocks.enumerate() {
        let encoder = Encoder {
            series: block.series,
            rules,
            table,
            encoded: points,
            failures,
            first,
        };
        encoder.block(&block).map_err(|Undeclared { number, declared }| {
            ProtocolViolation::UndeclaredSeries {
                block: index,
                number,
                declared,
            }
        })?;
        first += block.point_count();
    }
    Ok(())
}

/// A series that is not in the table.
struct Undeclared {
    number: u32,
    declared: usize,
}

/// Encodes one block.
struct Encoder<'a> {
    series: &'a [u32],
    rules: &'a TimeRules,
    table: &'a mut SeriesTable,
    encoded: &'a mut EncodedPoints,
    failures: &'a mut Failures,
    /// The number of the block's first point.
    first: usize,
}

impl Encoder<'_> {
    fn block(self, block: &Block<'_>) -> Result<(), Undeclared> {
        if let Err(reason) = block.check() {
            self.failures
                .add_run(self.first, block.point_count(), &Arc::new(reason));
            return Ok(());
        }
        match block.deltas {
            Some(deltas) => self.values(block, deltas.timestamps()),
            None => self.values(block, block.timestamps.iter().copied()),
        }
    }

    fn values(self, block: &Block<'_>, timestamps: impl Iterator<Item = i64>) -> Result<(), Undeclared> {
        if block.ints.is_empty() {
            let values = block.doubles.iter().map(|double| Value::number(*double));
            self.points(timestamps.zip(values))
        } else {
            let values = block.ints.iter().map(|int| Ok(Value::Int(*int)));
            self.points(timestamps.zip(values))
        }
    }

    fn points(
        self,
        points: impl Iterator<Item = (i64, Result<Value, ValueError>)>,
    ) -> Result<(), Undeclared> {
        let Encoder {
            series,
            rules,
            table,
            encoded,
            failures,
            first,
        } = self;
        let series_step = usize::from(series.len() > 1);
        for (index, (timestamp, value)) in points.enumerate() {
            let number = series[index * series_step];
            let declared = table.len();
            let point = first + index;
            let mut series = match table.get(number) {
                Some(Ok(series)) => series,
                Some(Err(reason)) => {
                    failures.add_run(point, 1, reason);
                    continue;
                }
                None => return Err(Undeclared { number, declared }),
            };
            match (rules.timestamp(timestamp), value) {
                (Ok(timestamp), Ok(value)) => match encoded.point(&mut series, timestamp, &value) {
                    Ok(()) => series.observe(encoded.untracked()),
                    Err(reason) => failures.add(point, reason),
                },
                (Err(reason), _) => failures.add(point, reason),
                (_, Err(error)) => failures.add(point, PointErrorReason::InvalidValue(error)),
            }
        }
        Ok(())
    }
}
