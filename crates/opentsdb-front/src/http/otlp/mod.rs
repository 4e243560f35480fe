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
//! Attributes of a point are its tags, and so are those attributes of its resource that `resource=` names in the URL, or the metadata
//! of the call (`RESOURCE_ATTRIBUTES` unless given), if the point has none of the same key. Points are independent: the good ones are stored, and
//! the response counts the others (partial success).
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>, and the files that `decode` names.

mod decode;
pub mod grpc;
mod json;
mod message;
mod point;
#[cfg(test)]
mod tests;

use std::ops::{Range, RangeInclusive};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use oxtsdb_ingest::{Caller, RejectionKind};
use oxtsdb_schema::Value;
use oxtsdb_schema::name::excerpt;
use oxtsdb_schema::value::ValueError;
use prost::Message as _;

use self::decode::{Decoder, Kind};
use self::message::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use self::point::{Attribute, DataPoint, MOST_BUCKETS, Number};
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::error::HttpError;
use crate::http::error_form;
use crate::http::mapped::{self, Chunk, MOST_TAGS, MappedSeries, NameMap, Tag};
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

/// The tag with the upper bound of a bucket.
const BOUND: &str = "le";

/// The tag with the quantile of a summary.
const QUANTILE: &str = "quantile";

/// Bytes of a data point that a record repeats.
const SHOWN: usize = 200;

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
        mut body,
        ..
    } = request;
    let encoding = Encoding::from_content_type(content_type.as_ref())?;
    if encoding == Encoding::Json {
        let most = body.bytes.len().saturating_mul(json::MOST_GROWTH);
        let convert = |bytes: &Bytes| json::to_protobuf(bytes).map_err(|error| malformed(&error));
        body = body.converted(most, parts.writer.compute(), convert).await?;
    }
    let response = export(parts, &caller, body, parameters.get("resource")).await?;
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

/// Stores the points of a body. `resource` has the attributes of resources that are tags, with commas between.
///
/// # Errors
///
/// The body is no request, or its points cannot be stored.
async fn export(
    parts: &ApiParts,
    caller: &Caller,
    body: RequestBody,
    resource: Option<&str>,
) -> Result<ExportMetricsServiceResponse, HttpError> {
    let wanted = match resource {
        None => RESOURCE_ATTRIBUTES.map(str::to_owned).to_vec(),
        Some(keys) => keys.split(',').take(MOST_TAGS).map(str::to_owned).collect(),
    };
    let map = NameMap::new(parts.writer.uids().name_rules(), "otlp");
    let decoder = Decoder::new(&body.bytes, wanted);
    let decode = move |bytes: &Bytes, decoder: &mut Decoder| {
        decode(bytes, decoder, &map).map_err(|error| malformed(&error))
    };
    let outcome = mapped::write(parts, caller, body, decoder, decode).await?;
    let partial_success = match mapped::error(&outcome) {
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
fn decode(bytes: &Bytes, decoder: &mut Decoder, map: &NameMap) -> Result<Option<Chunk>, Malformed> {
    let mut chunk = Chunk::default();
    let mut shared = Shared::default();
    let mut is_empty = true;
    while !chunk.is_full()
        && let Some(message) = decoder.next(bytes)?
    {
        is_empty = false;
        add(&mut chunk, &mut shared, map, decoder, message)?;
    }
    Ok((!is_empty).then_some(chunk))
}

/// Adds the series of a data point.
fn add(
    chunk: &mut Chunk,
    shared: &mut Shared,
    map: &NameMap,
    decoder: &Decoder,
    message: &[u8],
) -> Result<(), Malformed> {
    let point = DataPoint::decode(decoder.kind(), message)?;
    chunk.left_out += point.exemplars;
    if point.has_no_value {
        chunk.left_out += 1;
        return Ok(());
    }
    if let Some((kind, reason)) = refusal(decoder, &point) {
        chunk.reject(
            decoder.number(),
            kind,
            reason,
            shown(decoder.name(), &point.attributes),
        );
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
    let mut series = SeriesOf {
        all: chunk.tag_list(map, tags.iter()),
        tags,
        chunk,
        shared,
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
        Kind::Histogram => {
            let bounds = point.bounds.iter().copied().chain([f64::INFINITY]);
            series.add_buckets(bounds.zip(point.counts.iter().copied()));
            series.add_totals(&point);
        }
        Kind::ExponentialHistogram => {
            series.add_buckets(exponential(&point));
            series.add_totals(&point);
        }
        Kind::Summary => {
            let quantiles = point.quantiles.iter();
            let quantiles = quantiles.map(|(quantile, value)| (*quantile, Value::double(*value)));
            series.add_each(Suffix::None, QUANTILE, quantiles);
            series.add_totals(&point);
        }
    }
    Ok(())
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
    } else if !SCALES.contains(&scale) {
        format!("scale {scale} is not from {} to {}", SCALES.start(), SCALES.end())
    } else {
        return None;
    };
    Some((RejectionKind::Malformed, reason))
}

/// The start of a data point, for the record of rejected points. Many points may have one long name.
fn shown(name: &str, attributes: &[Attribute<'_>]) -> String {
    let mut shown: String = name.chars().take(SHOWN).collect();
    for (key, value) in attributes {
        if shown.len() > SHOWN {
            break;
        }
        shown.push(' ');
        shown.extend(key.chars().chain("=".chars()).chain(value.chars()).take(SHOWN));
    }
    shown
}

/// The buckets of an exponential histogram, ascending: upper bound, and count.
///
/// A positive bucket with index `i` has the values in (bⁱ, bⁱ⁺¹], a negative one the values in [-bⁱ⁺¹, -bⁱ), where b is 2 to the
/// power of 2⁻ˢᶜᵃˡᵉ.
fn exponential<'p>(point: &'p DataPoint<'_>) -> impl Iterator<Item = (f64, u64)> + 'p {
    let bound = |index: i64| (index as f64 * (-f64::from(point.scale)).exp2()).exp2();
    let negative = &point.negative;
    let negative = negative
        .counts
        .iter()
        .enumerate()
        .rev()
        .map(move |(place, count)| {
            let index = i64::from(negative.offset) + place as i64;
            (-bound(index), *count)
        });
    let positive = &point.positive;
    let above = positive.counts.iter().enumerate().map(move |(place, count)| {
        let index = i64::from(positive.offset) + place as i64;
        (bound(index + 1), *count)
    });
    let total = std::iter::once((f64::INFINITY, 0));
    negative
        .chain([(0.0, point.zero_count)])
        .chain(above)
        .chain(total)
}

/// The series that a data point becomes, by the end of their metric.
#[derive(Clone, Copy, Debug)]
enum Suffix {
    None,
    Bucket,
    Count,
    Sum,
    Min,
    Max,
}

impl Suffix {
    const fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bucket => "_bucket",
            Self::Count => "_count",
            Self::Sum => "_sum",
            Self::Min => "_min",
            Self::Max => "_max",
        }
    }
}

/// Texts that the data points of a metric and of a resource have in common: each is in a chunk once.
#[derive(Debug, Default)]
struct Shared {
    place: (usize, usize),
    /// The attributes of the resource.
    resource: Vec<Option<Tag>>,
    /// The metric with each suffix.
    series: [Option<MappedSeries>; 6],
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
            self.series = Default::default();
        }
        self.place = place;
    }
}

/// Adds points of the series of one data point.
struct SeriesOf<'a> {
    chunk: &'a mut Chunk,
    shared: &'a mut Shared,
    map: &'a NameMap,
    /// Of the metric.
    name: &'a str,
    tags: Vec<Tag>,
    /// The same in the chunk.
    all: Range<u32>,
    timestamp_ms: i64,
    number: usize,
}

impl SeriesOf<'_> {
    /// Adds a point of the metric with a suffix.
    fn add(&mut self, suffix: Suffix, value: Result<Value, ValueError>) {
        self.add_with(suffix, self.all.clone(), value);
    }

    fn add_with(&mut self, suffix: Suffix, tags: Range<u32>, value: Result<Value, ValueError>) {
        let series = self.shared.series[suffix as usize].get_or_insert_with(|| {
            let name = [self.name, suffix.text()];
            self.chunk.series(self.map, &name, 0..0, 0)
        });
        let series = series.with(tags, self.number);
        self.chunk.point(&series, self.timestamp_ms, value);
    }

    /// Adds a point for each value of a tag more.
    fn add_each(
        &mut self,
        suffix: Suffix,
        key: &str,
        values: impl Iterator<Item = (f64, Result<Value, ValueError>)>,
    ) {
        for (number, value) in values {
            let text = match number {
                f64::INFINITY => "+Inf".to_owned(),
                number => number.to_string(),
            };
            let tag = self.chunk.tag(self.map, key, &text);
            let tags = self.chunk.tag_list(self.map, self.tags.iter().chain(&tag));
            self.add_with(suffix, tags, value);
        }
    }

    /// Adds buckets, ascending; each counts the values of those before it too.
    fn add_buckets(&mut self, buckets: impl Iterator<Item = (f64, u64)>) {
        let mut sum = 0_u64;
        let buckets = buckets.map(|(bound, count)| {
            sum = sum.saturating_add(count);
            (bound, Ok(count_value(sum)))
        });
        self.add_each(Suffix::Bucket, BOUND, buckets);
    }

    /// Adds the count, the sum, and the extremes if there are any.
    fn add_totals(&mut self, point: &DataPoint<'_>) {
        self.add(Suffix::Count, Ok(count_value(point.count)));
        let others = [
            (Suffix::Sum, point.sum),
            (Suffix::Min, point.min),
            (Suffix::Max, point.max),
        ];
        for (suffix, value) in others {
            if let Some(value) = value {
                self.add(suffix, Value::double(value));
            }
        }
    }
}

/// A count as an integer, or as floating point if it is too large.
fn count_value(count: u64) -> Value {
    i64::try_from(count).map_or(Value::Double(count as f64), Value::Int)
}
