//! `WriteHistograms`.

use std::sync::Arc;
use std::time::SystemTime;

use oxtsdb_ingest::columns::Failures;
use oxtsdb_ingest::{NewHistogram, PointErrorReason};
use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::histogram_series::Series as SeriesMessage;
use oxtsdb_proto::data::v1::{self as pb, HistogramSeries, WriteHistogramsRequest, WriteHistogramsResponse};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status as error_status};
use oxtsdb_schema::histogram::{Bounds, Bucket};
use oxtsdb_schema::{Histogram, HistogramCodecs, Timestamp};
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::results::caller_of;
use super::write::{WriteOptions, count_write, failures_message};
use super::{DataServiceHandler, status};

/// The most histograms of a request.
const MAX_HISTOGRAMS: usize = 10_000;

/// A histogram with checked time and value.
struct Encoded {
    /// Its series in the request.
    series: usize,
    timestamp: Timestamp,
    /// The value of its cell.
    value: Vec<u8>,
}

pub(super) async fn write_histograms(
    service: &DataServiceHandler,
    request: Request<WriteHistogramsRequest>,
) -> Result<Response<WriteHistogramsResponse>, Status> {
    let (deadline, caller) = (deadline_of(request.extensions()), caller_of(&request));
    let request = Arc::new(request.into_inner());
    let Some(codecs) = service.writer.histograms() else {
        let message = "histograms are not configured (--histograms-config)";
        return Err(error_status(
            Code::FailedPrecondition,
            ErrorReason::HistogramsNotConfigured,
            message,
            &[],
        ));
    };
    let options = WriteOptions::parse("options", request.options.as_ref())?;
    check_shape(&request.series)?;
    let rules = options.time.rules(SystemTime::now());
    let shared = Arc::clone(&request);
    let encode_all = move || {
        let histograms = shared.series.iter().enumerate().flat_map(|(series, message)| {
            let timed = message.timestamps.iter().zip(&message.histograms);
            timed.map(move |(timestamp, histogram)| (series, *timestamp, histogram))
        });
        let encoded = histograms.map(|(series, timestamp, histogram)| {
            let timestamp = rules.timestamp(timestamp)?;
            let value = encode(&codecs, histogram)?;
            Ok(Encoded {
                series,
                timestamp,
                value,
            })
        });
        encoded.collect::<Vec<Result<Encoded, PointErrorReason>>>()
    };
    let encoded = service.writer.compute_of(caller.client).run(encode_all).await;
    let encoded = encoded.map_err(|panicked| Status::internal(panicked.to_string()))?;
    let tags: Vec<Vec<(&str, &str)>> = request.series.iter().map(tags_of).collect();
    let mut reasons = Vec::with_capacity(encoded.len());
    let mut places = Vec::with_capacity(encoded.len());
    let mut good = Vec::with_capacity(encoded.len());
    for (place, encoded) in encoded.iter().enumerate() {
        let message = |series: usize| Some((request.series.get(series)?, tags.get(series)?));
        match encoded {
            Ok(encoded) => {
                let Some((message, tags)) = message(encoded.series) else {
                    continue;
                };
                places.push(place);
                good.push(NewHistogram {
                    series: series_ref(message, tags),
                    timestamp: encoded.timestamp,
                    value: &encoded.value,
                });
            }
            Err(reason) => reasons.push((place, Arc::new(reason.clone()))),
        }
    }
    let written = if good.is_empty() {
        0
    } else {
        let outcome = service.writer.write_histograms(&good, deadline).await;
        let outcome = outcome.map_err(|error| {
            let failures = failures_of(&request.series, &reasons, options.max_errors);
            count_write(service, &caller, good.len() as u64, &failures, false);
            status::write_status(&error)
        })?;
        let failed = outcome.errors.into_iter();
        reasons.extend(failed.filter_map(|error| Some((*places.get(error.index)?, error.reason))));
        outcome.written
    };
    reasons.sort_by_key(|(place, _)| *place);
    let failures = failures_of(&request.series, &reasons, options.max_errors);
    count_write(service, &caller, written, &failures, true);
    Ok(Response::new(WriteHistogramsResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}

/// The failures of histograms, by their places.
fn failures_of(
    series: &[HistogramSeries],
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
        match &series.series {
            Some(SeriesMessage::Tsuid(tsuid)) => format!("TSUID {} {timestamp}", hex::encode_upper(tsuid)),
            Some(SeriesMessage::Name(name)) => {
                let tags = tags_of(series);
                let tags: String = tags
                    .iter()
                    .map(|(key, value)| format!(" {key}={value}"))
                    .collect();
                format!("{}{tags} {timestamp}", name.metric)
            }
            None => timestamp.to_string(),
        }
    });
    failures
}

/// Checks the numbers of elements.
fn check_shape(series: &[HistogramSeries]) -> Result<(), Status> {
    let mut count = 0;
    for (place, series) in series.iter().enumerate() {
        let field = format!("series[{place}]");
        if series.series.is_none() {
            return Err(invalid_field(&field, "has no series, expected name or tsuid"));
        }
        let (timestamps, histograms) = (series.timestamps.len(), series.histograms.len());
        if timestamps != histograms {
            let rule = format!("has {timestamps} timestamps and {histograms} histograms, expected as many");
            return Err(invalid_field(&field, rule));
        }
        count += histograms;
    }
    if (1..=MAX_HISTOGRAMS).contains(&count) {
        return Ok(());
    }
    let description = format!("has {count} histograms, expected 1 to {MAX_HISTOGRAMS}");
    Err(invalid_field_because(
        "series",
        ErrorReason::BatchTooLarge,
        description,
    ))
}

fn encode(codecs: &HistogramCodecs, message: &pb::Histogram) -> Result<Vec<u8>, PointErrorReason> {
    let bucket = |bucket: &pb::histogram::Bucket| {
        let pb::HistogramBounds { lower, upper } = bucket.bounds.unwrap_or_default();
        Bucket {
            bounds: Bounds { lower, upper },
            count: bucket.count,
        }
    };
    let buckets = message.buckets.iter().map(bucket).collect();
    let histogram = Histogram::new(buckets, message.underflow, message.overflow);
    histogram
        .and_then(|histogram| codecs.encode_cell(&histogram))
        .map_err(PointErrorReason::InvalidHistogram)
}

fn tags_of(series: &HistogramSeries) -> Vec<(&str, &str)> {
    match &series.series {
        Some(SeriesMessage::Name(name)) => {
            let tags = name.tags.iter();
            tags.map(|tag| (tag.key.as_str(), tag.value.as_str())).collect()
        }
        Some(SeriesMessage::Tsuid(_)) | None => Vec::new(),
    }
}

fn series_ref<'a>(series: &'a HistogramSeries, tags: &'a [(&'a str, &'a str)]) -> SeriesRef<'a> {
    match &series.series {
        Some(SeriesMessage::Name(name)) => SeriesRef::Names {
            metric: &name.metric,
            tags,
        },
        Some(SeriesMessage::Tsuid(tsuid)) => SeriesRef::Tsuid(tsuid),
        None => SeriesRef::Tsuid(&[]),
    }
}

#[cfg(test)]
mod tests;
