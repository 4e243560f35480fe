//! `/api/query/exp`: evaluates arithmetic over named metrics, `{"metrics":[{"id":"a",…}],"expressions":[{"id":"e",
//! "expr":"a * 2"}],…}`.
//!
//! Rejected requests get 400 (500 from OpenTSDB). Of JEXL only arithmetic is supported; other
//! syntax is rejected.
//!
//! Expressions see the points around the range, as far as the scan reads them; results are clipped to the range,
//! except for a metric that is itself an output. Where OpenTSDB fails on its own objects (series without points,
//! nested expressions that are NaN) this server returns a result: the fill policy replaces a missing value of a
//! metric, NaN a missing value of a nested expression.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleExpressionQuery`, `QueryExecutor`.

mod render;
mod request;

use jiff::tz::TimeZone;
use oxtsdb_query::expression::fill::Fill;
use oxtsdb_query::expression::formulas::{self, Body, Formula, Input};
use oxtsdb_query::expression::join::{Join, SetOperator};
use oxtsdb_query::expression::{Arithmetic, Work, run};
use oxtsdb_query::language::parse_aggregator;
use oxtsdb_query::language::time::{find_zone, is_date, now_ms, parse_time};
use oxtsdb_query::{
    Downsample, QuerySpec, Quirks, RateOptions, RollupRequest, SeriesFilter, Source, SubQuery, TagFilter,
};
use oxtsdb_schema::DuplicatePolicy;

use super::rules::QueryRules;
use super::{failure, parse::check_times};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;
use request::{FillPolicy, Operator, Query, Timespan};

/// POST.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        context: request,
        mut body,
        ..
    } = request;
    let (engine, rules) = (&parts.engine, parts.query_rules);
    let parse = move |content: &[u8]| parse(content, rules);
    let (query, formulas, spec) = parsed(&mut body, &engine.resources().compute, parse).await?;
    let range_ms = (spec.start_ms, spec.end_ms);
    let admitted = engine
        .admit(request, spec.description(), spec.max_scanned_points)
        .await?;
    let context = admitted.context().clone();
    let evaluated = async {
        let mut admitted = admitted;
        let query_tags = run::query_tags(engine, &spec.sub_queries, admitted.context()).await?;
        let query_result = run::series(engine, &spec, &mut admitted).await?;
        check_circles(&formulas)?;
        let metrics = query.metrics.iter().flatten();
        let inputs: Vec<Input> = metrics
            .zip(query_result.series)
            .zip(query_tags)
            .map(|((metric, series), query_tags)| Input {
                name: metric.id.clone().unwrap_or_default(),
                fill: fill(metric.fill_policy, Fill::Zero),
                query_tags,
                series,
            })
            .collect();
        let held = query_result.held;
        let evaluate = move |cancelled: &_| {
            let mut work = Work::new(Quirks::OPENTSDB, range_ms, cancelled).holding(held);
            let results = formulas::evaluate(&inputs, &formulas, &mut work)?;
            render::render(&query, &inputs, results, &mut work)
        };
        let pool = &engine.resources().expressions;
        Ok::<_, HttpError>(run::computed(pool, &mut admitted, evaluate).await?)
    };
    Ok(Reply::json(context.run(evaluated).await?))
}

/// GET, which has no content and is rejected.
pub(crate) async fn get(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Err(without_content())
}

fn without_content() -> HttpError {
    rejected("Incoming data was null or empty")
}

/// Parses a request and returns it with its expressions and the query for its metrics.
fn parse(content: &[u8], rules: QueryRules) -> Result<(Query, Vec<Formula>, QuerySpec), HttpError> {
    if content.is_empty() {
        return Err(without_content());
    }
    let query: Query = serde_json::from_slice(content).map_err(|error| rejected(error.to_string()))?;
    let arithmetics = query.check().map_err(rejected)?;
    let formulas = formulas(&query, arithmetics)?;
    let spec = spec(&query, rules)?;
    Ok((query, formulas, spec))
}

fn rejected(message: impl Into<String>) -> HttpError {
    HttpError::bad_request(message)
}

fn rejected_because(error: impl std::fmt::Display) -> HttpError {
    rejected(error.to_string())
}

/// The query of a request, with a sub-query for each metric.
fn spec(query: &Query, rules: QueryRules) -> Result<QuerySpec, HttpError> {
    let time = query.time.clone().unwrap_or_default();
    let zone = find_zone(time.timezone.as_deref().unwrap_or_default());
    let (start_ms, end_ms) = range(&time, zone.as_ref().ok())?;
    let mut sub_queries = Vec::new();
    for metric in query.metrics.iter().flatten() {
        let aggregator = metric.aggregator.as_deref().or(time.aggregator.as_deref());
        let downsample = time.downsampler.as_ref().map(|downsampler| {
            let interval = downsampler.interval.as_deref().unwrap_or_default();
            let aggregator = downsampler.aggregator.as_deref().unwrap_or_default();
            // OpenTSDB ignores its fill policy.
            let text = format!("{interval}-{aggregator}");
            Downsample::parse(&text, &TimeZone::UTC, false).map_err(rejected_because)
        });
        sub_queries.push(SubQuery {
            source: Source::Metric(metric.metric.clone().unwrap_or_default()),
            filter: series_filter(query, metric.filter.as_deref())?,
            aggregator: parse_aggregator(aggregator.unwrap_or_default()).map_err(rejected_because)?,
            downsample: downsample.transpose()?,
            rate: time.rate.then(RateOptions::default),
            histogram: None,
            rollup: RollupRequest::default(),
        });
    }
    let duplicates = if rules.fix_duplicates {
        DuplicatePolicy::KeepNewest
    } else {
        DuplicatePolicy::Error
    };
    Ok(QuerySpec {
        start_ms,
        end_ms,
        sub_queries,
        duplicates,
        max_scanned_points: None,
        quirks: Quirks::OPENTSDB,
        skip_damaged_rows: false,
        with_surroundings: Quirks::OPENTSDB.expressions_see_surroundings,
        with_infinities: true,
        annotations: oxtsdb_query::AnnotationSelection::default(),
    })
}

fn range(time: &Timespan, zone: Option<&TimeZone>) -> Result<(i64, i64), HttpError> {
    let named = time.timezone.as_ref().is_some_and(|zone| !zone.is_empty());
    let now_ms = now_ms();
    let instant = |text: &str| {
        let zone = match zone {
            Some(zone) if named => zone,
            // An unknown zone is an error only if a time needs it.
            None if named && is_date(text) => return Err(rejected("Invalid time")),
            _ => &TimeZone::UTC,
        };
        parse_time(text, now_ms, zone).map_err(|_| rejected("Invalid time"))
    };
    let start_ms = instant(time.start.as_deref().unwrap_or_default())?;
    let end = time.end.as_deref().filter(|end| !end.is_empty());
    let end_ms = end.map_or(Ok(now_ms), instant)?;
    if end_ms <= start_ms {
        return Err(rejected(failure::end_not_after_start(start_ms, end_ms).message));
    }
    check_times((start_ms, end_ms))?;
    Ok((start_ms, end_ms))
}

/// Resolves the filter that a metric refers to.
fn series_filter(query: &Query, id: Option<&str>) -> Result<SeriesFilter, HttpError> {
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return Ok(SeriesFilter::default());
    };
    let mut filters = query.filters.iter().flatten();
    let filter = filters
        .find(|filter| filter.id.as_deref() == Some(id))
        .ok_or_else(|| rejected(format!("No filter defined: {id}")))?;
    filter.check().map_err(rejected)?;
    let tags =
        filter.tags.iter().flatten().map(|tag| {
            TagFilter::new(&tag.kind, &tag.tagk, &tag.filter, tag.group_by).map_err(rejected_because)
        });
    Ok(SeriesFilter {
        tags: tags.collect::<Result<_, _>>()?,
        explicit_tags: filter.explicit_tags,
    })
}

/// The expressions of a request.
fn formulas(query: &Query, arithmetics: Vec<Arithmetic>) -> Result<Vec<Formula>, HttpError> {
    let expressions = query.expressions.iter().flatten().zip(arithmetics);
    let formula = |(expression, arithmetic): (&request::Expression, Arithmetic)| {
        if arithmetic.names().is_empty() {
            return Err(rejected("The expression didn't appear to have any variables"));
        }
        let operator = match expression.join.operator {
            Some(Operator::Union) => SetOperator::Union,
            Some(Operator::Intersection) => SetOperator::Intersection,
            None => return Err(rejected("The set operator cannot be null")),
        };
        let join = Join {
            operator,
            query_tags: expression.join.use_query_tags,
            aggregate_tags: expression.join.include_agg_tags,
        };
        Ok(Formula {
            name: expression.id.clone().unwrap_or_default(),
            body: Body::Arithmetic(arithmetic, join),
            fill: fill(expression.fill_policy, Fill::Nan),
        })
    };
    expressions.map(formula).collect()
}

/// Rejects names that OpenTSDB does not find, and circular references.
fn check_circles(formulas: &[Formula]) -> Result<(), HttpError> {
    let repeated = |message: String| HttpError::bad_request(message.clone()).with_details(message);
    for formula in formulas {
        if formula.body.names().contains(&formula.name) {
            let name = &formula.name;
            return Err(repeated(format!("Self referencing expression found: {name}")));
        }
    }
    if let Err(circle) = formulas::order(formulas) {
        let name = &formulas[circle.0].name;
        return Err(repeated(format!("Circular reference found: {name}")));
    }
    for formula in formulas {
        // OpenTSDB looks names up in lower case.
        let names = formula.body.names();
        if let Some(name) = names.iter().find(|name| !names.contains(&name.to_lowercase())) {
            return Err(repeated(format!("Missing results for variable {name}")));
        }
    }
    Ok(())
}

fn fill(policy: Option<FillPolicy>, default: Fill) -> Fill {
    policy.map_or(default, |policy| Fill::Scalar(policy.value))
}

#[cfg(test)]
mod tests;
