//! `/api/histogram`: writes histograms from JSON.
//!
//! The same rules as for `/api/put`, with its flags: valid histograms of a batch are stored even if others are rejected,
//! and the server responds when they are durable.
//!
//! Source: OpenTSDB 2.4, `HistogramDataPointRpc`, `PutDataPointRpc.processDataPoint`.

mod body;

use http::StatusCode;
use oxtsdb_ingest::point_text::{self, NameOf, Rejection};
use oxtsdb_ingest::{Caller, Example, NewHistogram, RejectionKind, Writer};
use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_schema::{HistogramCodecs, Timestamp};
use oxtsdb_server::metrics::Protocol;

use self::body::{SentHistogram, Unfit};
use crate::front::counters::Counters;
use crate::front::histogram_text::DISABLED;
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::put::failure;
use crate::http::put::outcome::{self, Flags, Outcome, is_timeout, rejection_text, reply};
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
    let mut outcome = Outcome::default();
    for (chunk, histograms) in histograms.chunks(WRITE_HISTOGRAMS).enumerate() {
        let mut good = Vec::with_capacity(histograms.len());
        for (index, histogram) in histograms.iter().enumerate() {
            let place = chunk * WRITE_HISTOGRAMS + index;
            match check(place, histogram.as_ref(), &codecs) {
                Ok(histogram) => good.push(histogram),
                Err(unfit) => {
                    Counters::count(match &unfit {
                        Unfit::NoNumber => &counters.invalid_values,
                        Unfit::Unexpected | Unfit::Rule(..) => &counters.illegal_arguments,
                    });
                    let (kind, text) = (unfit.kind(), unfit.into_text());
                    counters.reject(caller, kind, || example(&text, histogram.as_ref()));
                    outcome.fail(flags, place, text);
                }
            }
        }
        if outcome.timeouts > 0 {
            outcome.timeouts += good.len();
            continue;
        }
        let new: Vec<NewHistogram<'_>> = good.iter().map(GoodHistogram::new_histogram).collect();
        match writer.write_histograms(&new, Some(deadline)).await {
            Ok(written) => {
                let stored = good.len() - written.errors.len();
                outcome.success += stored;
                counters.ingest(Protocol::Http).add_batch(stored as u64);
                for error in written.errors {
                    let failure = failure::status_of_point(&error.reason);
                    outcome.failure = outcome.failure.or(failure);
                    let Some(histogram) = good.get(error.index) else {
                        continue;
                    };
                    let text = rejection_text(Rejection::of(&error.reason, &histogram.tags), counters);
                    counters.reject(caller, RejectionKind::from(&*error.reason), || {
                        let sent = histograms.get(histogram.place - chunk * WRITE_HISTOGRAMS);
                        example(&text, sent.and_then(Option::as_ref))
                    });
                    outcome.fail(flags, histogram.place, text);
                }
            }
            Err(error) if flags.timeout_ms.is_some() && is_timeout(&error) => {
                outcome.timeouts = good.len();
            }
            Err(error) => {
                Counters::add(&counters.storage_errors, good.len());
                counters.ingest(Protocol::Http).add_failed(good.len() as u64);
                return Err(outcome::failure(&error, outcome.success));
            }
        }
    }
    outcome.details.sort_by_key(|(place, _)| *place);
    Ok(outcome)
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
