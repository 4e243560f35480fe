//! `/api/rollup`: writes rollups and pre-aggregates from JSON.
//!
//! ```text
//!   [{"metric":"m","timestamp":1356998400,"value":42,"tags":{"host":"a"},
//!     "interval":"1h","aggregator":"sum","groupByAggregator":"sum"}]
//! ```
//!
//! Values are independent: the valid ones of a body are stored even if others are rejected. The response is as for
//! `/api/put`, with the same flags `summary` and `details`, and is sent when the values are durable.
//!
//! Source: OpenTSDB 2.4, `RollupDataPointRpc.execute`, `RollUpDataPoint.validate`.

use std::collections::BTreeMap;

use http::StatusCode;
use oxtsdb_ingest::point_text::{self, NameOf};
use oxtsdb_ingest::rollup::{Aggregate, AggregateError, NewAggregate};
use oxtsdb_ingest::{Example, RejectionKind};
use oxtsdb_schema::Value;
use oxtsdb_schema::value::{ValueTextError, parse_http};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::of_content;
use crate::http::put::outcome::{self, Batches, Flags};
use crate::http::query::bounded::FirstOf;
use crate::http::query::scalar::{Text, Whole};
use crate::http::reply::Reply;

/// Values of a request.
const MAX_VALUES: usize = 100_000;

/// Memory of a parsed value, roughly.
const VALUE_BYTES: usize = 512;

/// Values in one write.
const WRITE_VALUES: usize = 10_000;

/// A value as sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonValue {
    metric: Option<Text>,
    timestamp: Option<Whole>,
    value: Option<Box<RawValue>>,
    tags: Option<BTreeMap<String, Option<Text>>>,
    interval: Option<Text>,
    aggregator: Option<Text>,
    group_by_aggregator: Option<Text>,
}

type Values = FirstOf<Option<JsonValue>, MAX_VALUES>;

/// Stores the values of a body.
pub(crate) async fn rollup(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        caller,
        parameters,
        mut body,
        ..
    } = request;
    let counters = &parts.counters;
    let flags = Flags::parse(parameters)?;
    if body.bytes.is_empty() {
        return Err(HttpError::bad_request("Missing request content"));
    }
    // Two bytes and a comma are a value.
    let most = (body.bytes.len() / 3 + 1).min(MAX_VALUES);
    body.charge(body.bytes.len() * 2 + most * VALUE_BYTES).await?;
    let compute = &body.compute(parts.writer.compute());
    let values = of_content(body.bytes.clone(), compute, parse)
        .await
        .inspect_err(|error| outcome::reject_body(counters, &caller, error, &body.bytes))?;
    if values.count == 0 {
        return Err(HttpError::bad_request("No datapoints found in content"));
    }
    if values.count > MAX_VALUES {
        let message = format!(
            "request body has {} values, at most {MAX_VALUES} are allowed",
            values.count
        );
        return Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let deadline = flags.deadline();
    let mut batches = Batches::new(counters, &caller, flags);
    for (chunk, chunk_values) in values.kept.chunks(WRITE_VALUES).enumerate() {
        let mut places = Vec::with_capacity(chunk_values.len());
        let mut good = Vec::with_capacity(chunk_values.len());
        for (index, value) in chunk_values.iter().enumerate() {
            let place = chunk * WRITE_VALUES + index;
            match check(value.as_ref()) {
                Ok(value) => {
                    places.push(place);
                    good.push(value);
                }
                Err((kind, text)) => {
                    let counter = &counters.illegal_arguments;
                    batches.reject(place, counter, kind, text, |text| example(text, value.as_ref()));
                }
            }
        }
        if batches.skip(good.len()) {
            continue;
        }
        let written = parts.rollups.write(&good, Some(deadline)).await;
        let written = written.map(|written| (written.written, written));
        let Some(written) = batches.end(good.len(), written)? else {
            continue;
        };
        let place = |index: usize| places.get(index).copied().unwrap_or_default();
        for (index, error) in written.invalid {
            let text = match error {
                AggregateError::NoSuchInterval { .. } => "Unexpected exception".to_owned(),
                ref error => error.to_string(),
            };
            let (counter, kind) = (&counters.illegal_arguments, RejectionKind::Rollup);
            batches.reject(place(index), counter, kind, text, |_| {
                example(&error.to_string(), sent(&values.kept, place(index)))
            });
        }
        for error in written.unresolved {
            let tags = good.get(error.index).map(|value| value.tags.as_slice());
            let place = place(error.index);
            batches.reject_point(place, &error.reason, tags.unwrap_or_default(), |text| {
                example(text, sent(&values.kept, place))
            });
        }
    }
    outcome::reply(&batches.outcome(), flags, |out, place| {
        write_value(out, sent(&values.kept, place));
    })
}

/// A value by its place in the body.
fn sent(values: &[Option<JsonValue>], place: usize) -> Option<&JsonValue> {
    values.get(place).and_then(Option::as_ref)
}

/// A rejected value for the log.
fn example(reason: &str, value: Option<&JsonValue>) -> Example {
    let mut json = Vec::new();
    write_value(&mut json, value);
    Example {
        reason: reason.to_owned(),
        point: String::from_utf8_lossy(&json).into_owned(),
    }
}

/// One value, or an array of them.
fn parse(content: &[u8]) -> Result<Values, HttpError> {
    let unreadable = |error: serde_json::Error| HttpError::unreadable_json(error.to_string());
    match content.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => serde_json::from_slice(content).map_err(unreadable),
        Some(b'{') => Ok(FirstOf {
            kept: vec![Some(serde_json::from_slice(content).map_err(unreadable)?)],
            count: 1,
        }),
        _ => Err(HttpError::bad_request(
            "The JSON must start as an object or an array",
        )),
    }
}

/// Checks a value in OpenTSDB's order.
fn check(value: Option<&JsonValue>) -> Result<NewAggregate<'_>, (RejectionKind, String)> {
    use RejectionKind as Kind;
    let rule = |kind: Kind, text: &str| (kind, text.to_owned());
    let Some(json) = value else {
        return Err(rule(
            Kind::Malformed,
            "Unexpected null datapoint encountered in set.",
        ));
    };
    fn named(text: Option<&Text>) -> Option<&str> {
        text.map(|text| text.0.as_str()).filter(|text| !text.is_empty())
    }
    let metric = named(json.metric.as_ref()).ok_or_else(|| rule(Kind::Name, "Metric name was empty"))?;
    let timestamp = json.timestamp.map_or(0, |time| time.0);
    if timestamp <= 0 {
        return Err(rule(Kind::Timestamp, "Invalid timestamp"));
    }
    let no_number = || rule(Kind::Value, "Unable to parse value to a number");
    let text: Text = match &json.value {
        Some(value) if value.get() != "null" => serde_json::from_str(value.get()).map_err(|_| no_number())?,
        _ => Text::default(),
    };
    if text.0.is_empty() {
        return Err(rule(Kind::Value, "Empty value"));
    }
    let tags = json.tags.as_ref().filter(|tags| !tags.is_empty());
    let tags = tags.ok_or_else(|| rule(Kind::Tags, "Missing tags"))?;
    let aggregate = Aggregate {
        interval: named(json.interval.as_ref()),
        aggregator: named(json.aggregator.as_ref()),
        group_by: named(json.group_by_aggregator.as_ref()),
    };
    if aggregate.group_by.is_none() {
        aggregate
            .interval
            .ok_or_else(|| rule(Kind::Rollup, "Missing interval"))?;
        aggregate
            .aggregator
            .ok_or_else(|| rule(Kind::Rollup, "Missing aggregator"))?;
    }
    let value: Value = parse_http(&text.0).map_err(|error| match error {
        ValueTextError::Value(error) => (Kind::Value, point_text::not_finite(&error, metric, timestamp)),
        _ => no_number(),
    })?;
    let tags: Result<Vec<_>, _> = tags
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Ok((key.as_str(), value.0.as_str())),
            None => Err((Kind::Name, point_text::null_name(NameOf::TagValue(key)))),
        })
        .collect();
    Ok(NewAggregate {
        metric,
        tags: tags?,
        timestamp,
        value,
        aggregate,
    })
}

fn write_value(out: &mut Vec<u8>, value: Option<&JsonValue>) {
    let Some(json) = value else {
        out.extend_from_slice(b"null");
        return;
    };
    let mut text = |name: &[u8], value: &Option<Text>| {
        out.extend_from_slice(name);
        match value {
            Some(value) => json::write_string(out, &value.0),
            None => out.extend_from_slice(b"null"),
        }
    };
    text(b"{\"metric\":", &json.metric);
    text(b",\"interval\":", &json.interval);
    text(b",\"aggregator\":", &json.aggregator);
    text(b",\"groupByAggregator\":", &json.group_by_aggregator);
    out.extend_from_slice(b",\"timestamp\":");
    json::write_integer(out, json.timestamp.map_or(0, |time| time.0));
    out.extend_from_slice(b",\"value\":");
    match &json.value {
        Some(value) if value.get().starts_with('"') => out.extend_from_slice(value.get().as_bytes()),
        Some(value) => json::write_string(out, value.get()),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"tags\":");
    let tags = json.tags.iter().flatten();
    let shown = tags.map(|(key, value)| (key, value.as_ref().map_or("null", |value| value.0.as_str())));
    json::write_map(out, shown);
    out.push(b'}');
}

#[cfg(test)]
mod tests;
