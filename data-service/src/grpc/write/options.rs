//! `WriteOptions`.

use oxtsdb_ingest::{Precision, TimeOptions, TimeUnit};
use oxtsdb_proto::data::v1::{self as pb, TimestampPrecision};
use oxtsdb_proto::error::invalid_field;
use tonic::Status;

/// Errors that a response describes by default.
const DEFAULT_MAX_ERRORS: u32 = 100;

/// The most errors that a response describes.
const MOST_MAX_ERRORS: u32 = 10_000;

/// The checked options of a request or a stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::grpc) struct WriteOptions {
    pub(in crate::grpc) time: TimeOptions,
    pub(in crate::grpc) max_errors: usize,
}

impl WriteOptions {
    /// Checks options. `field` is their path.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT, if there is no time unit or an enum has an unknown value.
    pub(in crate::grpc) fn parse(field: &str, options: Option<&pb::WriteOptions>) -> Result<Self, Status> {
        let options = options.copied().unwrap_or_default();
        let max_errors = options.max_errors.unwrap_or(DEFAULT_MAX_ERRORS);
        Ok(Self {
            time: TimeOptions {
                unit: time_unit(&format!("{field}.time_unit"), options.time_unit)?,
                precision: precision(&format!("{field}.precision"), options.precision)?,
                allow_any_time: options.allow_any_time,
            },
            max_errors: max_errors.min(MOST_MAX_ERRORS) as usize,
        })
    }
}

fn time_unit(field: &str, number: i32) -> Result<TimeUnit, Status> {
    match pb::TimeUnit::try_from(number) {
        Ok(pb::TimeUnit::Seconds) => Ok(TimeUnit::Seconds),
        Ok(pb::TimeUnit::Milliseconds) => Ok(TimeUnit::Milliseconds),
        Ok(pb::TimeUnit::Unspecified) => Err(invalid_field(
            field,
            "is not given, expected TIME_UNIT_SECONDS or TIME_UNIT_MILLISECONDS",
        )),
        Err(_) => Err(invalid_field(
            field,
            format!("{number} is not a time unit, expected TIME_UNIT_SECONDS or TIME_UNIT_MILLISECONDS"),
        )),
    }
}

fn precision(field: &str, number: i32) -> Result<Precision, Status> {
    match TimestampPrecision::try_from(number) {
        Ok(TimestampPrecision::Unspecified | TimestampPrecision::Auto) => Ok(Precision::Auto),
        Ok(TimestampPrecision::Seconds) => Ok(Precision::Seconds),
        Ok(TimestampPrecision::Milliseconds) => Ok(Precision::Milliseconds),
        Err(_) => Err(invalid_field(
            field,
            format!("{number} is not a precision, expected one of the named values"),
        )),
    }
}
