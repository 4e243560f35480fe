//! Renders groups as OpenTSDB's JSON.
//!
//! ```text
//!   [{"metric":"m","tags":{"host":"a"},"aggregateTags":[],["query":{…},]
//!     ["tsuids":[…],]["annotations":[…],]["globalAnnotations":[…],]"dps":{"1356998400":1,"1356998410":2.5}[,"stats":{…}]}, …[,{"statsSummary":{…}}]]
//! ```
//!
//! Timestamps in seconds are milliseconds divided by 1000. A series with several points in one second therefore
//! repeats a key, as in OpenTSDB. Doubles are printed as Java prints them; NaN is a string, or `null` with the
//! fill policy `null`.
//!
//! Source: OpenTSDB 2.4, `HttpJsonSerializer.formatQueryAsyncV1`.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{Annotation, java};

use crate::http::annotation::render;
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::json;
use crate::http::query::parse::{Output, ParsedQuery};
use crate::http::query::query_echo::{self, QueryEcho, TagkUids};
use oxtsdb_query::QueryError;
use oxtsdb_query::function::downsample::Fill;
use oxtsdb_query::{Budget, Group, Held, Number, Statistics};

/// Most points of a group that is rendered inline, which takes less than 0.1 ms.
const POINTS_INLINE: usize = 1024;

/// Writes a response group by group.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    body: BodyWriter,
    output: Output,
    /// The JSON of each sub-query, if `showQuery` is set.
    queries: Vec<Vec<u8>>,
    /// Whether NaN is written as `null`, for each sub-query.
    nan_is_null: Vec<bool>,
    is_first: bool,
    /// The member `globalAnnotations` of each group, with the comma before it.
    global: Vec<u8>,
    global_held: Option<Held>,
}

impl ResponseWriter {
    /// `uids` are those of the filters' tag keys; they are needed if the response shows its sub-queries.
    pub(super) fn new(query: &ParsedQuery, uids: &TagkUids) -> ResponseWriter {
        let is_null = |fill: Fill| fill == Fill::Null;
        let nan_is_null = query
            .spec
            .sub_queries
            .iter()
            .map(|sub_query| {
                sub_query
                    .downsample
                    .as_ref()
                    .is_some_and(|downsample| is_null(downsample.fill))
            })
            .collect();
        let echoes = query.echoes.iter().filter(|_| query.output.query);
        let sub_queries = query.spec.sub_queries.iter().zip(echoes).enumerate();
        let json = |(index, (sub_query, echo)): (usize, (_, &QueryEcho))| {
            let mut json = Vec::new();
            query_echo::write(&mut json, index, sub_query, echo, uids);
            json
        };
        let mut body = BodyWriter::new();
        body.out().push(b'[');
        ResponseWriter {
            body,
            is_first: true,
            global: Vec::new(),
            global_held: None,
            output: query.output,
            queries: sub_queries.map(json).collect(),
            nan_is_null,
        }
    }

    /// Charges the memory of the body to `budget`.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`], which every later write can return too.
    pub(super) fn hold_of(&mut self, budget: &Budget) -> Result<(), QueryError> {
        if self.global_held.is_none() {
            self.global_held = Some(budget.hold(0)?);
        }
        self.body.hold_of(budget)
    }

    /// Adds a group; a large one is rendered in the compute pool.
    pub(super) async fn add_in(
        mut self,
        compute: &ComputePool,
        group: Group,
    ) -> Result<ResponseWriter, QueryError> {
        if group.points.len() <= POINTS_INLINE {
            self.add(&group)?;
            return Ok(self);
        }
        let add = move || {
            self.add(&group)?;
            Ok(self)
        };
        compute.run(add).await?
    }

    /// Sets the global annotations, which every group repeats.
    pub(super) fn set_global(&mut self, annotations: &[Arc<Annotation>]) -> Result<(), QueryError> {
        self.global.clear();
        self.global.extend_from_slice(b",\"globalAnnotations\":");
        write_annotations(&mut self.global, annotations);
        match &mut self.global_held {
            Some(held) => held.grow(self.global.len() as u64),
            None => Ok(()),
        }
    }

    /// Adds a group.
    pub(super) fn add(&mut self, group: &Group) -> Result<(), QueryError> {
        self.separate();
        let out = self.body.out();
        out.extend_from_slice(b"{\"metric\":");
        json::write_string(out, &group.metric);
        out.extend_from_slice(b",\"tags\":");
        json::write_map(out, group.tags.iter().map(|(key, value)| (&**key, &**value)));
        out.extend_from_slice(b",\"aggregateTags\":");
        json::write_strings(out, group.aggregate_tags.iter().map(|key| &**key));
        if let Some(query) = self.queries.get(group.query) {
            out.extend_from_slice(b",\"query\":");
            out.extend_from_slice(query);
        }
        if self.output.tsuids {
            out.extend_from_slice(b",\"tsuids\":");
            json::write_strings(out, group.tsuids.iter().map(ToString::to_string));
        }
        if let Some(annotations) = &group.annotations {
            out.extend_from_slice(b",\"annotations\":");
            write_annotations(out, annotations);
        }
        out.extend_from_slice(&self.global);
        out.extend_from_slice(b",\"dps\":");
        self.write_points(group)?;
        if self.output.stats {
            let out = self.body.out();
            out.extend_from_slice(b",\"stats\":{\"emittedDPs\":");
            json::write_integer(out, group.points.len());
            out.extend_from_slice(b",\"queryIndex\":");
            json::write_integer(out, group.query);
            out.push(b'}');
        }
        self.body.out().push(b'}');
        self.body.roll()
    }

    /// Completes the response.
    pub(super) fn finish(mut self, statistics: &Statistics) -> Result<ReplyBody, QueryError> {
        if self.output.summary {
            self.separate();
            let out = self.body.out();
            out.extend_from_slice(b"{\"statsSummary\":{\"emittedDPs\":");
            json::write_integer(out, statistics.points_sent);
            out.extend_from_slice(b",\"rowsPreFilter\":");
            json::write_integer(out, statistics.rows);
            out.extend_from_slice(b",\"dpsPreFilter\":");
            json::write_integer(out, statistics.points);
            out.extend_from_slice(b",\"bytesPreFilter\":");
            json::write_integer(out, statistics.bytes);
            out.extend_from_slice(b",\"series\":");
            json::write_integer(out, statistics.series);
            out.extend_from_slice(b",\"duplicatePoints\":");
            json::write_integer(out, statistics.duplicates);
            out.extend_from_slice(b",\"skippedCells\":");
            json::write_integer(out, statistics.skipped_cells);
            out.extend_from_slice(b",\"resolution\":\"raw\",\"totalTime\":");
            java::write_double(out, statistics.elapsed.as_secs_f64() * 1000.0);
            out.extend_from_slice(b"}}");
        }
        self.body.out().push(b']');
        self.body.finish()
    }

    fn separate(&mut self) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.body.out().push(b',');
        }
    }

    fn write_points(&mut self, group: &Group) -> Result<(), QueryError> {
        let nan: &[u8] = if self.nan_is_null.get(group.query).copied().unwrap_or(false) {
            b"null"
        } else {
            b"\"NaN\""
        };
        let Output { arrays, millis, .. } = self.output;
        let mut out = self.body.out();
        out.push(if arrays { b'[' } else { b'{' });
        for (place, (time_ms, value)) in group.points.iter().enumerate() {
            if place > 0 {
                out.push(b',');
                if place % POINTS_INLINE == 0 {
                    self.body.roll()?;
                    out = self.body.out();
                }
            }
            let time = if millis { time_ms } else { time_ms / 1000 };
            out.push(if arrays { b'[' } else { b'"' });
            json::write_integer(out, time);
            out.extend_from_slice(if arrays { b"," } else { b"\":" });
            match value {
                Number::Int(int) => json::write_integer(out, int),
                Number::Double(double) if double.is_nan() => out.extend_from_slice(nan),
                Number::Double(double) => java::write_double(out, double),
            }
            if arrays {
                out.push(b']');
            }
        }
        out.push(if arrays { b']' } else { b'}' });
        Ok(())
    }
}

/// Writes a list of annotations.
fn write_annotations(out: &mut Vec<u8>, annotations: &[Arc<Annotation>]) {
    out.push(b'[');
    for (place, annotation) in annotations.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&render::annotation(annotation));
    }
    out.push(b']');
}

#[cfg(test)]
mod tests;
