//! Prometheus' remote write, versions 1.0 and 2.0: `/api/v1/write`. Its remote read is in [`read`].
//!
//! ```text
//!   {__name__="up", job="node", instance="a:9100"} 1 @1700000000000
//!   ─► up 1700000000 1 job=node instance=a_9100
//!   {__name__="h", job="node"} histogram of schema 0, sum 8, 2 values in (1, 2], 1 in (2, 4] @1700000000000
//!   ─► h_bucket 1700000000 0 job=node le=0       le=1, le=2, le=4 and le=_Inf likewise
//!   ─► h_count  1700000000 3 job=node
//!   ─► h_sum    1700000000 8 job=node
//! ```
//!
//! The metric is the label `__name__`, the other labels are tags. A sample that is NaN says that there is no value, as the marker of
//! a stale series and the quantiles of a summary without observations do: it is left out, and counts as written. Exemplars are left
//! out too. All are counted. Series are independent: the good samples and histograms are stored, and the response names the others.
//! With `histograms=opentsdb` in the URL the buckets of a histogram are one of OpenTSDB's histograms, `h`, in place of `h_bucket`.
//!
//! Source: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and `remote_write_spec_2_0/`; `prompb/remote.proto`,
//! `prompb/io/prometheus/write/v2/types.proto` of Prometheus 3.

mod decode;
mod histogram;
mod known;
pub(super) mod read;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};
use oxtsdb_ingest::{RejectionKind, Writer};
use oxtsdb_schema::Value;

use self::decode::{Decoded, Decoder, Series};
use self::histogram::{Buckets, NativeHistogram};
use self::known::{LookedUp, Upcoming};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::error_form::ErrorForm;
use crate::http::mapped::histogram_form::HistogramForm;
use crate::http::mapped::suffixed::{Suffix, SuffixedMetric, SuffixedSeries};
use crate::http::mapped::write::{self, Written};
use crate::http::mapped::{self, CHUNK_POINTS, Chunk, MappedSeries, NameMap, SentAs, Tag};
use crate::http::protobuf::Malformed;
use crate::http::reply::Reply;

/// The label with the metric.
const NAME: &str = "__name__";

/// The value of a sample that says that its series has ended.
///
/// Source: Prometheus, `model/value/value.go`, `StaleNaN`.
const STALE: u64 = 0x7ff0_0000_0000_0002;

const SAMPLES_WRITTEN: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS_WRITTEN: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// Stores the samples of a body.
pub(super) async fn write(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        caller,
        parameters,
        mut body,
        ..
    } = request;
    let form = SampleForm {
        map: NameMap::new(parts.writer.uids().name_rules(), "prometheus"),
        histograms: HistogramForm::parse(parameters.get("histograms"), parts.writer.histograms())?,
    };
    body.charge(Decoder::most_bytes(&body.bytes)).await?;
    let writer = parts.writer.clone();
    let decode = move |bytes: &Bytes, state: &mut Option<(Decoder, Upcoming)>| {
        let (decoder, upcoming) = match state {
            Some(state) => state,
            None => state.insert((Decoder::new(bytes).map_err(unreadable)?, Upcoming::default())),
        };
        decode(bytes, decoder, upcoming, &form, &writer).map_err(unreadable)
    };
    let written = write::write(parts, &caller, body, None, decode).await?;
    let Written {
        outcome, histograms, ..
    } = written;
    // The sender reports samples that are missing here as failed.
    let samples = outcome.success - written.histogram_points + written.without_value;
    let reply = match write::error(&outcome) {
        None => Reply::empty(),
        Some((status, text)) => Reply::text_in(ErrorForm::Text, status, &text),
    };
    Ok(reply
        .with_header(SAMPLES_WRITTEN, HeaderValue::from(samples))
        .with_header(HISTOGRAMS_WRITTEN, HeaderValue::from(histograms))
        .with_header(EXEMPLARS_WRITTEN, 0))
}

fn unreadable(error: Malformed) -> HttpError {
    let message = format!("request body is no WriteRequest of remote write 1.0 or 2.0: {error}");
    HttpError::new(StatusCode::BAD_REQUEST, message)
}

/// How samples and histograms become points.
struct SampleForm {
    map: NameMap,
    histograms: HistogramForm,
}

/// The next series of a body.
fn decode(
    bytes: &Bytes,
    decoder: &mut Decoder,
    upcoming: &mut Upcoming,
    form: &SampleForm,
    writer: &Writer,
) -> Result<Option<Chunk>, Malformed> {
    let mut chunk = Chunk::with_sent(SENT_AS);
    let mut is_empty = true;
    let mut series = Series::default();
    while !chunk.is_full() {
        let LookedUp {
            labels_length,
            series: known,
        } = match decoder.has_symbols() {
            true => LookedUp::default(),
            false => upcoming.next(decoder.rest(bytes), &form.map, writer),
        };
        let skipped = if known.is_some() { labels_length } else { 0 };
        let Some(decoded) = decoder.next(bytes, &mut series, skipped)? else {
            break;
        };
        is_empty = false;
        let start = decoder.message().start;
        let sent = start..start + labels_length;
        match (decoded, known) {
            (Decoded::Series { number }, Some(known)) => {
                chunk.left_out += series.left_out;
                let known = chunk.known_series(known, sent, number);
                add_samples(&mut chunk, &known, &series);
            }
            (Decoded::Series { number }, None) => add(&mut chunk, form, &series, sent, number)?,
            (Decoded::TooManyLabels { number }, _) => {
                let reason = format!("more than {} labels", mapped::MOST_TAGS);
                chunk.reject(number, RejectionKind::Tags, reason, String::new());
            }
            (Decoded::TooManySamples { number }, _) => {
                let reason = format!("more than {CHUNK_POINTS} samples of one series");
                chunk.reject(number, RejectionKind::Malformed, reason, String::new());
            }
        }
    }
    Ok((!is_empty).then_some(chunk))
}

/// Adds the samples of a series.
fn add_samples(chunk: &mut Chunk, mapped: &MappedSeries, series: &Series<'_>) {
    for (value, timestamp_ms) in &series.samples {
        if value.is_nan() {
            chunk.left_out += 1;
            chunk.without_value += 1;
            continue;
        }
        chunk.point(mapped, *timestamp_ms, Value::double(*value));
    }
}

/// Adds the samples and the histograms of a series, which `sent` identifies if it is not empty.
fn add(
    chunk: &mut Chunk,
    form: &SampleForm,
    series: &Series<'_>,
    sent: Range<usize>,
    number: usize,
) -> Result<(), Malformed> {
    let map = &form.map;
    chunk.left_out += series.left_out;
    let labels = series.labels.iter().copied();
    let name = labels.clone().find(|(key, _)| *key == NAME);
    let Some((_, name)) = name.filter(|(_, name)| !name.is_empty()) else {
        let reason = format!("the label `{NAME}` is missing");
        chunk.reject(number, RejectionKind::Name, reason, mapped::example("", labels));
        return Ok(());
    };
    let labels = labels.filter(|(key, _)| *key != NAME);
    let tags = labels
        .clone()
        .filter_map(|(key, value)| chunk.tag(map, key, value));
    let tags: Vec<Tag> = tags.collect();
    let tag_list = chunk.tag_list(map, tags.iter());
    if !series.samples.is_empty() {
        let mapped = chunk.series(map, &[name], tag_list.clone(), number);
        add_samples(chunk, &mapped.sent_as(sent), series);
    }
    let before = chunk.len();
    let mut metric = SuffixedMetric::default();
    for message in &series.histograms {
        let histogram = NativeHistogram::decode(message)?;
        if histogram.is_stale() {
            chunk.left_out += 1;
            // Without points, it is complete.
            chunk.histogram(|_| {});
            continue;
        }
        let reject = |chunk: &mut Chunk, reason: String| {
            let reason = format!("histogram at {}: {reason}", histogram.timestamp_ms);
            let example = mapped::example(name, labels.clone());
            chunk.reject(number, RejectionKind::Histogram, reason, example);
        };
        if chunk.len() - before > CHUNK_POINTS {
            let reason = format!("the histograms of its series have more than {CHUNK_POINTS} points");
            reject(chunk, reason);
            continue;
        }
        match histogram.buckets() {
            Err(error) => reject(chunk, error.to_string()),
            Ok(Buckets { buckets, count }) => chunk.histogram(|chunk| {
                let mut series = SuffixedSeries {
                    chunk,
                    metric: &mut metric,
                    map,
                    name,
                    tags: &tags,
                    tag_list: tag_list.clone(),
                    timestamp_ms: histogram.timestamp_ms,
                    number,
                };
                series.add_buckets(form.histograms, &buckets, Some(count));
                series.add_count(count);
                series.add(Suffix::Sum, Value::double(histogram.sum));
            }),
        }
    }
    Ok(())
}

/// Series are identified by their labels.
const SENT_AS: SentAs = SentAs {
    text: known::series_text,
    shown: |labels| {
        let labels = decode::labels(labels.as_bytes()).unwrap_or_default();
        mapped::example("", labels.into_iter())
    },
};
