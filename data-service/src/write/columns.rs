//! The compact form: symbols and series are declared once, points refer to them by number.
//!
//! A series is resolved when it is declared; its row key is kept, and a point costs an index, the
//! hour patched into the key, a qualifier and a value. No hashing, no allocation. On a stream, which may
//! last for days, all series are resolved again from time to time: others may have renamed or deleted
//! their names.

mod declarations;
mod errors;
mod tables;

use oxtsdb_proto::data::v1::columns::{Block, block};
use oxtsdb_proto::data::v1::{Columns, TimestampPrecision};
use oxtsdb_schema::Value;
use oxtsdb_schema::value::ValueError;

pub(crate) use errors::{ErrorRun, PointErrors};
pub(crate) use tables::{Tables, TablesLimits};

use super::rows::Rows;
use super::{PointErrorReason, WriteError, timestamp};

/// Why columns as a whole were not taken. Nothing of them is stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ColumnsError {
    /// A field breaks the protocol.
    #[error("{field}: {breach}")]
    Breach { field: String, breach: Breach },
    /// The names could not be resolved.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What a field of columns does wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Breach {
    #[error("refers to {what} {number}, {declared} are declared")]
    Undeclared {
        what: &'static str,
        number: u32,
        declared: usize,
    },
    #[error("has {count} elements, expected pairs of key and value")]
    OddTagSymbols { count: usize },
    #[error("declares more than {max} series")]
    TooManySeries { max: usize },
    #[error("declares symbols of more than {max} bytes")]
    TooManySymbols { max: usize },
}

impl Breach {
    pub(super) fn at(self, field: String) -> ColumnsError {
        ColumnsError::Breach { field, breach: self }
    }
}

/// How many points columns have. A block whose parts differ in length has as many as the longest.
pub(crate) fn point_count(columns: &Columns) -> usize {
    columns.blocks.iter().map(block_points).sum()
}

fn block_points(block: &Block) -> usize {
    block.timestamp_deltas_ms.len().max(value_count(block))
}

fn value_count(block: &Block) -> usize {
    match &block.values {
        Some(block::Values::Ints(column)) => column.values.len(),
        Some(block::Values::Doubles(column)) => column.values.len(),
        None => 0,
    }
}

/// Adds the points of `columns` to `rows`, and those that cannot be stored to `errors`, numbered
/// from 0 through all blocks. All that the blocks refer to must have been declared.
pub(crate) fn encode(
    columns: &Columns,
    precision: TimestampPrecision,
    tables: &mut Tables,
    rows: &mut Rows,
    errors: &mut PointErrors,
) -> Result<(), ColumnsError> {
    let mut first = 0;
    for (index, block) in columns.blocks.iter().enumerate() {
        let encoder = Encoder {
            block,
            precision,
            tables,
            rows,
            errors,
            first,
        };
        let undeclared = |number, declared| {
            Breach::Undeclared {
                what: "series",
                number,
                declared,
            }
            .at(format!("columns.blocks[{index}].series"))
        };
        encoder
            .encode()
            .map_err(|Undeclared { number, declared }| undeclared(number, declared))?;
        first += block_points(block) as u64;
    }
    Ok(())
}

/// A series that was not declared.
struct Undeclared {
    number: u32,
    declared: usize,
}

/// One block on its way into the batch.
struct Encoder<'a> {
    block: &'a Block,
    precision: TimestampPrecision,
    tables: &'a mut Tables,
    rows: &'a mut Rows,
    errors: &'a mut PointErrors,
    /// The number of the block's first point.
    first: u64,
}

impl Encoder<'_> {
    fn encode(self) -> Result<(), Undeclared> {
        if let Err(reason) = self.check_shape() {
            self.errors
                .add_run(self.first, block_points(self.block) as u64, &reason.into());
            return Ok(());
        }
        match &self.block.values {
            Some(block::Values::Ints(column)) => {
                self.points(column.values.iter().map(|int| Ok(Value::Int(*int))))
            }
            Some(block::Values::Doubles(column)) => {
                self.points(column.values.iter().map(|double| Value::number(*double)))
            }
            // Then there are no timestamps either.
            None => Ok(()),
        }
    }

    fn check_shape(&self) -> Result<(), PointErrorReason> {
        let series = self.block.series.len();
        let timestamps = self.block.timestamp_deltas_ms.len();
        let values = value_count(self.block);
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
        let mut timestamp_ms = block.base_timestamp_ms;
        let mut overflowed = false;
        for (index, (delta, value)) in block.timestamp_deltas_ms.iter().zip(values).enumerate() {
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
                    tables.look_at(number, rows.untracked());
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
