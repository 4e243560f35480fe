//! `WriteRollups`.

use std::sync::Arc;
use std::time::SystemTime;

use oxtsdb_ingest::PointErrorReason;
use oxtsdb_ingest::columns::Failures;
use oxtsdb_ingest::rollup::{Aggregate, NewAggregate, RollupWriter};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{RollupSeries, WriteRollupsRequest, WriteRollupsResponse};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status as error_status};
use oxtsdb_schema::Value;
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::results::caller_of;
use super::write::{WriteOptions, count_write, failures_message};
use super::{DataServiceHandler, status};

/// The most values of a request.
const MAX_VALUES: usize = 10_000;

pub(super) async fn write_rollups(
    service: &DataServiceHandler,
    request: Request<WriteRollupsRequest>,
) -> Result<Response<WriteRollupsResponse>, Status> {
    let (deadline, caller) = (deadline_of(request.extensions()), caller_of(&request));
    let request = request.into_inner();
    let writer = RollupWriter::of(&service.engine, &service.writer);
    if !writer.is_configured() {
        let message = "rollups are not configured (--rollups-config)";
        let reason = ErrorReason::RollupsNotConfigured;
        return Err(error_status(Code::FailedPrecondition, reason, message, &[]));
    }
    let options = WriteOptions::parse("options", request.options.as_ref())?;
    check_shape(&request.series)?;
    let rules = options.time.rules(SystemTime::now());
    let mut reasons: Vec<(usize, Arc<PointErrorReason>)> = Vec::new();
    let (mut places, mut good) = (Vec::new(), Vec::new());
    let mut place = 0;
    for series in &request.series {
        let tags = tags_of(series);
        for (index, timestamp) in series.timestamps.iter().enumerate() {
            let stored = rules
                .timestamp(*timestamp)
                .and_then(|time| match time.is_millis() {
                    true => Err(PointErrorReason::NotWholeSecond {
                        timestamp_ms: time.as_millis(),
                    }),
                    false => Ok(time.as_millis() / 1000),
                });
            let value = stored.and_then(|timestamp| Ok((timestamp, value_of(series, index)?)));
            match value {
                Ok((timestamp, value)) => {
                    places.push(place);
                    good.push(NewAggregate {
                        metric: series.name.as_ref().map_or("", |name| &name.metric),
                        tags: tags.clone(),
                        timestamp,
                        value,
                        aggregate: Aggregate {
                            interval: named(&series.interval),
                            aggregator: named(&series.aggregator),
                            group_by: named(&series.group_by),
                        },
                    });
                }
                Err(reason) => reasons.push((place, Arc::new(reason))),
            }
            place += 1;
        }
    }
    let mut written = 0;
    if !good.is_empty() {
        let outcome = writer.write(&good, deadline).await;
        let outcome = outcome.map_err(|error| {
            let failures = failures_of(&request.series, &reasons, options.max_errors);
            count_write(service, &caller, good.len() as u64, &failures, false);
            status::write_status(&error)
        })?;
        written = outcome.written as u64;
        let invalid = outcome.invalid.into_iter().map(|(index, error)| {
            let reason = PointErrorReason::InvalidRollup(error.to_string());
            (index, Arc::new(reason))
        });
        let unresolved = outcome
            .unresolved
            .into_iter()
            .map(|error| (error.index, error.reason));
        let failed = invalid.chain(unresolved);
        reasons.extend(failed.filter_map(|(index, reason)| Some((*places.get(index)?, reason))));
    }
    reasons.sort_by_key(|(place, _)| *place);
    let failures = failures_of(&request.series, &reasons, options.max_errors);
    count_write(service, &caller, written, &failures, true);
    Ok(Response::new(WriteRollupsResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}

/// The failures of values, by their places.
fn failures_of(
    series: &[RollupSeries],
    reasons: &[(usize, Arc<PointErrorReason>)],
    max_errors: usize,
) -> Failures {
    let mut failures = Failures::new(max_errors);
    for (place, reason) in reasons {
        failures.add_run(*place, 1, reason);
    }
    failures.describe(|place| {
        let mut points = series
            .iter()
            .flat_map(|series| series.timestamps.iter().map(move |timestamp| (series, timestamp)));
        let Some((series, timestamp)) = points.nth(place) else {
            return String::new();
        };
        let metric = series.name.as_ref().map_or("", |name| &name.metric);
        let tags = tags_of(series);
        let tags: String = tags
            .iter()
            .map(|(key, value)| format!(" {key}={value}"))
            .collect();
        format!(
            "{}-{} {metric}{tags} {timestamp}",
            series.interval, series.aggregator
        )
    });
    failures
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

fn tags_of(series: &RollupSeries) -> Vec<(&str, &str)> {
    let tags = series.name.iter().flat_map(|name| &name.tags);
    tags.map(|tag| (tag.key.as_str(), tag.value.as_str())).collect()
}

fn named(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
