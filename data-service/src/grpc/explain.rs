//! `DataService.Explain`: returns the plan of each sub-query, with its access path and estimates.

use oxtsdb_proto::data::v1::query_plan::{
    AccessPath as AccessPathMessage, Accuracy, Condition, Estimate as EstimateMessage, Filter, KeyRange,
};
use oxtsdb_proto::data::v1::{ExplainRequest, ExplainResponse, QueryPlan};
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Certainty, Engine, Estimate, Figure, PathKind, Plan, TagTest, ValueTest};
use oxtsdb_row_store::TableName;
use oxtsdb_schema::TagvUid;
use prost::bytes::Bytes;
use rustc_hash::FxHashSet;
use tonic::{Request, Response, Status};

use super::query::{convert, query_status};
use super::results::context_of;

/// Most values of a filter that the response lists.
const SHOWN_VALUES: usize = 100;

/// Plans a query without running it.
pub(super) async fn explain(
    engine: &Engine,
    request: Request<ExplainRequest>,
) -> Result<Response<ExplainResponse>, Status> {
    let context = context_of(&request);
    let request = request.into_inner().query.unwrap_or_default();
    let query = convert::query(&request, now_ms())?;
    let explained = engine.explain(&query, context).await;
    let explained =
        explained.map_err(|error| query_status(&error, "queries.", &engine.storage().table.to_string()))?;
    let points = &engine.storage().table;
    let plans = explained
        .iter()
        .map(|(plan, estimate)| message(plan, estimate, points));
    Ok(Response::new(ExplainResponse {
        plans: plans.collect(),
    }))
}

fn message(plan: &Plan, estimate: &Estimate, points: &TableName) -> QueryPlan {
    let path = plan.access_path.description();
    let windows = plan.downsample.as_ref().map(|(windows, _)| windows);
    QueryPlan {
        metric: plan.metric.as_deref().unwrap_or_default().to_owned(),
        start_ms: plan.hours.start.millis(),
        stop_ms: plan.hours.stop_ms(),
        hours: plan.hours.count() as u64,
        access_path: access_path(path.kind).into(),
        reason: path.reason.to_string(),
        ranges: path
            .ranges
            .into_iter()
            .map(|(start, stop)| KeyRange {
                start_key: start.into(),
                stop_key: stop.into(),
            })
            .collect(),
        filters: plan.selection().tests().iter().map(filter).collect(),
        exact_tags: plan
            .selection()
            .tag_count()
            .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        group_by_tagk_uids: plan
            .group_by
            .iter()
            .map(|tagk| Bytes::copy_from_slice(tagk.as_bytes()))
            .collect(),
        first_interval_ms: windows.map(|windows| windows.from_ms),
        filled_intervals: windows.map_or(0, |windows| windows.filled_count()),
        series: estimate.series.map(figure),
        rows: estimate.rows.map(figure),
        bytes: estimate.bytes.map(figure),
        points: estimate.columns.map(|columns| figure(columns.points)),
        memory_points: estimate.columns.map(|columns| figure(columns.memory_points)),
        blocks: estimate.columns.map(|columns| figure(columns.blocks)),
        files: estimate.columns.map(|columns| figure(columns.files)),
        table: plan.read.table.as_ref().unwrap_or(points).to_string(),
        rollup_interval: plan
            .read
            .rollup
            .as_ref()
            .map(|rollup| rollup.interval.name().to_owned())
            .unwrap_or_default(),
    }
}

const fn access_path(kind: PathKind) -> AccessPathMessage {
    match kind {
        PathKind::SingleRows => AccessPathMessage::SingleRows,
        PathKind::SeriesSeek => AccessPathMessage::SeriesSeek,
        PathKind::SkipScan => AccessPathMessage::SkipScan,
        PathKind::FullScan => AccessPathMessage::FullScan,
        PathKind::Columns => AccessPathMessage::Columns,
    }
}

fn filter(test: &TagTest) -> Filter {
    let (kind, values) = match &test.test {
        ValueTest::Any => (Condition::HasKey, None),
        ValueTest::In(values) => (Condition::AnyOf, Some(values)),
        ValueTest::NotIn(values) => (Condition::NoneOf, Some(values)),
        ValueTest::Name(_) => (Condition::Name, None),
        ValueTest::NameIfPresent(_) => (Condition::NameIfPresent, None),
    };
    Filter {
        tagk_uid: Bytes::copy_from_slice(test.tagk.as_bytes()),
        condition: kind.into(),
        tagv_uids: values.map(shown).unwrap_or_default(),
        tagv_count: values.map_or(0, |values| values.len() as u64),
    }
}

/// The first values, ascending.
fn shown(values: &FxHashSet<TagvUid>) -> Vec<Bytes> {
    let mut values: Vec<&TagvUid> = values.iter().collect();
    values.sort_unstable();
    let values = values.into_iter().take(SHOWN_VALUES);
    values
        .map(|value| Bytes::copy_from_slice(value.as_bytes()))
        .collect()
}

fn figure(figure: Figure) -> EstimateMessage {
    let accuracy = match figure.certainty {
        Certainty::Exact => Accuracy::Exact,
        Certainty::AtMost => Accuracy::UpperBound,
        Certainty::About => Accuracy::Extrapolated,
    };
    EstimateMessage {
        value: figure.value,
        accuracy: accuracy.into(),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::common::v1::{TimeRange, time_range};
    use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source};
    use oxtsdb_proto::data::v1::tag_filter::FilterType;
    use oxtsdb_proto::data::v1::{AggregateFunction, QueryRequest, SubQuery, TagFilter};
    use oxtsdb_schema::{Timestamp, Value};
    use tonic::Code;

    use super::*;
    use oxtsdb_ingest::NewPoint;
    use oxtsdb_test_stack::TestStack;

    /// 2013-01-01 00:00:00 UTC, an exact hour.
    const T: u32 = 1_356_998_400;

    fn sub_query(metric: &str, kind: FilterType, pattern: &str) -> SubQuery {
        let filter = TagFilter {
            key: "host".to_owned(),
            r#type: kind.into(),
            pattern: pattern.to_owned(),
            group_by: true,
            ..TagFilter::default()
        };
        SubQuery {
            source: Some(Source::Metric(MetricSource {
                metric: metric.to_owned(),
                filters: vec![filter],
                explicit_tags: false,
            })),
            aggregator: Some(AggregateFunction::Sum.into()),
            ..SubQuery::default()
        }
    }

    fn request(hours: i64, queries: Vec<SubQuery>) -> ExplainRequest {
        let start_ms = i64::from(T) * 1000;
        ExplainRequest {
            query: Some(QueryRequest {
                range: Some(TimeRange {
                    start: Some(time_range::Start::StartMs(start_ms)),
                    end: Some(time_range::End::EndMs(start_ms + hours * 3_600_000 - 1000)),
                }),
                queries,
                ..QueryRequest::default()
            }),
        }
    }

    #[tokio::test]
    async fn plans_name_access_path_and_estimate() {
        let stack = TestStack::start().await;
        for host in 0..40 {
            let host = format!("web{host:02}");
            let point = NewPoint {
                metric: "m",
                tags: &[("host", &host)],
                timestamp: Timestamp::from_seconds(T),
                value: Value::Int(1),
            };
            stack.service.writer.write(&[point], None).await.unwrap();
        }
        let mut client = stack.client();
        let sub_queries = vec![
            sub_query("m", FilterType::Regexp, "^web0[12]$"),
            sub_query("m", FilterType::Wildcard, "web1*"),
            sub_query("m", FilterType::Wildcard, "*"),
        ];
        let response = client.explain(request(2, sub_queries.clone())).await.unwrap();
        let plans = response.into_inner().plans;
        let explained: Vec<_> = plans
            .iter()
            .map(|plan| {
                let rows = plan.rows.unwrap();
                (
                    plan.access_path(),
                    plan.reason.as_str(),
                    rows.value,
                    rows.accuracy(),
                )
            })
            .collect();
        assert_eq!(
            explained,
            [
                (
                    AccessPathMessage::SingleRows,
                    "2 of 40 series match according to the index",
                    4,
                    Accuracy::UpperBound
                ),
                (
                    AccessPathMessage::SkipScan,
                    "10 of 40 series match according to the index",
                    40,
                    Accuracy::Exact
                ),
                (
                    AccessPathMessage::FullScan,
                    "nearly all series match",
                    40,
                    Accuracy::Exact
                ),
            ]
        );
        assert_eq!((plans[0].hours, plans[0].start_ms), (2, i64::from(T) * 1000));
        assert_eq!(
            plans[1].ranges[0].start_key,
            [&[0, 0, 1], T.to_be_bytes().as_slice()].concat()
        );
        assert_eq!(plans[1].filters[0].condition(), Condition::Name);
        assert_eq!(plans[2].filters[0].condition(), Condition::HasKey);
        assert_eq!(plans[0].group_by_tagk_uids, [vec![0, 0, 1]]);

        let long = client.explain(request(20_000, sub_queries)).await.unwrap();
        assert_eq!(
            long.into_inner().plans[0].access_path(),
            AccessPathMessage::SeriesSeek
        );
        let unknown = request(1, vec![sub_query("nope", FilterType::Wildcard, "*")]);
        assert_eq!(client.explain(unknown).await.unwrap_err().code(), Code::NotFound);
    }
}
