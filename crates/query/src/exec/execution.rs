//! The execution of one query: plans all sub-queries, then runs them one after the other.

use std::time::Instant;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::{Instrument as _, info_span};

use crate::SPANS;
use crate::annotation;
use crate::context::admission::Admitted;
use crate::context::demand::Demand;
use crate::context::limits::Limits;
use crate::context::query_context::QueryContext;
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::exec::encoded::ResultForm;
use crate::exec::environment::Environment;
use crate::exec::frame::Frame;
use crate::exec::output::{FrameOutput, FrameSender};
use crate::exec::sub_query::SubQueryExecution;
use crate::histogram::HistogramExecution;
use crate::plan::query_plan::Plan;
use crate::spec::{QuerySpec, SubQuery};

/// Runs a query and sends its frames. If memory runs out before the first frame, the query starts again once it has all
/// the memory that it may have.
pub(super) async fn execute(
    environment: &Environment,
    query: &QuerySpec,
    admitted: &mut Admitted,
    frames: &FrameSender,
    form: ResultForm,
) -> Result<(), QueryError> {
    loop {
        let result = running(environment, query, admitted, frames, form.clone()).await;
        match &result {
            Err(error) if admitted.can_start_again(error) => admitted.start_again().await?,
            _ => {
                environment.totals.end(&result);
                return result;
            }
        }
    }
}

/// [`run`] behind a pointer, so that it is compiled in this crate and not again in each that runs queries.
fn running<'a>(
    environment: &'a Environment,
    query: &'a QuerySpec,
    admitted: &'a mut Admitted,
    frames: &'a FrameSender,
    form: ResultForm,
) -> BoxFuture<'a, Result<(), QueryError>> {
    run(environment, query, admitted, frames, form).boxed()
}

async fn run(
    environment: &Environment,
    query: &QuerySpec,
    admitted: &mut Admitted,
    frames: &FrameSender,
    form: ResultForm,
) -> Result<(), QueryError> {
    let started = Instant::now();
    let context = admitted.context().clone();
    let usage = context.budget().usage();
    let read = || [Resource::Series, Resource::Rows, Resource::Bytes].map(|resource| usage.get(resource));
    let before = read();
    // All plans first: one unknown name fails the whole query before anything is read.
    let planning = async {
        let plans = plans(environment, query, &context).await?;
        check_rows(&plans, context.budget().limits()).await?;
        Ok::<_, QueryError>(plans)
    };
    let plans = planning.instrument(info_span!(target: SPANS, "plan")).await?;
    environment.totals.plan.observe_since(started);
    let mut sub_queries = Vec::with_capacity(plans.len());
    let mut demand = Demand::NOTHING;
    for (index, (sub_query, plan)) in query.sub_queries.iter().zip(&plans).enumerate() {
        let execution = SubQueryExecution::new(environment, &context, query, (index, sub_query), plan);
        execution.check_result(&form).await?;
        let next = execution.demand(&form)?;
        demand = match form {
            // The results of all sub-queries are kept.
            ResultForm::WholeGroups => demand.and(next),
            ResultForm::Frames | ResultForm::Encoded(_) => demand.or(next),
        };
        sub_queries.push(execution);
    }
    if let Some(bytes) = admitted.reserve_free(demand) {
        let begun = Instant::now();
        let waiting = admitted.wait_for_memory(bytes);
        let waited = waiting.instrument(info_span!(target: SPANS, "queue")).await;
        environment.totals.queue.observe_since(begun);
        waited?;
    }
    let mut output = FrameOutput::new(frames, admitted, form, &environment.totals);
    // Global annotations belong to no metric.
    if query.annotations.global && !environment.storage.directory.refuses_metrics() {
        let global = annotation::global_of_query(&environment.storage, query, &context);
        if let Some((annotations, held)) = global.await? {
            if let ResultForm::Encoded(_) = &output.form {
                output.global = Some((annotations.into(), held));
            } else {
                let frame = Frame::GlobalAnnotations(annotations);
                output.send_held(frame, Some(held)).await?;
            }
        }
    }
    for (index, execution) in sub_queries.into_iter().enumerate() {
        let (sub_query, plan) = (&query.sub_queries[index], &plans[index]);
        if let Some(results) = &sub_query.histogram {
            let sub_query = (index, sub_query, results);
            HistogramExecution::new(environment, &context, query, sub_query, plan)
                .run(&mut output)
                .await?;
            continue;
        }
        let is_done = execution.run(&mut output).await?;
        if !is_done {
            fall_back(
                environment,
                &context,
                query,
                (index, sub_query),
                plan,
                &mut output,
            )
            .await?;
        }
    }
    let mut statistics = std::mem::take(&mut output.statistics);
    // Several queries may share a context.
    let [series, rows, bytes] = read();
    statistics.series = series - before[0];
    statistics.rows = rows - before[1];
    statistics.bytes = bytes - before[2];
    statistics.elapsed = started.elapsed();
    environment.totals.add_read(&statistics);
    output.send(Frame::Statistics(statistics)).await
}

/// Runs a sub-query over the fallback tables if its table has no series.
async fn fall_back(
    environment: &Environment,
    context: &QueryContext,
    query: &QuerySpec,
    (index, sub_query): (usize, &SubQuery),
    first: &Plan,
    output: &mut FrameOutput<'_>,
) -> Result<(), QueryError> {
    let (storage, compute) = (&environment.storage, &environment.resources.compute);
    let mut reads = first.fallbacks.clone();
    while let Some(read) = reads.pop_front() {
        let reads = (read, reads.clone());
        let plan = Plan::reading(query, sub_query, reads, storage, compute, context).await?;
        let execution = SubQueryExecution::new(environment, context, query, (index, sub_query), &plan);
        if execution.run(output).await? {
            break;
        }
    }
    Ok(())
}

/// The plans of all sub-queries.
pub(super) async fn plans(
    environment: &Environment,
    query: &QuerySpec,
    context: &QueryContext,
) -> Result<Vec<Plan>, QueryError> {
    if query.end_ms < query.start_ms {
        return Err(QueryError::EndBeforeStart {
            start_ms: query.start_ms,
            end_ms: query.end_ms,
        });
    }
    query.check_regexps()?;
    let mut plans = Vec::with_capacity(query.sub_queries.len());
    for sub_query in &query.sub_queries {
        let (storage, compute) = (&environment.storage, &environment.resources.compute);
        plans.push(Plan::new(query, sub_query, storage, compute, context).await?);
    }
    Ok(plans)
}

/// Rejects a query before it runs if it is certain to read more rows than its limit.
async fn check_rows(plans: &[Plan], limits: &Limits) -> Result<(), QueryError> {
    let mut rows = 0;
    for plan in plans.iter().filter(|_| limits.is_set(Resource::Rows)) {
        let estimate = plan.access_path.estimate().await?;
        rows += estimate.rows.map_or(0, |rows| rows.at_least);
    }
    limits.check(Resource::Rows, rows)
}
