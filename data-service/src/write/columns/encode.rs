//! Encodes blocks into a batch.

use oxtsdb_schema::Value;
use oxtsdb_schema::value::ValueError;

use super::{Block, PointErrors, ProtocolViolation, Tables, Values};
use crate::write::rows::Rows;
use crate::write::{PointErrorReason, Precision, timestamp};

/// Adds the points of `blocks` to `rows`, and those that cannot be stored to `errors`. Points are numbered
/// from 0 through all blocks.
///
/// # Errors
///
/// If a block refers to a series that is not declared.
pub(crate) fn encode<'a>(
    blocks: impl Iterator<Item = Block<'a>>,
    precision: Precision,
    tables: &mut Tables,
    rows: &mut Rows,
    errors: &mut PointErrors,
) -> Result<(), ProtocolViolation> {
    let mut first = 0;
    for (index, block) in blocks.enumerate() {
        let encoder = Encoder {
            block,
            precision,
            tables,
            rows,
            errors,
            first,
        };
        encoder.encode().map_err(
            |Undeclared { number, declared }| ProtocolViolation::UndeclaredSeries {
                block: index,
                number,
                declared,
            },
        )?;
        first += block.point_count() as u64;
    }
    Ok(())
}

/// A series that is not declared.
struct Undeclared {
    number: u32,
    declared: usize,
}

/// Encodes one block.
struct Encoder<'a, 'b> {
    block: Block<'b>,
    precision: Precision,
    tables: &'a mut Tables,
    rows: &'a mut Rows,
    errors: &'a mut PointErrors,
    /// The number of the block's first point.
    first: u64,
}

impl Encoder<'_, '_> {
    fn encode(self) -> Result<(), Undeclared> {
        if let Err(reason) = self.block.check_shape() {
            self.errors
                .add_run(self.first, self.block.point_count() as u64, &reason.into());
            return Ok(());
        }
        match self.block.values {
            Values::Ints(ints) => self.points(ints.iter().map(|int| Ok(Value::Int(*int)))),
            Values::Doubles(doubles) => self.points(doubles.iter().map(|double| Value::number(*double))),
        }
    }

    fn points(self, values: impl Iterator<Item = Result<Value, ValueError>>) -> Result<(), Undeclared> {
        let Encoder {
            block,
            precision,
            tables,
            rows,
            errors,
            first,
        } = self;
        let series_step = usize::from(block.series.len() > 1);
        let mut timestamp_ms = block.base_ms;
        let mut overflowed = false;
        for (index, (delta, value)) in block.deltas_ms.iter().zip(values).enumerate() {
            let number = block.series[index * series_step];
            let Some(series) = tables.series(number) else {
                return Err(Undeclared {
                    number,
                    declared: tables.series_count(),
                });
            };
            let (sum, overflows) = timestamp_ms.overflowing_add(*delta);
            timestamp_ms = sum;
            overflowed |= overflows;
            let point = first + index as u64;
            if series.is_empty() {
                if let Some(reason) = tables.failure(number) {
                    errors.add_run(point, 1, reason);
                }
                continue;
            }
            if overflowed {
                errors.add(point, || PointErrorReason::TimestampOverflow);
                continue;
            }
            match (timestamp(timestamp_ms, precision), value) {
                (Ok(timestamp), Ok(value)) => {
                    tables.observe(number, rows.untracked());
                    rows.point(number as usize, timestamp, &value, |base| {
                        tables.row_key(series, base)
                    });
                }
                (Err(reason), _) => errors.add(point, || reason),
                (_, Err(error)) => errors.add(point, || PointErrorReason::InvalidValue(error)),
            }
        }
        Ok(())
    }
}
