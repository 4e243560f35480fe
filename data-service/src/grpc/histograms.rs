//! `WriteHistograms`.

use std::sync::Arc;
use std::time::SystemTime;

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

use super::DataServiceHandler;
use super::results::caller_of;
use super::write::data::{self, CheckedData};
use super::write::{WriteOptions, failures_message};

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
    let data = encoded.iter().map(|encoded| {
        let encoded = encoded.as_ref().map_err(Clone::clone)?;
        Ok(NewHistogram {
            series: series_ref(&request.series[encoded.series], &tags[encoded.series]),
            timestamp: encoded.timestamp,
            value: &encoded.value,
        })
    });
    let data: CheckedData<NewHistogram<'_>> = data.collect();
    let outcome = service.writer.write_histograms(data.good(), deadline).await;
    let (written, failures) = data.end((service, &caller), outcome, options.max_errors, |place| {
        data::describe(&request.series, |series| &series.timestamps, series_text, place)
    })?;
    Ok(Response::new(WriteHistogramsResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}

/// A series of the request, for the log.
fn series_text(series: &HistogramSeries) -> String {
    match &series.series {
        Some(SeriesMessage::Tsuid(tsuid)) => format!("TSUID {}", hex::encode_upper(tsuid)),
        Some(SeriesMessage::Name(name)) => data::name_text(name),
        None => String::new(),
    }
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
        Some(SeriesMessage::Name(name)) => data::tags(name),
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
