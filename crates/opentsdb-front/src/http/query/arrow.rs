//! Results of `/api/query` as streams in Arrow's IPC format: a row for each point.
//!
//! Rows are in the order in which the query computes points, so a result may exceed the memory of a query, as over gRPC. A batch is
//! encoded on the computation threads as soon as the query has emitted its points, and the next one when the client has taken it.
//!
//! Series without points have no rows. Aggregated tags, annotations, TSUIDs and statistics are left out.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use oxtsdb_arrow_stream::{BatchWriter, END, MAX_ROWS, Row, Series, Value, schema};
use oxtsdb_query::{
    AnnotationSelection, Delivery, Frame, Group, Held, Number, Points, QueryError, RequestContext,
};
use oxtsdb_resources::ComputePool;
use oxtsdb_server::telemetry::used;

use super::parse::ParsedQuery;
use super::{incomplete, render};
use crate::http::api_request::ApiParts;
use crate::http::body::ReplyBody;

/// Runs a query, and returns its result: complete, if it is small or `is_whole`.
pub(super) async fn body(
    parts: &ApiParts,
    request: RequestContext,
    mut query: ParsedQuery,
    is_whole: bool,
) -> Result<ReplyBody, QueryError> {
    // Annotations of a metric keep points back until all rows are read.
    query.spec.annotations = AnnotationSelection::default();
    let encoder = Encoder {
        omits_nan: query.output.omits_nan,
        nan_is_null: render::nan_is_null(&query.spec),
        ..Encoder::default()
    };
    let compute = parts.engine.resources().compute.for_client(request.client);
    let deliveries = parts.engine.run(query.spec, request).await;
    let batches = stream::try_unfold(Some((deliveries, encoder)), move |state| {
        let compute = compute.clone();
        async move {
            let Some((mut deliveries, encoder)) = state else {
                return Ok(None);
            };
            let (batch, encoder) = next_batch(&mut deliveries, encoder, &compute).await?;
            Ok(Some((batch, encoder.map(|encoder| (deliveries, encoder)))))
        }
    });
    let pieces = stream::iter([Ok(schema().into())]).chain(batches);
    ReplyBody::from_pieces(pieces, is_whole, "a query").await
}

/// The next batch; without an encoder if it is the last one.
async fn next_batch(
    deliveries: &mut (impl Stream<Item = Result<Delivery, QueryError>> + Unpin),
    mut encoder: Encoder,
    compute: &ComputePool,
) -> Result<(ReplyBody, Option<Encoder>), QueryError> {
    while encoder.points < MAX_ROWS && !encoder.has_all {
        encoder.add(deliveries.next().await.ok_or_else(incomplete)??)?;
    }
    let encode = move || encoder.batch().map(|batch| (batch, encoder));
    let (mut batch, encoder) = compute.run(encode).await??;
    let is_last = encoder.has_all && encoder.runs.is_empty();
    if is_last {
        batch.append(END.to_vec());
    }
    Ok((batch, (!is_last).then_some(encoder)))
}

/// Encodes frames.
#[derive(Debug, Default)]
struct Encoder {
    batch: BatchWriter,
    /// Points to encode.
    runs: VecDeque<Run>,
    /// How many.
    points: usize,
    /// The groups of the sub-query that have further points, by number, with their memory.
    groups: HashMap<usize, (Arc<Series>, Held)>,
    /// Whether the query has no more frames.
    has_all: bool,
    omits_nan: bool,
    /// Whether NaN becomes null, for each sub-query.
    nan_is_null: Vec<bool>,
}

/// Points of a group, and their memory.
#[derive(Debug)]
struct Run {
    series: Arc<Series>,
    points: Points,
    /// The points that are not encoded.
    rest: Range<usize>,
    held: Held,
}

impl Encoder {
    /// Adds a frame.
    fn add(&mut self, Delivery { frame, mut held }: Delivery) -> Result<(), QueryError> {
        match frame {
            Frame::Group(group) => {
                let is_whole = group.is_whole;
                let (series, points) = series(group);
                let series = Arc::new(series);
                if !is_whole {
                    let tags = series.tags.len() * size_of::<(Arc<str>, Arc<str>)>();
                    let head = held.budget().hold((size_of::<Series>() + tags) as u64)?;
                    self.groups.insert(series.number, (Arc::clone(&series), head));
                }
                held.shrink_to(points.held_bytes());
                self.add_run(series, points, held);
            }
            Frame::More { number, points } => {
                let group = self.groups.get(&number);
                let (series, _) = group.ok_or_else(|| QueryError::Internal {
                    detail: format!("the query emitted points of the undeclared group {number}"),
                })?;
                self.add_run(Arc::clone(series), points, held);
            }
            Frame::Done { .. } => self.groups.clear(),
            Frame::Statistics(statistics) => {
                used(statistics.rows, statistics.points);
                self.has_all = true;
            }
            Frame::Annotations { .. } | Frame::GlobalAnnotations(_) | Frame::Encoded(_) => {}
        }
        Ok(())
    }

    fn add_run(&mut self, series: Arc<Series>, points: Points, held: Held) {
        if points.is_empty() {
            return;
        }
        self.points += points.len();
        self.runs.push_back(Run {
            rest: 0..points.len(),
            series,
            points,
            held,
        });
    }

    /// Encodes a batch of the points.
    fn batch(&mut self) -> Result<ReplyBody, QueryError> {
        let Some(first) = self.runs.front() else {
            return Ok(ReplyBody::default());
        };
        let budget = first.held.budget().clone();
        while let Some(run) = self.runs.front_mut() {
            let Run {
                series, points, rest, ..
            } = run;
            let before = rest.len();
            let nan_is_null = self.nan_is_null.get(series.query).copied().unwrap_or(false);
            let omits_nan = self.omits_nan;
            let row = |index: usize| {
                let value = match points.values().get(index) {
                    Number::Double(double) if double.is_nan() && omits_nan => return None,
                    Number::Double(double) if double.is_nan() && nan_is_null => Value::Null,
                    Number::Double(double) => Value::Double(double),
                    Number::Int(int) => Value::Int(int),
                };
                let time_ms = points.times_ms()[index];
                Some(Row { time_ms, value })
            };
            self.batch.fill(series, &mut rest.by_ref().filter_map(row));
            self.points -= before - rest.len();
            if rest.start < rest.end {
                break;
            }
            self.runs.pop_front();
        }
        let mut held = budget.hold(self.batch.bytes() as u64)?;
        let messages = self.batch.take();
        held.shrink_to(messages.len() as u64);
        Ok(ReplyBody::from_parts(vec![messages.into()], held))
    }
}

/// The series of a group, and its points.
fn series(group: Group) -> (Series, Points) {
    let series = Series {
        query: group.query,
        number: group.number,
        metric: group.metric,
        tags: group.tags,
    };
    (series, group.points)
}

#[cfg(test)]
mod tests;
