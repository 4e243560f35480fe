//! `/api/put`: writes points from JSON.
//!
//! Points are independent: the valid points of a batch are stored even if others are rejected and the status is 400.
//! Whatever the flags, the server responds when the points are durable; OpenTSDB does so only with `sync`. If the
//! store or the UID service fails, the status is 503 (retry), 507 (no space left) or 500, also where OpenTSDB without
//! `sync` responds 204.
//!
//! Source: OpenTSDB 2.4, `PutDataPointRpc.processDataPoint`.

mod body;
mod failure;
pub(in crate::http) mod outcome;
mod point;
mod scan;

use std::ops::Range;

use bytes::Bytes;
use http::StatusCode;
use oxtsdb_ingest::point_text::{self, NameOf};
use oxtsdb_ingest::{Caller, Example, RejectionKind, Writer};
use oxtsdb_metadata::uids::series::{Requested, Series, SeriesRef, SeriesText, Syntax};
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::value::{ValueTextError, parse_http};
use oxtsdb_schema::{Timestamp, Value};
use self_cell::self_cell;

use crate::front::counters::Counters;
use crate::front::plain_number::{self, PlainNumber};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::put::body::{PutBody, PutBodyError};
use crate::http::put::outcome::{Batches, Flags, Outcome, Violation, reply};
use crate::http::put::point::{PutPoint, PutTags};
use crate::http::reply::Reply;

/// Points in one call of the writer.
const WRITE_POINTS: usize = 10_000;

/// No valid point is shorter:
/// `{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}`. A body can therefore not
/// allocate more memory than its size allows, for example by many empty points.
const SHORTEST_POINT_BYTES: usize = 50;

/// Bodies up to this size are parsed inline.
const INLINE_BYTES: usize = 64 << 10;

/// The most bytes that parsing adds for each byte of a body: points with a value and one tag of
/// one character each are 50 bytes as JSON.
const PARSED_MEMORY: usize = 4;

/// Tags as the writer takes them.
type Tags<'a> = Vec<(&'a str, &'a str)>;

self_cell!(
    /// A body and its points, which borrow from it.
    struct ParsedBody {
        owner: Bytes,
        #[covariant]
        dependent: PutBody,
    }
);

/// Stores the points of a body.
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
    let flags = Flags::parse(parameters)?;
    if body.bytes.is_empty() {
        return Err(HttpError::bad_request("Missing request content"));
    }
    body.charge(PARSED_MEMORY * body.bytes.len()).await?;
    let parsed = parse(&body.compute(writer.compute()), body.bytes.clone())
        .await
        .inspect_err(|error| outcome::reject_body(counters, &caller, error, &body.bytes))?;
    let points = parsed.borrow_dependent();
    if points.points.is_empty() {
        return Err(HttpError::bad_request("No datapoints found in content"));
    }
    let outcome = store(writer, counters, &caller, points, flags).await?;
    let write_point = |out: &mut Vec<u8>, place: usize| {
        write_point(out, points.points.get(place).and_then(Option::as_ref), points);
    };
    reply(&outcome, flags, write_point)
}

/// Parses a body; a large one in the computation pool.
async fn parse(compute: &ComputePool, content: Bytes) -> Result<ParsedBody, HttpError> {
    let is_large = content.len() > INLINE_BYTES;
    let parse = move || {
        let max_points = content.len() / SHORTEST_POINT_BYTES + 1;
        ParsedBody::try_new(content, |content| PutBody::parse(content, max_points))
    };
    let parsed = if is_large {
        compute.run(parse).await?
    } else {
        parse()
    };
    parsed.map_err(|error| match error {
        PutBodyError::Empty => HttpError::bad_request("Missing request content"),
        PutBodyError::NoObject => HttpError::bad_request("The JSON must start as an object or an array"),
        PutBodyError::Unreadable(details) => HttpError::unreadable_json(details),
        PutBodyError::TooMany { .. } => {
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "request body has too many points")
                .with_details(error.to_string())
        }
    })
}

/// A valid point.
#[derive(Debug)]
struct GoodPoint<'a> {
    /// Its index in the body.
    place: usize,
    metric: &'a str,
    /// The text of its series, if that identifies it.
    text: Option<SeriesText<'a>>,
    /// The range of its tags in the batch's tags; empty if the series is known.
    tags: Range<usize>,
    timestamp: Timestamp,
    value: Value,
}

impl<'a> GoodPoint<'a> {
    fn series<'t>(&self, tags: &'t Tags<'a>) -> SeriesRef<'t> {
        let tags = tags.get(self.tags.clone()).unwrap_or_default();
        match self.text {
            Some(text) => SeriesRef::Text { text, tags },
            None => SeriesRef::Names {
                metric: self.metric,
                tags,
            },
        }
    }
}

/// Checks the points, and writes the valid ones in batches.
async fn store(
    writer: &Writer,
    counters: &Counters,
    caller: &Caller,
    body: &PutBody<'_>,
    flags: Flags,
) -> Result<Outcome, HttpError> {
    let deadline = flags.deadline();
    let mut batches = Batches::new(counters, caller, flags);
    for (chunk, points) in body.points.chunks(WRITE_POINTS).enumerate() {
        let texts: Vec<SeriesText<'_>> = points.iter().flatten().filter_map(series_text).collect();
        let mut cached = writer.known(&texts).into_iter();
        let mut good: Vec<GoodPoint<'_>> = Vec::with_capacity(points.len());
        // The series of the good points, if they are known.
        let mut known: Vec<Option<Series>> = Vec::with_capacity(points.len());
        let mut tags = Tags::new();
        for (index, point) in points.iter().enumerate() {
            let place = chunk * WRITE_POINTS + index;
            let text = point.as_ref().and_then(series_text);
            let series = text.and_then(|_| cached.next()).flatten();
            let start = tags.len();
            match check(point.as_ref(), body, series.is_some(), &mut tags) {
                Ok((metric, timestamp, value)) => {
                    known.push(series);
                    good.push(GoodPoint {
                        place,
                        metric,
                        text,
                        tags: start..tags.len(),
                        timestamp,
                        value,
                    });
                }
                Err(violation) => {
                    batches.reject(place, violation, |text| example(text, point.as_ref(), body));
                }
            }
        }
        if batches.skip(good.len()) {
            continue;
        }
        let requested = known.into_iter().zip(&good).map(|(known, point)| {
            known.map_or_else(|| Requested::Series(point.series(&tags)), Requested::Known)
        });
        let point = |index: usize| (good[index].timestamp, good[index].value);
        let written = writer.write_points(requested, point, Some(deadline)).await;
        for error in batches.end(good.len(), written)? {
            let Some(point) = good.get(error.index) else {
                continue;
            };
            let tags = tags.get(point.tags.clone()).unwrap_or_default();
            batches.reject_point(point.place, &error.reason, tags, |text| {
                let sent = body.points.get(point.place).and_then(Option::as_ref);
                example(text, sent, body)
            });
        }
    }
    Ok(batches.outcome())
}

/// The text that identifies the series of a point, if the point is of the usual form.
fn series_text<'a>(point: &'a PutPoint<'_>) -> Option<SeriesText<'a>> {
    match (&point.metric, &point.tags) {
        (Some(metric), PutTags::Text(tags)) => Some(SeriesText {
            syntax: Syntax::Json,
            metric,
            tags,
        }),
        _ => None,
    }
}

/// Checks a point in OpenTSDB's order, so that a point with several faults gets the same error. Returns its metric,
/// time and value, and adds its tags unless the series is known.
fn check<'a>(
    point: Option<&'a PutPoint<'_>>,
    body: &'a PutBody<'_>,
    is_known: bool,
    tags: &mut Tags<'a>,
) -> Result<(&'a str, Timestamp, Value), Violation> {
    let Some(point) = point else {
        return Err(Violation::null());
    };
    let metric = match point.metric.as_deref() {
        None | Some("") => return Err(Violation::rule(RejectionKind::Name, "Metric name was empty")),
        Some(metric) => metric,
    };
    if point.timestamp <= 0 {
        return Err(Violation::rule(RejectionKind::Timestamp, "Invalid timestamp"));
    }
    let value = match point.value.as_deref() {
        None | Some("") => return Err(Violation::rule(RejectionKind::Value, "Empty value")),
        Some(value) => value,
    };
    if !point.has_tags() {
        return Err(Violation::rule(RejectionKind::Tags, "Missing tags"));
    }
    let value = parse_value(value).map_err(|error| match error {
        ValueTextError::Value(error) => Violation::IllegalArgument(
            RejectionKind::Value,
            point_text::not_finite(&error, metric, point.timestamp),
        ),
        ValueTextError::Empty
        | ValueTextError::Integer(_)
        | ValueTextError::NotANumber { .. }
        | ValueTextError::MultiplePoints { .. } => Violation::no_number(),
    })?;
    let timestamp = Timestamp::from_opentsdb(point.timestamp).map_err(|_| {
        let tags = body.tags_of(point);
        let tags = tags.iter().map(|(key, value)| (*key, value.unwrap_or_default()));
        let text = point_text::bad_timestamp(point.timestamp, metric, tags, &value);
        Violation::IllegalArgument(RejectionKind::Timestamp, text)
    })?;
    if !is_known {
        let start = tags.len();
        for (key, value) in body.tags_of(point) {
            let Some(value) = value else {
                tags.truncate(start);
                let text = point_text::null_name(NameOf::TagValue(key));
                return Err(Violation::IllegalArgument(RejectionKind::Name, text));
            };
            tags.push((key, value));
        }
    }
    Ok((metric, timestamp, value))
}

fn parse_value(text: &str) -> Result<Value, ValueTextError> {
    match plain_number::parse(text) {
        Some(PlainNumber::Integer(number)) => Ok(Value::Int(number)),
        Some(PlainNumber::Decimal(number)) => Ok(Value::double(number)?),
        None => parse_http(text),
    }
}

/// A rejected point for the log.
fn example(reason: &str, point: Option<&PutPoint<'_>>, body: &PutBody<'_>) -> Example {
    let mut json = Vec::new();
    write_point(&mut json, point, body);
    Example {
        reason: reason.to_owned(),
        point: String::from_utf8_lossy(&json).into_owned(),
    }
}

/// A point as it was read, without the fields that are not there.
fn write_point(out: &mut Vec<u8>, point: Option<&PutPoint<'_>>, body: &PutBody<'_>) {
    let Some(point) = point else {
        out.extend_from_slice(b"null");
        return;
    };
    out.push(b'{');
    if let Some(metric) = &point.metric {
        out.extend_from_slice(b"\"metric\":");
        json::write_string(out, metric);
        out.push(b',');
    }
    out.extend_from_slice(b"\"timestamp\":");
    json::write_integer(out, point.timestamp);
    if let Some(value) = &point.value {
        out.extend_from_slice(b",\"value\":");
        json::write_string(out, value);
    }
    if !matches!(point.tags, PutTags::Missing) {
        out.extend_from_slice(b",\"tags\":{");
        for (number, (key, value)) in body.tags_of(point).into_iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            json::write_string(out, key);
            out.push(b':');
            match value {
                Some(value) => json::write_string(out, value),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.push(b'}');
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
