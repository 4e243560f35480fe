//! `DataService.QueryLast`.

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError, SeriesName, Tag, series_key};
use oxtsdb_proto::data::v1::query_last_request::{Target, target};
use oxtsdb_proto::data::v1::query_last_response::{LastPoint as LastPointMessage, TargetError, last_point};
use oxtsdb_proto::data::v1::{QueryLastRequest, QueryLastResponse};
use oxtsdb_proto::error::{invalid_field, item_error, status};
use oxtsdb_schema::Tsuid;
use tonic::{Code, Request, Response, Status};

use super::query::convert::{metric_source, millis};
use super::query::{of_query, place, qualifier_of};
use super::results::context_of;
use super::status::kind_name;
use oxtsdb_query::Limits;
use oxtsdb_query::Resource;
use oxtsdb_query::context::resource::Limit;
use oxtsdb_query::context::running::QueryDescription;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::last::{LastPoint, LookBack, names_of, of_metric, of_series};
use oxtsdb_query::names::uids_of_series;
use oxtsdb_query::plan::metric_series::MetricSeries;
use oxtsdb_query::plan::tsuids::check_tsuid;
use oxtsdb_query::{Engine, Number, QueryContext, QueryError, Quirks, SeriesFilter, Storage};

const MAX_TARGETS: usize = 1000;
const HOUR_MS: i64 = 3_600_000;
const MAX_LOOK_BACK_MS: i64 = 366 * 24 * HOUR_MS;

/// Points in a response at most, which is one message.
const MAX_POINTS: u64 = 100_000;

const MOST_POINTS: Limit = Limit::of_setting("QueryLast", MAX_POINTS);

/// Memory of a point of the response, and of its names; estimates.
const LAST_POINT_BYTES: u64 = 128;
const NAMES_BYTES: u64 = 512;

/// Targets that are looked at at a time.
const TARGETS_AT_A_TIME: usize = 16;

/// What a target asks for.
enum Wanted<'a> {
    Name(&'a SeriesName),
    Tsuid(&'a [u8]),
    Metric { metric: String, filter: SeriesFilter },
}

impl Wanted<'_> {
    /// Its entry in the list of running queries.
    fn description(&self) -> String {
        match self {
            Self::Name(name) => format!("last:{}", name.metric),
            Self::Tsuid(_) => "last:(1 TSUID)".to_owned(),
            Self::Metric { metric, .. } => format!("last:{metric}"),
        }
    }
}

/// Answers with the last points of series.
pub(super) async fn query_last(
    engine: &Engine,
    request: Request<QueryLastRequest>,
) -> Result<Response<QueryLastResponse>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let look_back = look_back(&request)?;
    if request.targets.is_empty() || request.targets.len() > MAX_TARGETS {
        let rule = format!("has {} items, expected 1 to {MAX_TARGETS}", request.targets.len());
        return Err(invalid_field("targets", rule));
    }
    let mut wanted = Vec::with_capacity(request.targets.len());
    for (index, target) in request.targets.iter().enumerate() {
        wanted.push(self::wanted(&format!("targets[{index}]"), target)?);
    }
    let table = engine.storage().table.to_string();
    let description = QueryDescription {
        sub_queries: wanted.iter().map(Wanted::description).collect(),
        range_ms: (look_back.from_ms, look_back.now_ms),
    };
    let failed = |error: QueryError| refusal(&error, &table);
    let admitted = engine.admit(context, description, None).await.map_err(failed)?;
    let context = admitted.context();
    let answer = answer(
        engine.storage(),
        context,
        &wanted,
        look_back,
        request.resolve_names,
    );
    context.run(answer).await.map(Response::new).map_err(failed)
}

/// The error of the whole call.
fn refusal(error: &QueryError, table: &str) -> Status {
    match error {
        QueryError::OverBudget { resource, limit } if *limit == MOST_POINTS => {
            let message = format!(
                "response would have more than {MAX_POINTS} points; \
                 make several calls with fewer targets, or with more filters"
            );
            let metadata = [
                ("limit", limit.most.to_string()),
                ("resource", resource.to_string()),
            ];
            let metadata = metadata.each_ref().map(|(key, value)| (*key, value.as_str()));
            status(
                Code::ResourceExhausted,
                ErrorReason::QueryTooLarge,
                message,
                &metadata,
            )
        }
        error => of_query(error, "targets", table),
    }
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

fn wanted<'a>(field: &str, target: &'a Target) -> Result<Wanted<'a>, Status> {
    match &target.target {
        None => Err(invalid_field(field, "is empty, expected series or metric")),
        Some(target::Target::Metric(source)) => {
            let (metric, filter) = metric_source(&format!("{field}.metric"), source)?;
            Ok(Wanted::Metric { metric, filter })
        }
        Some(target::Target::Series(series)) => match &series.key {
            None => Err(invalid_field(
                &format!("{field}.series"),
                "is empty, expected name or tsuid",
            )),
            Some(series_key::Key::Name(name)) => Ok(Wanted::Name(name)),
            Some(series_key::Key::Tsuid(tsuid)) => Ok(Wanted::Tsuid(tsuid)),
        },
    }
}

async fn answer(
    storage: &Storage,
    context: &QueryContext,
    wanted: &[Wanted<'_>],
    look_back: LookBack,
    with_names: bool,
) -> Result<QueryLastResponse, QueryError> {
    // Collected and boxed, because the compiler cannot tell that a stream over the closure is Send.
    let searches: Vec<_> = wanted
        .iter()
        .enumerate()
        .map(|(index, wanted)| {
            async move { (index, points(storage, context, wanted, look_back).await) }.boxed()
        })
        .collect();
    let mut found = stream::iter(searches).buffered(TARGETS_AT_A_TIME);
    let table = storage.table.to_string();
    let limits = Limits {
        points: MOST_POINTS,
        ..Limits::NONE
    };
    let mut response = QueryLastResponse::default();
    let mut tsuids = Vec::new();
    let mut held = context.budget().hold(0)?;
    while let Some((index, result)) = found.next().await {
        let target = u32::try_from(index).unwrap_or(u32::MAX);
        match result {
            Ok(points) => {
                let count = response.points.len() + points.len();
                limits.check(Resource::Points, count as u64)?;
                held.grow(points.len() as u64 * LAST_POINT_BYTES)?;
                for point in points {
                    response.points.push(message(target, &point));
                    tsuids.push(point.tsuid);
                }
            }
            Err(error) => match of_target(&error, &table) {
                Some(item) => response.errors.push(TargetError {
                    target,
                    error: Some(item),
                }),
                None => return Err(error),
            },
        }
    }
    if with_names {
        held.grow(tsuids.len() as u64 * NAMES_BYTES)?;
        let names = names_of(storage, &tsuids, context).await?;
        for (point, names) in response.points.iter_mut().zip(names) {
            let tags = names.tags.iter();
            let tags = tags.map(|(key, value)| Tag {
                key: key.to_string(),
                value: value.to_string(),
            });
            point.name = Some(SeriesName {
                metric: names.metric.to_string(),
                tags: tags.collect(),
            });
        }
    }
    Ok(response)
}

/// The last points of a target.
async fn points(
    storage: &Storage,
    context: &QueryContext,
    wanted: &Wanted<'_>,
    look_back: LookBack,
) -> Result<Vec<LastPoint>, QueryError> {
    let tsuid = match wanted {
        Wanted::Metric { metric, filter } => {
            let series =
                MetricSeries::resolve(metric, filter, Quirks::NONE, storage, context.deadline()).await?;
            return of_metric(storage, &series, look_back, context).await;
        }
        Wanted::Name(name) => tsuid_of(storage, context, name).await?,
        Wanted::Tsuid(bytes) => check_tsuid(bytes, &storage.layout)?,
    };
    Ok(of_series(storage, &tsuid, look_back).await?.into_iter().collect())
}

async fn tsuid_of(storage: &Storage, context: &QueryContext, name: &SeriesName) -> Result<Tsuid, QueryError> {
    let tags: Vec<_> = name
        .tags
        .iter()
        .map(|tag| (tag.key.as_str(), tag.value.as_str()))
        .collect();
    let uids = uids_of_series(&name.metric, &tags, &*storage.directory, context.deadline());
    let (metric, mut tags) = uids.await?;
    Tsuid::new(metric, &mut tags).map_err(|error| QueryError::Tsuid {
        reason: error.to_string(),
    })
}

fn message(target: u32, point: &LastPoint) -> LastPointMessage {
    LastPointMessage {
        target,
        tsuid: point.tsuid.as_bytes().to_vec().into(),
        name: None,
        timestamp_ms: point.time_ms,
        value: Some(match point.value {
            Number::Int(int) => last_point::Value::IntValue(int),
            Number::Double(double) => last_point::Value::DoubleValue(double),
        }),
    }
}

/// The error of one target; `None` if the whole call fails.
fn of_target(error: &QueryError, table: &str) -> Option<ItemError> {
    let message = error.to_string();
    match error {
        QueryError::UnknownName { kind, name } => {
            let metadata = [("kind", kind_name(*kind)), ("name", name.as_str())];
            Some(item_error(
                Code::NotFound,
                ErrorReason::NameNotFound,
                message,
                &metadata,
            ))
        }
        QueryError::Tsuid { .. } | QueryError::TsuidMetrics { .. } => Some(item_error(
            Code::InvalidArgument,
            ErrorReason::InvalidUidWidth,
            message,
            &[],
        )),
        QueryError::Filter(_) => Some(item_error(
            Code::InvalidArgument,
            ErrorReason::InvalidField,
            message,
            &[],
        )),
        QueryError::Row { row_key, error } => {
            let metadata = place(table, row_key, qualifier_of(error));
            Some(item_error(
                Code::DataLoss,
                ErrorReason::CorruptCell,
                message,
                &metadata,
            ))
        }
        QueryError::RowKey { row_key, .. } => {
            let metadata = place(table, row_key, "");
            Some(item_error(
                Code::DataLoss,
                ErrorReason::CorruptCell,
                message,
                &metadata,
            ))
        }
        QueryError::EndBeforeStart { .. }
        | QueryError::UidWithoutName { .. }
        | QueryError::Cancelled
        | QueryError::OverBudget { .. }
        | QueryError::NotAdmitted(_)
        | QueryError::NoMemory(_)
        | QueryError::TimedOut { .. }
        | QueryError::Infinite { .. }
        | QueryError::Store(_)
        | QueryError::Names(_)
        | QueryError::DeadlineExceeded
        | QueryError::Internal { .. } => None,
    }
}

#[cfg(test)]
mod tests;
