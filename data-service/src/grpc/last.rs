//! `DataService.QueryLast`: streams the last points of series.
//!
//! A target that fails is reported beside the results of the others; an error of the store or the deadline fails
//! the call.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use oxtsdb_proto::common::v1::{SeriesName, Tag, series_key};
use oxtsdb_proto::data::v1::query_last_request::{Target, target};
use oxtsdb_proto::data::v1::query_last_response::{LastPoint as LastPointMessage, TargetError, last_point};
use oxtsdb_proto::data::v1::{QueryLastRequest, QueryLastResponse};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::last::search::{LastPoint, LookBack, SeriesNames};
use oxtsdb_query::last::stream::{LastBatch, LastItem, LastQuery, LastTarget, last_points};
use oxtsdb_query::{Engine, Number};
use tonic::{Request, Response, Status};

use super::query::convert::{metric_source, millis};
use super::query::{failure, query_status};
use super::results::{context_of, response, result_stream};

const MAX_TARGETS: usize = 1000;
const HOUR_MS: i64 = 3_600_000;
const MAX_LOOK_BACK_MS: i64 = 366 * 24 * HOUR_MS;

/// Bytes of names at which a message is closed; clients accept 4 MiB by default.
const MESSAGE_BYTES: usize = 512 << 10;

/// Streams the last points of series.
pub(super) async fn query_last(
    engine: &Engine,
    request: Request<QueryLastRequest>,
) -> Result<Response<MessageStream<QueryLastResponse>>, Status> {
    let context = context_of(&request);
    let query = last_query(&request.into_inner())?;
    let table = engine.storage().table.to_string();
    let messages = last_points(engine, query, context).flat_map(move |item| match item {
        Ok(LastItem::Points(batch)) => stream::iter(Messages::new(batch)).map(Ok).boxed(),
        Ok(LastItem::Failed { target, error }) => {
            let item = failure(&error, &table).into_item();
            let message = item.map(|error| QueryLastResponse {
                points: Vec::new(),
                errors: vec![TargetError {
                    target: number(target),
                    error: Some(error),
                }],
            });
            stream::iter([message]).boxed()
        }
        Err(error) => stream::iter([Err(query_status(&error, "targets.", &table))]).boxed(),
    });
    response(result_stream(messages, engine, None)).await
}

/// The messages of a batch, each below 1 MiB. The batch's memory is held until the last one is encoded.
struct Messages {
    batch: LastBatch,
    /// Index of the first point that is in no message yet.
    next: usize,
}

impl Messages {
    const fn new(batch: LastBatch) -> Self {
        Self { batch, next: 0 }
    }
}

impl Iterator for Messages {
    type Item = QueryLastResponse;

    fn next(&mut self) -> Option<QueryLastResponse> {
        let target = number(self.batch.target);
        let mut message = QueryLastResponse::default();
        let mut bytes = 0;
        while let Some(point) = self.batch.points.get(self.next)
            && bytes < MESSAGE_BYTES
        {
            let names = self.batch.names.get(self.next);
            self.next += 1;
            bytes += point.tsuid.as_bytes().len() + names.map_or(0, names_len);
            message.points.push(point_message(target, point, names));
        }
        (!message.points.is_empty()).then_some(message)
    }
}

/// Bytes of the names of a series.
fn names_len(names: &SeriesNames) -> usize {
    let tags = names.tags.iter().map(|(key, value)| key.len() + value.len());
    names.metric.len() + tags.sum::<usize>()
}

fn number(target: usize) -> u32 {
    u32::try_from(target).unwrap_or(u32::MAX)
}

fn last_query(request: &QueryLastRequest) -> Result<LastQuery, Status> {
    let look_back = look_back(request)?;
    if request.targets.is_empty() || request.targets.len() > MAX_TARGETS {
        let rule = format!("has {} items, expected 1 to {MAX_TARGETS}", request.targets.len());
        return Err(invalid_field("targets", rule));
    }
    let targets = request.targets.iter().enumerate();
    let targets = targets.map(|(index, target)| last_target(&format!("targets[{index}]"), target));
    Ok(LastQuery {
        targets: targets.collect::<Result<_, _>>()?,
        look_back,
        with_names: request.include_names,
    })
}

fn look_back(request: &QueryLastRequest) -> Result<LookBack, Status> {
    let now_ms = now_ms();
    let length_ms = match &request.look_back {
        None => HOUR_MS,
        Some(look_back) => millis("look_back", look_back, 1)?,
    };
    if length_ms > MAX_LOOK_BACK_MS {
        let rule = format!("is {} s, at most 366 days are allowed", length_ms / 1000);
        return Err(invalid_field("look_back", rule));
    }
    Ok(LookBack {
        from_ms: (now_ms - length_ms).max(0),
        now_ms,
    })
}

fn last_target(field: &str, target: &Target) -> Result<LastTarget, Status> {
    match &target.target {
        None => Err(invalid_field(field, "is empty, expected series or metric")),
        Some(target::Target::Metric(source)) => {
            let (metric, filter) = metric_source(&format!("{field}.metric"), source)?;
            Ok(LastTarget::Metric { metric, filter })
        }
        Some(target::Target::Series(series)) => match &series.key {
            None => Err(invalid_field(
                &format!("{field}.series"),
                "is empty, expected name or tsuid",
            )),
            Some(series_key::Key::Name(name)) => {
                let tags = name.tags.iter();
                Ok(LastTarget::Name {
                    metric: name.metric.clone(),
                    tags: tags.map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
                })
            }
            Some(series_key::Key::Tsuid(tsuid)) => Ok(LastTarget::Tsuid(tsuid.to_vec())),
        },
    }
}

fn point_message(target: u32, point: &LastPoint, names: Option<&SeriesNames>) -> LastPointMessage {
    let tag = |(key, value): &(Arc<str>, Arc<str>)| Tag {
        key: key.to_string(),
        value: value.to_string(),
    };
    LastPointMessage {
        target,
        tsuid: point.tsuid.as_bytes().to_vec().into(),
        name: names.map(|names| SeriesName {
            metric: names.metric.to_string(),
            tags: names.tags.iter().map(tag).collect(),
        }),
        timestamp_ms: point.time_ms,
        value: Some(match point.value {
            Number::Int(int) => last_point::Value::IntValue(int),
            Number::Double(double) => last_point::Value::DoubleValue(double),
        }),
    }
}

#[cfg(test)]
mod tests;
