//! Renders groups as OpenTSDB's JSON.
//!
//! ```text
//!   [{"metric":"m","tags":{"host":"a"},"aggregateTags":[],["query":{…},]
//!     ["tsuids":[…],]["annotations":[…],]["globalAnnotations":[…],]"dps":{"1356998400":1,"1356998410":2.5}[,"stats":{…}]}, …[,{"statsSummary":{…}}]]
//! ```
//!
//! Timestamps in seconds are milliseconds divided by 1000. A series with several points in one second therefore
//! repeats a key, as in OpenTSDB. Doubles are printed as Java prints them; infinities are strings, NaN is one, or `null` with the
//! fill policy `null`.
//!
//! Source: OpenTSDB 2.4, `HttpJsonSerializer.formatQueryAsyncV1`.

use std::sync::Arc;

use bytes::Bytes;
use oxtsdb_query::QueryError;
use oxtsdb_query::function::downsample::Fill;
use oxtsdb_query::{Budget, Group, GroupEncoder, Held, Number, QuerySpec, Statistics};
use oxtsdb_resources::yield_to_others;
use oxtsdb_schema::{Annotation, java};

use crate::http::annotation::render;
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::json;
use crate::http::query::parse::{Output, ParsedQuery};
use crate::http::query::query_echo::{self, QueryEcho, TagkUids};

/// Points that are written at a time; then a part of the body may end.
const RUN_POINTS: usize = 1024;

/// The number of runs of a group that keep their instants as text for the next group.
const KEPT_RUNS: usize = 16;

/// Renders the groups of a query.
#[derive(Debug)]
pub(super) struct GroupRenderer {
    output: Output,
    /// The JSON of each sub-query, and where the table that was read belongs, if `showQuery` is set.
    queries: Vec<(Vec<u8>, usize)>,
    /// Whether NaN is written as `null`, for each sub-query.
    nan_is_null: Vec<bool>,
}

impl GroupRenderer {
    /// `uids` are the UIDs of the filters' tag keys; they are needed if the response shows its sub-queries.
    pub(super) fn new(query: &ParsedQuery, uids: &TagkUids) -> Self {
        let echoes = query.echoes.iter().filter(|_| query.output.query);
        let sub_queries = query.spec.sub_queries.iter().zip(echoes).enumerate();
        let json = |(index, (sub_query, echo)): (usize, (_, &QueryEcho))| {
            let mut json = Vec::new();
            let table_at = query_echo::write(&mut json, index, sub_query, echo, uids);
            (json, table_at)
        };
        Self {
            output: query.output,
            queries: sub_queries.map(json).collect(),
            nan_is_null: nan_is_null(&query.spec),
        }
    }

    /// Writes a group; `global` is its member `globalAnnotations`, with the comma before it.
    fn write(
        &self,
        group: &Group,
        global: &[u8],
        times: &mut TimeTexts,
        body: &mut BodyWriter,
    ) -> Result<(), QueryError> {
        let out = body.out();
        out.extend_from_slice(b"{\"metric\":");
        json::write_string(out, &group.metric);
        out.extend_from_slice(b",\"tags\":");
        json::write_map(out, group.tags.iter().map(|(key, value)| (&**key, &**value)));
        out.extend_from_slice(b",\"aggregateTags\":");
        json::write_strings(out, group.aggregate_tags.iter().map(|key| &**key));
        if let Some((query, table_at)) = self.queries.get(group.query) {
            let (before, behind) = query.split_at_checked(*table_at).unwrap_or_default();
            out.extend_from_slice(b",\"query\":");
            out.extend_from_slice(before);
            json::write_string(out, group.rollup.as_deref().unwrap_or("raw"));
            out.extend_from_slice(behind);
        }
        if self.output.tsuids {
            out.extend_from_slice(b",\"tsuids\":");
            json::write_strings(out, group.tsuids.iter().map(ToString::to_string));
        }
        if let Some(annotations) = &group.annotations {
            out.extend_from_slice(b",\"annotations\":");
            write_annotations(out, annotations);
        }
        out.extend_from_slice(global);
        out.extend_from_slice(b",\"dps\":");
        self.write_points(group, times, body)?;
        let out = body.out();
        if self.output.stats {
            out.extend_from_slice(b",\"stats\":{\"emittedDPs\":");
            json::write_integer(out, group.points.len());
            out.extend_from_slice(b",\"queryIndex\":");
            json::write_integer(out, group.query);
            out.push(b'}');
        }
        out.push(b'}');
        body.roll()
    }

    fn write_points(
        &self,
        group: &Group,
        times: &mut TimeTexts,
        body: &mut BodyWriter,
    ) -> Result<(), QueryError> {
        let nan: &[u8] = if self.nan_is_null.get(group.query).copied().unwrap_or(false) {
            b"null"
        } else {
            b"\"NaN\""
        };
        let (open, close, end_of_point): (u8, u8, &[u8]) = if self.output.arrays {
            (b'[', b']', b"]")
        } else {
            (b'{', b'}', b"")
        };
        body.out().push(open);
        let mut is_first = true;
        let instants = group.points.times_ms().chunks(RUN_POINTS);
        let mut values = group.points.iter().map(|(_, value)| value);
        for (run, instants) in instants.enumerate() {
            yield_to_others();
            let texts = times.for_run(run, instants, self.output);
            let out = body.out();
            for (text, value) in texts.iter().zip(values.by_ref()) {
                if self.output.omits_nan && matches!(value, Number::Double(double) if double.is_nan()) {
                    continue;
                }
                // The first point that is not omitted has no comma.
                let text = match std::mem::replace(&mut is_first, false) {
                    true => text.strip_prefix(b",").unwrap_or(text),
                    false => text,
                };
                out.extend_from_slice(text);
                match value {
                    Number::Int(int) => json::write_integer(out, int),
                    Number::Double(double) if double.is_nan() => out.extend_from_slice(nan),
                    Number::Double(double) => json::write_double(out, double),
                }
                out.extend_from_slice(end_of_point);
            }
            body.roll()?;
        }
        body.out().push(close);
        Ok(())
    }
}

impl GroupEncoder for GroupRenderer {
    /// The groups, separated by commas.
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = (Group, Option<Held>)>,
        global: Option<&[Arc<Annotation>]>,
        budget: &Budget,
    ) -> Result<(Vec<Bytes>, Held), QueryError> {
        let mut global_member = Vec::new();
        if let Some(annotations) = global {
            global_member.extend_from_slice(b",\"globalAnnotations\":");
            write_annotations(&mut global_member, annotations);
        }
        let _held = budget.hold(global_member.len() as u64)?;
        let (mut body, mut times) = (BodyWriter::with_budget(budget)?, TimeTexts::default());
        for (place, (group, _held)) in groups.enumerate() {
            if place > 0 {
                body.out().push(b',');
            }
            self.write(&group, &global_member, &mut times, &mut body)?;
        }
        let (parts, held) = body.finish()?.into_parts();
        Ok((parts, held.map_or_else(|| budget.hold(0), Ok)?))
    }
}

/// Whether NaN is null, for each sub-query.
pub(super) fn nan_is_null(query: &QuerySpec) -> Vec<bool> {
    let downsamples = query.sub_queries.iter().map(|sub_query| &sub_query.downsample);
    let fills = downsamples.map(|downsample| downsample.as_ref().map(|downsample| downsample.fill));
    fills.map(|fill| fill == Some(Fill::Null)).collect()
}

/// Assembles a response of rendered groups.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    has_summary: bool,
    is_first: bool,
}

impl ResponseWriter {
    pub(super) const fn new(query: &ParsedQuery) -> Self {
        Self {
            has_summary: query.output.summary,
            is_first: true,
        }
    }

    /// The groups that come next, one or more.
    pub(super) fn groups(&mut self, groups: Vec<Bytes>, held: Held) -> ReplyBody {
        let mut body = ReplyBody::from_parts(groups, held);
        body.prepend(vec![self.separator()]);
        body
    }

    /// The end of the response.
    pub(super) fn end(&mut self, statistics: &Statistics) -> ReplyBody {
        let mut out = Vec::new();
        if self.has_summary {
            out.push(self.separator());
            out.extend_from_slice(b"{\"statsSummary\":{\"emittedDPs\":");
            json::write_integer(&mut out, statistics.points_sent);
            out.extend_from_slice(b",\"rowsPreFilter\":");
            json::write_integer(&mut out, statistics.rows);
            out.extend_from_slice(b",\"dpsPreFilter\":");
            json::write_integer(&mut out, statistics.points);
            out.extend_from_slice(b",\"bytesPreFilter\":");
            json::write_integer(&mut out, statistics.bytes);
            out.extend_from_slice(b",\"series\":");
            json::write_integer(&mut out, statistics.series);
            out.extend_from_slice(b",\"duplicatePoints\":");
            json::write_integer(&mut out, statistics.duplicates);
            out.extend_from_slice(b",\"skippedCells\":");
            json::write_integer(&mut out, statistics.skipped_cells);
            out.extend_from_slice(b",\"resolution\":\"raw\",\"totalTime\":");
            java::write_double(&mut out, statistics.elapsed.as_secs_f64() * 1000.0);
            out.extend_from_slice(b"}}");
        }
        if self.is_first {
            out.push(b'[');
        }
        out.push(b']');
        out.into()
    }

    /// The byte before the next element.
    const fn separator(&mut self) -> u8 {
        if std::mem::replace(&mut self.is_first, false) {
            b'['
        } else {
            b','
        }
    }
}

/// The texts of instants by run: series of one query often have the same instants.
#[derive(Debug, Default)]
struct TimeTexts(Vec<RunTexts>);

/// The texts of the instants of a run, each with the punctuation around it.
#[derive(Debug, Default)]
struct RunTexts {
    times_ms: Vec<i64>,
    text: Vec<u8>,
    /// Where each text ends.
    ends: Vec<usize>,
}

impl TimeTexts {
    /// The texts of a run of a group; printed unless the group before has the same instants.
    fn for_run(&mut self, run: usize, times_ms: &[i64], output: Output) -> &RunTexts {
        let kept = run.min(KEPT_RUNS - 1);
        if self.0.len() <= kept {
            self.0.resize_with(kept + 1, RunTexts::default);
        }
        let texts = &mut self.0[kept];
        if run >= KEPT_RUNS || texts.times_ms != times_ms {
            texts.print(times_ms, run == 0, output);
        }
        texts
    }
}

impl RunTexts {
    fn print(&mut self, times_ms: &[i64], is_first: bool, output: Output) {
        self.times_ms.clear();
        self.times_ms.extend_from_slice(times_ms);
        self.text.clear();
        self.ends.clear();
        let (before, behind): (u8, &[u8]) = if output.arrays {
            (b'[', b",")
        } else {
            (b'"', b"\":")
        };
        for (place, time_ms) in times_ms.iter().enumerate() {
            if place > 0 || !is_first {
                self.text.push(b',');
            }
            self.text.push(before);
            let time = if output.millis { *time_ms } else { time_ms / 1000 };
            json::write_integer(&mut self.text, time);
            self.text.extend_from_slice(behind);
            self.ends.push(self.text.len());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
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
