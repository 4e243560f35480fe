//! Messages of the write calls, as the domain's types. Columns are borrowed, not copied.

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::columns::{Block as BlockMessage, SeriesDeclaration, block};
use oxtsdb_proto::data::v1::{Columns, PointError, TimestampPrecision};
use oxtsdb_proto::error::invalid_field_because;
use tonic::Status;

use crate::grpc::status;
use crate::write::Precision;
use crate::write::columns::{Block, Declaration, ErrorRun, Tables, Values};

/// Errors that a response describes by default.
const DEFAULT_MAX_ERRORS: u32 = 100;

/// The most errors that a response describes: they must fit one message.
const MOST_MAX_ERRORS: u32 = 10_000;

/// How many errors a response describes.
pub(in crate::grpc) fn max_errors(requested: u32) -> usize {
    let max = if requested == 0 {
        DEFAULT_MAX_ERRORS
    } else {
        requested
    };
    max.min(MOST_MAX_ERRORS) as usize
}

/// The precision of a request.
pub(in crate::grpc) fn precision(field: &str, number: i32) -> Result<Precision, Status> {
    match TimestampPrecision::try_from(number) {
        Ok(TimestampPrecision::Unspecified) => Ok(Precision::Auto),
        Ok(TimestampPrecision::Seconds) => Ok(Precision::Seconds),
        Ok(TimestampPrecision::Milliseconds) => Ok(Precision::Milliseconds),
        Err(_) => {
            let description = format!("{number} is not a precision, expected 0, 1 or 2");
            Err(invalid_field_because(
                field,
                ErrorReason::InvalidField,
                description,
            ))
        }
    }
}

/// Adds the declarations of `columns` to `tables`. `within` is the path of the columns, with its dot.
pub(in crate::grpc) fn declare(within: &str, columns: &Columns, tables: &mut Tables) -> Result<(), Status> {
    let symbols = columns.new_symbols.iter().map(String::as_str);
    let series = columns.new_series.iter().map(declaration);
    tables
        .declare(symbols, series)
        .map_err(|violation| status::of_violation(within, &violation))
}

fn declaration(message: &SeriesDeclaration) -> Declaration<'_> {
    if message.tsuid.is_empty() {
        Declaration::Symbols {
            metric: message.metric_symbol,
            tags: &message.tag_symbols,
        }
    } else {
        Declaration::Tsuid(&message.tsuid)
    }
}

/// The blocks of `columns`.
pub(in crate::grpc) fn blocks(columns: &Columns) -> impl Iterator<Item = Block<'_>> {
    columns.blocks.iter().map(block)
}

fn block(message: &BlockMessage) -> Block<'_> {
    Block {
        series: &message.series,
        base_ms: message.base_timestamp_ms,
        deltas_ms: &message.timestamp_deltas_ms,
        values: match &message.values {
            Some(block::Values::Ints(column)) => Values::Ints(&column.values),
            Some(block::Values::Doubles(column)) => Values::Doubles(&column.values),
            None => Values::Ints(&[]),
        },
    }
}

/// How many points `columns` have.
pub(in crate::grpc) fn point_count(columns: &Columns) -> usize {
    blocks(columns).map(|block| block.point_count()).sum()
}

pub(in crate::grpc) fn point_error(run: &ErrorRun) -> PointError {
    PointError {
        point: run.first,
        error: Some(status::of_point(&run.reason)),
        count: run.count,
    }
}
