//! `/api/rollup`: writes rollups and pre-aggregates from JSON.
//!
//! ```text
//!   [{"metric":"m","timestamp":1356998400,"value":42,"tags":{"host":"a"},
//!     "interval":"1h","aggregator":"sum","groupByAggregator":"sum"}]
//! ```
//!
//! The same rules as for `/api/put`, with its flags.
//!
//! Source: OpenTSDB 2.4, `RollupDataPointRpc.execute`, `RollUpDataPoint.validate`.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::future::BoxFuture;
use http::StatusCode;
use oxtsdb_ingest::point_text::{self, NameOf};
use oxtsdb_ingest::rollup::{Aggregate, NewAggregate, RollupWriter};
use oxtsdb_ingest::{RejectionKind, WriteError, WriteOutcome};
use oxtsdb_schema::Value;
use oxtsdb_schema::value::{ValueTextError, parse_http};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::api_request::ApiRequest;
use crate::http::datum::{self, DatumKind};
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::read_content;
use crate::http::put::outcome::{self, Flags, Violation};
use crate::http::query::bounded::FirstOf;
use crate::http::query::scalar::{Text, Whole};
use crate::http::reply::Reply;

/// Values of a request.
const MAX_VALUES: usize = 100_000;

/// Memory of a parsed value, roughly.
const VALUE_BYTES: usize = 512;

/// A value as sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JsonValue {
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
    let values = read_content(body.bytes.clone(), compute, parse)
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
    datum::store(&parts.rollups, &values.kept, (counters, &caller), flags).await
}

impl DatumKind for RollupWriter {
    type Sent = JsonValue;
    type Checked<'s> = NewAggregate<'s>;

    const BATCH: usize = 10_000;

    fn check<'s>(&self, sent: &'s JsonValue) -> Result<NewAggregate<'s>, Violation> {
        check(sent)
    }

    fn tags<'c>(checked: &'c NewAggregate<'_>) -> &'c [(&'c str, &'c str)] {
        &checked.tags
    }

    fn write<'b>(
        &'b self,
        data: &'b [NewAggregate<'_>],
        deadline: Instant,
    ) -> BoxFuture<'b, Result<WriteOutcome, WriteError>> {
        Box::pin(RollupWriter::write(self, data, Some(deadline)))
    }

    fn write_json(sent: &JsonValue, out: &mut Vec<u8>) {
        sent.write(out);
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
fn check(json: &JsonValue) -> Result<NewAggregate<'_>, Violation> {
    use RejectionKind as Kind;
    let rule = Violation::rule;
    fn named(text: Option<&Text>) -> Option<&str> {
        text.map(|text| text.0.as_str()).filter(|text| !text.is_empty())
    }
    let metric = named(json.metric.as_ref()).ok_or_else(|| rule(Kind::Name, "Metric name was empty"))?;
    let timestamp = json.timestamp.map_or(0, |time| time.0);
    if timestamp <= 0 {
        return Err(rule(Kind::Timestamp, "Invalid timestamp"));
    }
    let text: Text = match &json.value {
        Some(value) if value.get() != "null" => {
            serde_json::from_str(value.get()).map_err(|_| Violation::no_number())?
        }
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
        ValueTextError::Value(error) => {
            Violation::IllegalArgument(Kind::Value, point_text::not_finite(&error, metric, timestamp))
        }
        _ => Violation::no_number(),
    })?;
    let tags: Result<Vec<_>, _> = tags
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Ok((key.as_str(), value.0.as_str())),
            None => {
                let text = point_text::null_name(NameOf::TagValue(key));
                Err(Violation::IllegalArgument(Kind::Name, text))
            }
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

impl JsonValue {
    /// Appends the JSON of an error.
    fn write(&self, out: &mut Vec<u8>) {
        let mut text = |name: &[u8], value: &Option<Text>| {
            out.extend_from_slice(name);
            match value {
                Some(value) => json::write_string(out, &value.0),
                None => out.extend_from_slice(b"null"),
            }
        };
        text(b"{\"metric\":", &self.metric);
        text(b",\"interval\":", &self.interval);
        text(b",\"aggregator\":", &self.aggregator);
        text(b",\"groupByAggregator\":", &self.group_by_aggregator);
        out.extend_from_slice(b",\"timestamp\":");
        json::write_integer(out, self.timestamp.map_or(0, |time| time.0));
        out.extend_from_slice(b",\"value\":");
        match &self.value {
            Some(value) if value.get().starts_with('"') => out.extend_from_slice(value.get().as_bytes()),
            Some(value) => json::write_string(out, value.get()),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"tags\":");
        let tags = self.tags.iter().flatten();
        let shown = tags.map(|(key, value)| (key, value.as_ref().map_or("null", |value| value.0.as_str())));
        json::write_map(out, shown);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
