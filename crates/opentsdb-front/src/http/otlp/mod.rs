//! Metrics of OpenTelemetry: over HTTP at `/v1/metrics`, in protobuf or JSON, and over gRPC ([`grpc`]).
//!
//! ```text
//!   resource {service.name: api}, sum "http.requests", {route: /a} 3
//!   ─► http.requests 1700000000 3 route=/a service.name=api
//!   resource {service.name: api}, histogram "http.duration", {route: /a} bounds [0.1], counts [2, 1], sum 0.4
//!   ─► http.duration_bucket 1700000000 2   route=/a service.name=api le=0.1
//!   ─► http.duration_bucket 1700000000 3   route=/a service.name=api le=_Inf
//!   ─► http.duration_count  1700000000 3   route=/a service.name=api
//!   ─► http.duration_sum    1700000000 0.4 route=/a service.name=api
//! ```
//!
//! Attributes of a point are its tags, and so are those attributes of its resource that `resource=` names in the URL, or the header or
//! the metadata of the call (`RESOURCE_ATTRIBUTES` unless given), if the point has none of the same key. With `histograms=opentsdb` the
//! buckets of a histogram are one of OpenTSDB's histograms, in place of series with `le`. Points are independent: the good ones are
//! stored, and the response counts the others (partial success).
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>, and the files that `decode` names.

mod decode;
pub mod grpc;
mod json;
mod message;
mod point;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use oxtsdb_ingest::{Caller, RejectionKind};
use oxtsdb_schema::Value;
use oxtsdb_schema::name::excerpt;
use prost::Message as _;

use self::decode::{Decoder, Kind};
use self::message::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use self::point::{DataPoint, Number};
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::error::HttpError;
use crate::http::error_form;
use crate::http::mapped::buckets::{Bucket, Count, Exponential, MOST_BUCKETS, first_not_ascending};
use crate::http::mapped::histogram_form::HistogramForm;
use crate::http::mapped::suffixed::{Suffix, SuffixedMetric, SuffixedSeries};
use crate::http::mapped::write::{self, Written};
use crate::http::mapped::{self, Chunk, MOST_TAGS, NameMap, Tag};
use crate::http::protobuf::Malformed;
use crate::http::reply::Reply;
use crate::http::request_body::RequestBody;

/// The attributes of a resource that are tags: of all that SDKs and collectors add, those that tell processes apart.
const RESOURCE_ATTRIBUTES: [&str; 4] = [
    "service.namespace",
    "service.name",
    "service.instance.id",
    "host.name",
];

/// The tag with the quantile of a summary.
const QUANTILE: &str = "quantile";

/// The scales of exponential histograms: SDKs have -10 to 20; beyond, bounds are no numbers or equal.
const SCALES: RangeInclusive<i32> = -20..=40;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// `/v1/metrics`.
pub(super) async fn write(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        caller,
        parameters,
        content_type,
        setting_headers: headers,
        mut body,
        ..
    } = request;
    let encoding = Encoding::from_content_type(content_type.as_ref())?;
    if encoding == Encoding::Json {
        let most = body.bytes.len().saturating_mul(json::MOST_GROWTH);
        let convert = |bytes: &Bytes| json::to_protobuf(bytes).map_err(|error| malformed(&error));
        body = body.converted(most, parts.writer.compute(), convert).await?;
    }
    let settings = Settings {
        resource: parameters.get("resource").or(headers.resource()?),
        histograms: parameters.get("histograms").or(headers.histograms()?),
    };
    let response = export(parts, &caller, body, settings).await?;
    Ok(match encoding {
        Encoding::Protobuf => Reply::protobuf(response.encode_to_vec()),
        Encoding::Json => Reply::page_json(StatusCode::OK, response.to_json()),
    })
}

/// How a request and its response are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Protobuf,
    Json,
}

impl Encoding {
    fn from_content_type(content_type: Option<&HeaderValue>) -> Result<Self, HttpError> {
        let Some(content_type) = content_type else {
            return Ok(Self::Protobuf);
        };
        if error_form::is_json(content_type) {
            return Ok(Self::Json);
        }
        match error_form::media_type(content_type) {
            "application/x-protobuf" | "application/protobuf" => Ok(Self::Protobuf),
            other => {
                let message = format!(
                    "content type `{}` is not known, expected application/x-protobuf or application/json",
                    excerpt(other)
                );
                Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
            }
        }
    }
}

fn malformed(error: &dyn std::fmt::Display) -> HttpError {
    let message = format!("request body is no ExportMetricsServiceRequest: {error}");
    HttpError::new(StatusCode::BAD_REQUEST, message)
}

/// The settings of a request: parameters of the URL, headers, or metadata of the call.
#[derive(Clone, Copy, Debug, Default)]
struct Settings<'a> {
    /// The attributes of resources that are tags, with commas between.
    resource: Option<&'a str>,
    /// The form of histograms.
    histograms: Option<&'a str>,
}

/// How data points become points.
struct PointForm {
    map: NameMap,
    histograms: HistogramForm,
}

/// Stores the points of a body.
///
/// # Errors
///
/// The body is no request, or its points cannot be stored.
async fn export(
    parts: &ApiParts,
    caller: &Caller,
    body: RequestBody,
    settings: Settings<'_>,
) -> Result<ExportMetricsServiceResponse, HttpError> {
    let wanted = match settings.resource {
        None => RESOURCE_ATTRIBUTES.map(str::to_owned).to_vec(),
        Some(keys) => keys.split(',').take(MOST_TAGS).map(str::to_owned).collect(),
    };
    let form = PointForm {
        map: NameMap::new(parts.writer.uids().name_rules(), "otlp"),
        histograms: HistogramForm::parse(settings.histograms, parts.writer.histograms())?,
    };
    let decoder = Decoder::new(&body.bytes, wanted);
    let decode = move |bytes: &Bytes, decoder: &mut Decoder| {
        decode(bytes, decoder, &form).map_err(|error| malformed(&error))
    };
    let Written { outcome, .. } = write::write(parts, caller, body, decoder, decode).await?;
    let partial_success = match write::error(&outcome) {
        None => None,
        Some((status, text)) if outcome.failure.is_some() => return Err(HttpError::new(status, text)),
        Some((_, error_message)) => Some(ExportMetricsPartialSuccess {
            rejected_data_points: i64::try_from(outcome.failed).unwrap_or(i64::MAX),
            error_message,
        }),
    };
    Ok(ExportMetricsServiceResponse { partial_success })
}

/// The next points of a body.
fn decode(bytes: &Bytes, decoder: &mut Decoder, form: &PointForm) -> Result<Option<Chunk>, Malformed> {
    let mut chunk = Chunk::default();
    let mut shared = Shared::default();
    let mut is_empty = true;
    while !chunk.is_full()
        && let Some(message) = decoder.next(bytes)?
    {
        is_empty = false;
        add(&mut chunk, &mut shared, form, decoder, message)?;
    }
    Ok((!is_empty).then_some(chunk))
}

/// Adds the series of a data point.
fn add(
    chunk: &mut Chunk,
    shared: &mut Shared,
    form: &PointForm,
    decoder: &Decoder,
    message: &[u8],
) -> Result<(), Malformed> {
    let map = &form.map;
    let point = DataPoint::decode(decoder.kind(), message)?;
    chunk.left_out += point.exemplars;
    if point.has_no_value {
        chunk.left_out += 1;
        return Ok(());
    }
    if let Some((kind, reason)) = refusal(decoder, &point) {
        let attributes = point.attributes.iter().map(|(key, value)| (*key, &**value));
        let example = mapped::example(decoder.name(), attributes);
        chunk.reject(decoder.number(), kind, reason, example);
        return Ok(());
    }
    shared.begin(chunk, map, decoder);
    let own = |key: &str| point.attributes.iter().any(|(own, _)| *own == key);
    let resource = decoder.attributes().iter().zip(&shared.resource);
    let resource = resource
        .filter(|((key, _), _)| !own(key))
        .filter_map(|(_, tag)| tag.clone());
    let resource: Vec<Tag> = resource.collect();
    let attributes = point.attributes.iter();
    let tags = attributes.filter_map(|(key, value)| chunk.tag(map, key, value));
    let tags: Vec<Tag> = tags.chain(resource).collect();
    let mut series = SuffixedSeries {
        tag_list: chunk.tag_list(map, tags.iter()),
        tags: &tags,
        chunk,
        metric: &mut shared.metric,
        map,
        name: decoder.name(),
        timestamp_ms: i64::try_from(point.time_unix_nano / NANOS_PER_MILLI).unwrap_or(i64::MAX),
        number: decoder.number(),
    };
    match decoder.kind() {
        Kind::Gauge | Kind::Sum => match point.number {
            Some(Number::Int(int)) => series.add(Suffix::None, Ok(Value::Int(int))),
            Some(Number::Double(double)) => series.add(Suffix::None, Value::double(double)),
            None => series.chunk.left_out += 1,
        },
        Kind::Histogram | Kind::ExponentialHistogram => {
            let buckets = buckets(decoder.kind(), &point);
            if !buckets.is_empty() {
                series.add_buckets(form.histograms, &buckets, None);
            }
            add_totals(&mut series, &point);
        }
        Kind::Summary => {
            for (quantile, value) in &point.quantiles {
                let quantile = quantile.to_string();
                series.add_tagged(Suffix::None, QUANTILE, &quantile, Value::double(*value));
            }
            add_totals(&mut series, &point);
        }
    }
    Ok(())
}

/// The buckets of a histogram.
fn buckets(kind: Kind, point: &DataPoint<'_>) -> Vec<Bucket> {
    if kind == Kind::ExponentialHistogram {
        let histogram = Exponential {
            scale: point.scale,
            zero_threshold: point.zero_threshold,
            zero_count: Count::Int(point.zero_count),
        };
        let buckets = histogram.buckets(point.negative.by_index(), point.positive.by_index());
        return buckets.collect();
    }
    let bounds = point.bounds.iter().copied().chain([f64::INFINITY]);
    let buckets = bounds.zip(&point.counts).map(|(upper, count)| Bucket {
        lower: None,
        upper,
        count: Count::Int(*count),
    });
    buckets.collect()
}

/// Adds the count, the sum, and the extremes if there are any.
fn add_totals(series: &mut SuffixedSeries<'_>, point: &DataPoint<'_>) {
    series.add_count(Count::Int(point.count));
    let others = [
        (Suffix::Sum, point.sum),
        (Suffix::Min, point.min),
        (Suffix::Max, point.max),
    ];
    for (suffix, value) in others {
        if let Some(value) = value {
            series.add(suffix, Value::double(value));
        }
    }
}

/// Why a data point is not stored.
fn refusal(decoder: &Decoder, point: &DataPoint<'_>) -> Option<(RejectionKind, String)> {
    if decoder.name().is_empty() {
        return Some((RejectionKind::Name, "the metric has no name".to_owned()));
    }
    if !decoder.has_temporality() {
        let reason = "the metric has no aggregation temporality: neither delta nor cumulative";
        return Some((RejectionKind::Malformed, reason.to_owned()));
    }
    let (counts, bounds, scale) = (point.counts.len(), point.bounds.len(), point.scale);
    let reason = if point.is_too_large {
        format!("more than {MOST_BUCKETS} buckets or {MOST_TAGS} attributes")
    } else if counts > 0 && counts != bounds + 1 {
        format!(
            "{counts} counts of buckets for {bounds} bounds, expected {}",
            bounds + 1
        )
    } else if let Some((place, bound)) = first_not_ascending(&point.bounds) {
        format!("bound {place} of the buckets ({bound}) is not above the bound before it")
    } else if !SCALES.contains(&scale) {
        format!("scale {scale} is not from {} to {}", SCALES.start(), SCALES.end())
    } else if !(0.0..f64::INFINITY).contains(&point.zero_threshold) {
        format!("zero threshold {} is no number from 0", point.zero_threshold)
    } else {
        return None;
    };
    Some((RejectionKind::Malformed, reason))
}

/// Texts that the data points of a metric and of a resource have in common: each is in a chunk once.
#[derive(Debug, Default)]
struct Shared {
    place: (usize, usize),
    /// The attributes of the resource.
    resource: Vec<Option<Tag>>,
    metric: SuffixedMetric,
}

impl Shared {
    /// Begins another resource and another metric, if the point is of others than the one before it.
    fn begin(&mut self, chunk: &mut Chunk, map: &NameMap, decoder: &Decoder) {
        let place = decoder.place();
        if self.place.0 != place.0 {
            let attributes = decoder.attributes().iter();
            let tags = attributes.map(|(key, value)| chunk.tag(map, key, value));
            self.resource = tags.collect();
        }
        if self.place != place {
            self.metric = SuffixedMetric::default();
        }
        self.place = place;
    }
}
