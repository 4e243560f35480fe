//! `/api/query/last`: returns the last points of series.
//!
//! With `back_scan` the server reads the current hour and that many hours before it, for one series given by all
//! its tags. Without it the counters in table `tsdb-meta` say in which hour each series was written last; this
//! finds all series of a metric that have the given tags. Without counters the result is empty.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleLastDataPointQuery`, `LastPointQuery`, `TSUIDQuery`.

use std::collections::BTreeMap;

use oxtsdb_query::Budget;
use oxtsdb_query::Held;
use oxtsdb_query::Limit;
use oxtsdb_query::Limits;
use oxtsdb_query::QueryDescription;
use oxtsdb_query::Resource;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::language::{LanguageError, parse_series, parse_uids};
use oxtsdb_query::last::counters::{self, Written};
use oxtsdb_query::last::search::{LastPoint, LookBack, SeriesNames, find_last_points, names_of};
use oxtsdb_query::{Engine, Number, QueryContext, QueryError, RequestContext, Storage, check_tsuid};
use oxtsdb_query::{check_metrics, uids_of_series};
use oxtsdb_schema::{RowKeyLayout, Tsuid};
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::bounded::FirstOf;
use super::failure;
use crate::http::api_request::ApiRequest;
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::query::flag::Flag;
use crate::http::reply::Reply;

const HOUR_MS: i64 = 3_600_000;

/// The longest `back_scan`, in hours: a leap year. OpenTSDB has no limit.
const MAX_BACK_SCAN: i64 = 366 * 24;

/// Most sub-queries of a request, and most TSUIDs in all of them together.
const MAX_SERIES: usize = 10_000;

/// Limit of the counters that one request reads.
const COUNTED: Limits = Limits {
    series: Limit::from_setting("/api/query/last", 1_000_000),
    ..Limits::NONE
};

/// Estimated memory of a last point and of its names while the JSON is rendered.
const LAST_POINT_BYTES: u64 = 128;
const NAMES_BYTES: u64 = 256;

/// A parsed request.
#[derive(Debug, Default, PartialEq, Eq)]
struct LastRequest {
    targets: Vec<Target>,
    /// Whether the response has names.
    resolve: bool,
    /// Hours to look back; 0 or less uses the counters.
    back_scan: i64,
}

impl LastRequest {
    /// The entry in the list of running queries.
    fn description(&self) -> QueryDescription {
        let now_ms = now_ms();
        QueryDescription {
            sub_queries: self.targets.iter().map(Target::description).collect(),
            range_ms: (now_ms - self.back_scan.max(0) * HOUR_MS, now_ms),
        }
    }
}

/// The series of one sub-query.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Series {
        metric: String,
        tags: Vec<(String, String)>,
    },
    Tsuids(Vec<Vec<u8>>),
}

impl Target {
    fn description(&self) -> String {
        match self {
            Self::Series { metric, tags } => {
                let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("last:{metric}{{{}}}", tags.join(","))
            }
            Self::Tsuids(tsuids) => format!("last:({} TSUIDs)", tsuids.len()),
        }
    }
}

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        ..
    } = request;
    let mut targets = Vec::new();
    for text in parameters.all("timeseries") {
        let (metric, tags) = parse_series(text).map_err(|error| failure::language_error(&error))?;
        targets.push(Target::Series { metric, tags });
    }
    for text in parameters.all("tsuids") {
        targets.push(tsuids(text.split(','))?);
    }
    let back_scan = match parameters.get("back_scan") {
        None => 0,
        Some(text) => text
            .parse::<i32>()
            .map_err(|_| HttpError::bad_request("Unable to parse back_scan parameter"))?
            .into(),
    };
    let resolve = parameters.has("resolve");
    run(
        &parts.engine,
        context,
        LastRequest {
            targets,
            resolve,
            back_scan,
        },
    )
    .await
}

/// POST.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        context,
        mut body,
        ..
    } = request;
    let engine = &parts.engine;
    let request = parsed(&mut body, &engine.resources().compute, parse).await?;
    run(engine, context, request).await
}

/// Parses the body of a POST.
fn parse(content: &[u8]) -> Result<LastRequest, HttpError> {
    if content.is_empty() {
        return Err(HttpError::missing_content());
    }
    let body: Body =
        serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
    let queries = body.queries.unwrap_or_default();
    check_series(queries.count)?;
    let mut targets = Vec::new();
    for query in queries.kept {
        match (query.tsuids.filter(|tsuids| !tsuids.is_empty()), query.metric) {
            (Some(texts), _) => targets.push(tsuids(texts.iter().map(String::as_str))?),
            (None, Some(metric)) if !metric.is_empty() => targets.push(Target::Series {
                metric,
                tags: query.tags.unwrap_or_default().into_iter().collect(),
            }),
            (None, _) => return Err(bad_request(LanguageError::NoMetric)),
        }
    }
    Ok(LastRequest {
        targets,
        resolve: body.resolve_names.0,
        back_scan: body.back_scan.into(),
    })
}

/// The body of a POST. Unlike other requests it rejects unknown fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    queries: Option<FirstOf<JsonQuery, MAX_SERIES>>,
    #[serde(default)]
    resolve_names: Flag,
    #[serde(default)]
    back_scan: i32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonQuery {
    metric: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    tsuids: Option<Vec<String>>,
}

fn tsuids<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Target, HttpError> {
    let tsuids: Result<_, _> = texts.map(parse_uids).collect();
    Ok(Target::Tsuids(tsuids.map_err(bad_request)?))
}

fn check_series(series: usize) -> Result<(), HttpError> {
    if series <= MAX_SERIES {
        return Ok(());
    }
    Err(HttpError::bad_request(format!(
        "query has {series} series, at most {MAX_SERIES} are allowed"
    )))
}

async fn run(engine: &Engine, context: RequestContext, request: LastRequest) -> Result<Reply, HttpError> {
    if request.targets.is_empty() {
        return Err(HttpError::bad_request("Missing sub queries"));
    }
    if request.back_scan > MAX_BACK_SCAN {
        return Err(HttpError::bad_request(format!(
            "Backscan is {} hours, at most {MAX_BACK_SCAN} are allowed",
            request.back_scan
        )));
    }
    let size = |target: &Target| match target {
        Target::Series { .. } => 1,
        Target::Tsuids(tsuids) => tsuids.len(),
    };
    let series: usize = request.targets.iter().map(size).sum();
    check_series(series)?;
    let admitted = engine.admit(context, request.description(), None).await?;
    let context = admitted.context().clone();
    let searched = async {
        let mut results = Found {
            points: Vec::new(),
            held: context.budget().hold(0)?,
        };
        let (searches, _held) = searches(engine.storage(), &context, &request).await?;
        results.add(engine, &context, searches).await?;
        if !request.resolve {
            return Ok((results, Vec::new()));
        }
        results.held.grow(results.points.len() as u64 * NAMES_BYTES)?;
        let tsuids: Vec<Tsuid> = results.points.iter().map(|point| point.tsuid.clone()).collect();
        let names = names_of(engine.storage(), &tsuids, &context).await?;
        Ok::<_, HttpError>((results, names))
    };
    let (results, names) = context.run(searched).await?;
    let render = move || {
        let Found { points, held } = results;
        let body = body(&points, &names, held.budget());
        drop(held);
        body
    };
    let rendered = context.compute(&engine.resources().compute).run(render).await;
    let body = rendered.map_err(QueryError::from).flatten()?;
    Ok(Reply::json(body))
}

/// The last points found so far, and their memory.
#[derive(Debug)]
struct Found {
    points: Vec<LastPoint>,
    held: Held,
}

impl Found {
    /// Finds the last points of series, each in a range of its own.
    async fn add(
        &mut self,
        engine: &Engine,
        context: &QueryContext,
        searches: Vec<(Tsuid, LookBack)>,
    ) -> Result<(), QueryError> {
        let (storage, compute) = (engine.storage(), &engine.resources().compute);
        let points = find_last_points(storage, searches, context, compute).await?;
        let count = self.points.len() + points.len();
        COUNTED.check(Resource::Series, count as u64)?;
        self.held.grow(points.len() as u64 * LAST_POINT_BYTES)?;
        self.points.extend(points);
        Ok(())
    }
}

/// The series of all targets, in their order, each with the range that is searched; and their memory.
async fn searches(
    storage: &Storage,
    context: &QueryContext,
    request: &LastRequest,
) -> Result<(Vec<(Tsuid, LookBack)>, Held), HttpError> {
    let looks_back = request.back_scan > 0;
    let now_ms = now_ms();
    let look_back = LookBack {
        from_ms: (now_ms - now_ms.rem_euclid(HOUR_MS) - request.back_scan * HOUR_MS).max(0),
        now_ms,
    };
    let mut held = context.budget().hold(0)?;
    let mut searches = Vec::with_capacity(request.targets.len());
    // By metric: the targets whose series are found by counters, as their places and their tags.
    let mut listed: FxHashMap<_, (Vec<usize>, Vec<_>)> = FxHashMap::default();
    for (place, target) in request.targets.iter().enumerate() {
        let tsuids = match target {
            Target::Tsuids(tsuids) => series_of(tsuids, &storage.layout)?,
            Target::Series { tags, .. } if looks_back && tags.is_empty() => {
                return Err(bad_request("Tags cannot be null or empty when getting a TSUID"));
            }
            Target::Series { metric, tags } => {
                let tags: Vec<_> = tags
                    .iter()
                    .map(|(tagk, tagv)| (tagk.as_str(), tagv.as_str()))
                    .collect();
                let uids = uids_of_series(metric, &tags, &*storage.directory, context.deadline());
                let (metric, mut tags) = uids.await?;
                if looks_back {
                    vec![Tsuid::new(metric, &mut tags).map_err(bad_request)?]
                } else {
                    let (places, lists) = listed.entry(metric).or_default();
                    places.push(place);
                    lists.push(tags);
                    searches.push(Vec::new());
                    continue;
                }
            }
        };
        check_metrics(
            &tsuids,
            &storage.layout.widths,
            &*storage.directory,
            context.deadline(),
        )
        .await?;
        searches.push(if looks_back {
            tsuids.into_iter().map(|tsuid| (tsuid, look_back)).collect()
        } else {
            in_their_hours(counters::for_series(storage, &tsuids).await?)
        });
    }
    for (metric, (places, tags)) in listed {
        let written = counters::for_metric(storage, metric, tags, COUNTED, &mut held).await?;
        for (place, written) in places.into_iter().zip(written) {
            searches[place] = in_their_hours(written);
        }
    }
    Ok((searches.into_iter().flatten().collect(), held))
}

/// Searches in the hours in which series were written last.
fn in_their_hours(written: Vec<Written>) -> Vec<(Tsuid, LookBack)> {
    let search = |written: Written| (written.tsuid, LookBack::hour_of(written.at_ms));
    written.into_iter().map(search).collect()
}

/// Checks TSUIDs. Bytes after the first tag that are no tags match no series.
fn series_of(tsuids: &[Vec<u8>], layout: &RowKeyLayout) -> Result<Vec<Tsuid>, HttpError> {
    let least = layout.widths.metric.bytes() + layout.widths.tag_bytes();
    if tsuids.iter().any(|tsuid| tsuid.len() < least) {
        let rule = "TSUID must not be null and must have a metric and at least one tag pair";
        return Err(bad_request(rule));
    }
    Ok(tsuids
        .iter()
        .filter_map(|tsuid| check_tsuid(tsuid, layout).ok())
        .collect())
}

/// `[{["metric":"m",]"timestamp":…,"value":"2.5",["tags":{…},]"tsuid":"…"}]`
fn body(points: &[LastPoint], names: &[SeriesNames], budget: &Budget) -> Result<ReplyBody, QueryError> {
    let mut body = BodyWriter::new();
    body.hold_of(budget)?;
    body.out().push(b'[');
    for (index, point) in points.iter().enumerate() {
        body.roll()?;
        let out = body.out();
        if index > 0 {
            out.push(b',');
        }
        let names = names.get(index);
        out.push(b'{');
        if let Some(names) = names {
            out.extend_from_slice(b"\"metric\":");
            json::write_string(out, &names.metric);
            out.push(b',');
        }
        out.extend_from_slice(b"\"timestamp\":");
        json::write_integer(out, point.time_ms);
        out.extend_from_slice(b",\"value\":");
        json::write_string(out, &text(point.value));
        if let Some(names) = names {
            out.extend_from_slice(b",\"tags\":");
            json::write_map(out, names.tags.iter().map(|(key, value)| (&**key, &**value)));
        }
        out.extend_from_slice(b",\"tsuid\":");
        json::write_string(out, &point.tsuid.to_string());
        out.push(b'}');
    }
    body.out().push(b']');
    body.finish()
}

fn text(value: Number) -> String {
    match value {
        Number::Int(int) => int.to_string(),
        Number::Double(double) => oxtsdb_schema::java::double_to_string(double),
    }
}

fn bad_request(error: impl std::fmt::Display) -> HttpError {
    let message = error.to_string();
    HttpError::bad_request(message.clone()).with_details(message)
}

#[cfg(test)]
mod tests;
