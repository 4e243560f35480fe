//! `WriteRollups`.

use std::time::SystemTime;

use oxtsdb_ingest::rollup::{Aggregate, NewAggregate, RollupWriter};
use oxtsdb_ingest::{PointErrorReason, TimeRules};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{RollupSeries, WriteRollupsRequest, WriteRollupsResponse};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status as error_status};
use oxtsdb_schema::Value;
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::DataServiceHandler;
use super::results::caller_of;
use super::write::data::{self, CheckedData};
use super::write::{WriteOptions, failures_message};

/// The most values of a request.
const MAX_VALUES: usize = 10_000;

pub(super) async fn write_rollups(
    service: &DataServiceHandler,
    request: Request<WriteRollupsRequest>,
) -> Result<Response<WriteRollupsResponse>, Status> {
    let (deadline, caller) = (deadline_of(request.extensions()), caller_of(&request));
    let request = request.into_inner();
    let writer = RollupWriter::from_engine(&service.engine, &service.writer);
    if !writer.is_configured() {
        let message = "rollups are not configured (--rollups-config)";
        let reason = ErrorReason::RollupsNotConfigured;
        return Err(error_status(Code::FailedPrecondition, reason, message, &[]));
    }
    let options = WriteOptions::parse("options", request.options.as_ref())?;
    check_shape(&request.series)?;
    let rules = options.time.rules(SystemTime::now());
    let values = request.series.iter().flat_map(|series| {
        let timestamps = series.timestamps.iter().enumerate();
        timestamps.map(|(index, timestamp)| rollup(series, index, *timestamp, &rules))
    });
    let data: CheckedData<NewAggregate<'_>> = values.collect();
    let outcome = writer.write(data.good(), deadline).await;
    let (written, failures) = data.end((service, &caller), outcome, options.max_errors, |place| {
        data::describe(&request.series, |series| &series.timestamps, series_text, place)
    })?;
    Ok(Response::new(WriteRollupsResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}

/// A value of a series.
fn rollup<'a>(
    series: &'a RollupSeries,
    index: usize,
    timestamp: i64,
    rules: &TimeRules,
) -> Result<NewAggregate<'a>, PointErrorReason> {
    let time = rules.timestamp(timestamp)?;
    if time.is_millis() {
        return Err(PointErrorReason::NotWholeSecond {
            timestamp_ms: time.as_millis(),
        });
    }
    Ok(NewAggregate {
        metric: series.name.as_ref().map_or("", |name| &name.metric),
        tags: series.name.as_ref().map(data::tags).unwrap_or_default(),
        timestamp: time.as_millis() / 1000,
        value: value_of(series, index)?,
        aggregate: Aggregate {
            interval: named(&series.interval),
            aggregator: named(&series.aggregator),
            group_by: named(&series.group_by),
        },
    })
}

/// A series of the request, for the log.
fn series_text(series: &RollupSeries) -> String {
    let name = series.name.as_ref().map(data::name_text).unwrap_or_default();
    format!("{}-{} {name}", series.interval, series.aggregator)
}

/// Checks names and the numbers of elements.
fn check_shape(series: &[RollupSeries]) -> Result<(), Status> {
    let mut count = 0;
    for (place, series) in series.iter().enumerate() {
        let field = format!("series[{place}]");
        if series.name.is_none() {
            return Err(invalid_field(&format!("{field}.name"), "is missing"));
        }
        let (timestamps, doubles, ints) = (
            series.timestamps.len(),
            series.values.len(),
            series.int_values.len(),
        );
        if doubles > 0 && ints > 0 {
            let rule = "has `values` and `int_values`, expected one of them";
            return Err(invalid_field(&field, rule));
        }
        if timestamps != doubles + ints {
            let values = doubles + ints;
            let rule = format!("has {timestamps} timestamps and {values} values, expected as many");
            return Err(invalid_field(&field, rule));
        }
        count += timestamps;
    }
    if (1..=MAX_VALUES).contains(&count) {
        return Ok(());
    }
    let description = format!("has {count} values, expected 1 to {MAX_VALUES}");
    Err(invalid_field_because(
        "series",
        ErrorReason::BatchTooLarge,
        description,
    ))
}

fn value_of(series: &RollupSeries, index: usize) -> Result<Value, PointErrorReason> {
    match (series.int_values.get(index), series.values.get(index)) {
        (Some(int), _) => Ok(Value::Int(*int)),
        (None, double) => {
            let double = double.copied().unwrap_or(f64::NAN);
            Value::number(double).map_err(PointErrorReason::InvalidValue)
        }
    }
}

fn named(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
