//! `/api/histogram`: writes histograms from JSON.
//!
//! The same rules as for `/api/put`, with its flags: valid histograms of a batch are stored even if others are rejected,
//! and the server responds when they are durable.
//!
//! Source: OpenTSDB 2.4, `HistogramDataPointRpc`, `PutDataPointRpc.processDataPoint`.

mod body;

use http::StatusCode;
use oxtsdb_ingest::point_text::{self, NameOf};
use oxtsdb_ingest::{Caller, Example, NewHistogram, RejectionKind, Writer};
use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_schema::{HistogramCodecs, Timestamp};

use self::body::{SentHistogram, Unfit};
use crate::front::counters::Counters;
use crate::front::histogram_text::DISABLED;
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::put::outcome::{self, Batches, Flags, Outcome, reply};
use crate::http::reply::Reply;

/// Histograms in one call of the writer.
const WRITE_HISTOGRAMS: usize = 1000;

/// A valid histogram.
#[derive(Debug)]
struct GoodHistogram<'a> {
    /// Its index in the body.
    place: usize,
    metric: &'a str,
    tags: Vec<(&'a str, &'a str)>,
    timestamp: Timestamp,
    /// The value of its cell.
    value: Vec<u8>,
}

/// Stores the histograms of a body.
pub(crate) async fn put(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        caller,
        parameters,
        mut body,
        ..
    } = request;
    let (writer, counters) = (&parts.writer, &parts.counters);
    Counters::count(&counters.puts);
    let Some(codecs) = writer.histograms() else {
        return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, DISABLED));
    };
    let flags = Flags::parse(parameters)?;
    if body.bytes.is_empty() {
        return Err(HttpError::bad_request("Missing request content"));
    }
    let histograms = parsed(&mut body, writer.compute(), body::parse)
        .await
        .inspect_err(|error| outcome::reject_body(counters, &caller, error, &body.bytes))?;
    if histograms.is_empty() {
        return Err(HttpError::bad_request("No datapoints found in content"));
    }
    let outcome = store((writer, counters), &caller, codecs, &histograms, flags).await?;
    let write_histogram = |out: &mut Vec<u8>, place: usize| match histograms.get(place) {
        Some(Some(histogram)) => histogram.write(out),
        _ => out.extend_from_slice(b"null"),
    };
    reply(&outcome, flags, write_histogram)
}

/// Checks the histograms, and writes the valid ones in batches.
async fn store(
    (writer, counters): (&Writer, &Counters),
    caller: &Caller,
    codecs: HistogramCodecs,
    histograms: &[Option<SentHistogram>],
    flags: Flags,
) -> Result<Outcome, HttpError> {
    let deadline = flags.deadline();
    let mut batches = Batches::new(counters, caller, flags);
    for (chunk, histograms) in histograms.chunks(WRITE_HISTOGRAMS).enumerate() {
        let mut good = Vec::with_capacity(histograms.len());
        for (index, histogram) in histograms.iter().enumerate() {
            let place = chunk * WRITE_HISTOGRAMS + index;
            match check(place, histogram.as_ref(), &codecs) {
                Ok(histogram) => good.push(histogram),
                Err(unfit) => {
                    let counter = match &unfit {
                        Unfit::NoNumber => &counters.invalid_values,
                        Unfit::Unexpected | Unfit::Rule(..) => &counters.illegal_arguments,
                    };
                    let (kind, text) = (unfit.kind(), unfit.into_text());
                    batches.reject(place, counter, kind, text, |text| {
                        example(text, histogram.as_ref())
                    });
                }
            }
        }
        if batches.skip(good.len()) {
            continue;
        }
        let new: Vec<NewHistogram<'_>> = good.iter().map(GoodHistogram::new_histogram).collect();
        let written = writer.write_histograms(&new, Some(deadline)).await;
        let written = written.map(|written| (good.len() - written.errors.len(), written.errors));
        for error in batches.end(good.len(), written)?.unwrap_or_default() {
            let Some(histogram) = good.get(error.index) else {
                continue;
            };
            batches.reject_point(histogram.place, &error.reason, &histogram.tags, |text| {
                let sent = histograms.get(histogram.place - chunk * WRITE_HISTOGRAMS);
                example(text, sent.and_then(Option::as_ref))
            });
        }
    }
    Ok(batches.outcome())
}

/// A rejected histogram for the log.
fn example(reason: &str, sent: Option<&SentHistogram>) -> Example {
    let mut json = Vec::new();
    match sent {
        Some(sent) => sent.write(&mut json),
        None => json.extend_from_slice(b"null"),
    }
    Example {
        reason: reason.to_owned(),
        point: String::from_utf8_lossy(&json).into_owned(),
    }
}

impl<'a> GoodHistogram<'a> {
    fn new_histogram(&self) -> NewHistogram<'_> {
        NewHistogram {
            series: SeriesRef::Names {
                metric: self.metric,
                tags: &self.tags,
            },
            timestamp: self.timestamp,
            value: &self.value,
        }
    }
}

/// Checks a histogram in OpenTSDB's order.
fn check<'a>(
    place: usize,
    sent: Option<&'a SentHistogram>,
    codecs: &HistogramCodecs,
) -> Result<GoodHistogram<'a>, Unfit> {
    let Some(sent) = sent else {
        return Err(Unfit::rule(
            RejectionKind::Malformed,
            "Unexpected null datapoint encountered in set.",
        ));
    };
    let histogram = sent.check(codecs)?;
    let value = codecs
        .encode_cell(&histogram)
        .map_err(|error| Unfit::Rule(RejectionKind::Histogram, error.to_string()))?;
    let metric = sent.metric.as_ref().map_or("", |metric| metric.0.as_str());
    let sent_tags = sent.tags.as_ref().map_or(&[][..], |tags| tags.0.as_slice());
    let timestamp = Timestamp::from_opentsdb(sent.timestamp).map_err(|_| {
        let tags = sent_tags.iter();
        let tags = tags.map(|(key, value)| (key.as_str(), value.as_ref().map_or("null", |value| &value.0)));
        let text = point_text::bad_timestamp_of(sent.timestamp, metric, tags, &value, 0);
        Unfit::Rule(RejectionKind::Timestamp, text)
    })?;
    let mut tags = Vec::with_capacity(sent_tags.len());
    for (key, value) in sent_tags {
        let Some(value) = value else {
            let text = point_text::null_name(NameOf::TagValue(key));
            return Err(Unfit::Rule(RejectionKind::Name, text));
        };
        tags.push((key.as_str(), value.0.as_str()));
    }
    Ok(GoodHistogram {
        place,
        metric,
        tags,
        timestamp,
        value,
    })
}

#[cfg(test)]
mod tests;
