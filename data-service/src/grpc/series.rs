//! `SeriesService`: look-up, export and numbers of series.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_metadata::lookup::{
    Census, CensusRequest, Extent, FoundSeries, KeyOrder, LookupQuery, Page, PageRequest, SERIES_BYTES,
    SeriesLookup, SeriesSelector, SeriesSource, TagSelector, TsuidBatches, decode_token, encode_token,
    fitting,
};
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::count_series_response::{MetricCardinality, TagKeyCardinality};
use oxtsdb_proto::data::v1::{
    self as pb, CardinalityOrder, CountSeriesRequest, CountSeriesResponse, ExportSeriesRequest,
    ExportSeriesResponse, LookupSeriesRequest, LookupSeriesResponse,
};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::{Admitted, Engine, Held, QueryError};
use tonic::{Request, Response, Status};

use super::query::field_error::no_such;
use super::query::query_status;
use super::results::{context_of, result_stream};

/// Series of a page if the request does not say.
const PAGE_SIZE: usize = 25;

/// Series of a page at most.
const MAX_PAGE_SIZE: usize = 3000;

/// Metrics and tag keys of a response at most.
const MAX_COUNTED: usize = 10_000;

/// Bytes of names and TSUIDs of a message.
const MESSAGE_BYTES: usize = 1 << 20;

/// `SeriesService.LookupSeries`.
pub(super) async fn lookup_series(
    engine: &Engine,
    request: Request<LookupSeriesRequest>,
) -> Result<Response<LookupSeriesResponse>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let query = lookup_query(request.selector, request.source)?;
    let size = match count("page_size", request.page_size, MAX_PAGE_SIZE)? {
        0 => PAGE_SIZE,
        size => size,
    };
    let after = match request.page_token.as_str() {
        "" => Vec::new(),
        token => decode_token(&query, token).ok_or_else(|| {
            let rule = "is not from the page before, with the same selector and source";
            invalid_field("page_token", rule)
        })?,
    };
    let page = PageRequest {
        size,
        after,
        with_total: request.include_total,
    };
    let failed = |error: QueryError| failed(engine, &error);
    let admitted = SeriesLookup::admit(engine, &query, context).await;
    let (lookup, _admitted) = admitted.map_err(failed)?;
    let Page {
        series,
        next_after,
        total,
    } = lookup.page(&query, page).await.map_err(failed)?;
    Ok(Response::new(LookupSeriesResponse {
        series: series.into_iter().map(found_series).collect(),
        next_page_token: next_after.map_or_else(String::new, |after| encode_token(&query, &after)),
        total_series: total.map_or(0, |total| total.series),
        total_is_lower_bound: total.is_some_and(|total| total.is_lower_bound),
    }))
}

/// `SeriesService.ExportSeries`.
pub(super) fn export_series(
    engine: &Engine,
    request: Request<ExportSeriesRequest>,
) -> Result<Response<MessageStream<ExportSeriesResponse>>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let query = lookup_query(request.selector, request.source)?;
    let engine = engine.clone();
    let opened = async move {
        let failed = |error: QueryError| failed(&engine, &error);
        let admitted = SeriesLookup::admit(&engine, &query, context).await;
        let (lookup, admitted) = admitted.map_err(failed)?;
        let after = &request.start_after_tsuid;
        let batches = lookup.batches(&query, after, Extent::All).await.map_err(failed)?;
        Ok::<_, Status>(messages(&engine, lookup, batches, admitted))
    };
    Ok(Response::new(stream::once(opened).try_flatten().boxed()))
}

/// The messages of an export. A batch's memory is held until its last message is encoded.
fn messages(
    engine: &Engine,
    lookup: SeriesLookup,
    batches: TsuidBatches,
    admitted: Admitted,
) -> MessageStream<ExportSeriesResponse> {
    let named = stream::try_unfold((lookup, batches), |(lookup, mut batches)| async move {
        let Some(tsuids) = batches.next().await? else {
            return Ok(None);
        };
        let held = lookup
            .context()
            .budget()
            .hold(tsuids.len() as u64 * SERIES_BYTES)?;
        let series = lookup.context().run(lookup.named(tsuids)).await?;
        Ok::<_, QueryError>(Some(((series, held), (lookup, batches))))
    });
    let failed_at = engine.clone();
    let messages = named.flat_map(move |batch| match batch {
        Ok((series, held)) => stream::iter(Messages { series, _held: held }).map(Ok).boxed(),
        Err(error) => stream::iter([Err(failed(&failed_at, &error))]).boxed(),
    });
    result_stream(messages, engine, Some(admitted))
}

/// The messages of a batch, each of about [`MESSAGE_BYTES`].
struct Messages {
    series: Vec<FoundSeries>,
    _held: Held,
}

impl Iterator for Messages {
    type Item = ExportSeriesResponse;

    fn next(&mut self) -> Option<ExportSeriesResponse> {
        let count = fitting(&self.series, MESSAGE_BYTES);
        let series: Vec<_> = self.series.drain(..count).map(found_series).collect();
        (!series.is_empty()).then_some(ExportSeriesResponse { series })
    }
}

/// `SeriesService.CountSeries`.
pub(super) async fn count_series(
    engine: &Engine,
    request: Request<CountSeriesRequest>,
) -> Result<Response<CountSeriesResponse>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let query = lookup_query(request.selector, request.source)?;
    let order = match CardinalityOrder::try_from(request.order) {
        Ok(CardinalityOrder::Unspecified | CardinalityOrder::ByValues) => KeyOrder::Values,
        Ok(CardinalityOrder::BySeries) => KeyOrder::Series,
        Err(_) => return Err(no_such("order", request.order)),
    };
    let numbers = CensusRequest {
        metrics: count("max_metrics", request.max_metrics, MAX_COUNTED)?,
        tag_keys: count("max_tag_keys", request.max_tag_keys, MAX_COUNTED)?,
        order,
    };
    let failed = |error: QueryError| failed(engine, &error);
    let admitted = SeriesLookup::admit(engine, &query, context).await;
    let (lookup, _admitted) = admitted.map_err(failed)?;
    let census = lookup.census(&query, numbers).await.map_err(failed)?;
    Ok(Response::new(census_message(census)))
}

fn census_message(census: Census) -> CountSeriesResponse {
    let metrics = census.metrics.into_iter().map(|metric| MetricCardinality {
        uid: metric.uid.as_bytes().to_vec().into(),
        name: metric.name.unwrap_or_default(),
        series: metric.series,
    });
    let tag_keys = census.tag_keys.into_iter().map(|key| TagKeyCardinality {
        uid: key.uid.as_bytes().to_vec().into(),
        name: key.name.unwrap_or_default(),
        series: key.series,
        values: key.values,
    });
    CountSeriesResponse {
        series: census.series,
        metric_count: census.metric_count,
        metrics: metrics.collect(),
        tag_key_count: census.tag_key_count,
        tag_keys: tag_keys.collect(),
    }
}

/// A number of items; those above `most` count as `most`.
pub(super) fn count(field: &str, number: i32, most: usize) -> Result<usize, Status> {
    match usize::try_from(number) {
        Ok(number) => Ok(number.min(most)),
        Err(_) => Err(invalid_field(
            field,
            format!("is {number}, at least 0 is expected"),
        )),
    }
}

fn lookup_query(selector: Option<pb::SeriesSelector>, source: i32) -> Result<LookupQuery, Status> {
    let source = match pb::SeriesSource::try_from(source) {
        Ok(pb::SeriesSource::Unspecified | pb::SeriesSource::MetaTable) => SeriesSource::MetaTable,
        Ok(pb::SeriesSource::DataTable) => SeriesSource::DataTable,
        Err(_) => return Err(no_such("source", source)),
    };
    let pb::SeriesSelector { metric, tags } = selector.unwrap_or_default();
    let given = |name: String| Some(name).filter(|name| !name.is_empty());
    let mut conditions = Vec::with_capacity(tags.len());
    for (index, tag) in tags.into_iter().enumerate() {
        if let Some(empty) = tag.values.iter().position(String::is_empty) {
            let field = format!("selector.tags[{index}].values[{empty}]");
            return Err(invalid_field(&field, "is empty"));
        }
        conditions.push(TagSelector {
            key: given(tag.key),
            values: tag.values,
        });
    }
    let selector = SeriesSelector {
        metric: given(metric),
        tags: conditions,
    };
    Ok(LookupQuery { selector, source })
}

fn found_series(series: FoundSeries) -> pb::FoundSeries {
    let tag = |(key, value): &(_, _)| Tag {
        key: ToString::to_string(key),
        value: ToString::to_string(value),
    };
    pb::FoundSeries {
        tsuid: Vec::from(series.tsuid).into(),
        name: series.names.map(|names| SeriesName {
            metric: names.metric.to_string(),
            tags: names.tags.iter().map(tag).collect(),
        }),
    }
}

fn failed(engine: &Engine, error: &QueryError) -> Status {
    query_status(error, "selector.", &engine.storage().table.to_string())
}

#[cfg(test)]
mod tests;
