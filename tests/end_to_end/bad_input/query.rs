//! Invalid queries.

use anyhow::Context as _;
use oxtsdb_proto::common::v1::ErrorReason::{self, *};
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source, TsuidSource};
use oxtsdb_proto::data::v1::tag_filter::FilterType;
use oxtsdb_proto::data::v1::{
    AggregateFunction, Aggregator, Downsample, QueryRequest, SubQuery, TagFilter, aggregator, downsample,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::read_back::{always, query_error, range, sub_query};
use oxtsdb_tests::sample::Sample;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::points::*;
use oxtsdb_tests::write_requests::write_request;

/// A query that is rejected.
struct BadQuery {
    what: &'static str,
    request: QueryRequest,
    code: Code,
    reason: ErrorReason,
    says: &'static [&'static str],
}

fn bad_queries() -> Vec<BadQuery> {
    let sum = || sub_query(GOOD, AggregateFunction::Sum);
    let ask = |query: SubQuery| QueryRequest {
        range: Some(always()),
        queries: vec![query],
        ..QueryRequest::default()
    };
    let filter = |key: &str, value: &str| TagFilter {
        key: key.to_owned(),
        r#type: FilterType::LiteralOr.into(),
        values: vec![value.to_owned()],
        ..TagFilter::default()
    };
    let filtered = |filter: TagFilter| {
        let mut query = sum();
        if let Some(Source::Metric(MetricSource { filters, .. })) = &mut query.source {
            filters.push(filter);
        }
        ask(query)
    };
    let refusal = |what, request, code, reason, says| BadQuery {
        what,
        request,
        code,
        reason,
        says,
    };
    use Code::{InvalidArgument, NotFound};
    vec![
        refusal(
            "unknown metric",
            ask(sub_query("no.such.metric", AggregateFunction::Sum)),
            NotFound,
            NameNotFound,
            &["no.such.metric"],
        ),
        refusal(
            "unknown tag key",
            filtered(filter("nokey", "query")),
            NotFound,
            NameNotFound,
            &["nokey"],
        ),
        refusal(
            "unknown tag value",
            filtered(filter("path", "novalue")),
            NotFound,
            NameNotFound,
            &["novalue"],
        ),
        refusal(
            "end before start",
            QueryRequest {
                range: Some(range(2000, 1000)),
                ..ask(sum())
            },
            InvalidArgument,
            InvalidField,
            &["end"],
        ),
        refusal(
            "no range",
            QueryRequest {
                range: None,
                ..ask(sum())
            },
            InvalidArgument,
            InvalidField,
            &["range"],
        ),
        refusal(
            "no sub-queries",
            QueryRequest {
                queries: Vec::new(),
                ..ask(sum())
            },
            InvalidArgument,
            InvalidField,
            &["queries"],
        ),
        refusal(
            "no source",
            ask(SubQuery {
                source: None,
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["source"],
        ),
        refusal(
            "no aggregator",
            ask(sub_query(GOOD, AggregateFunction::Unspecified)),
            InvalidArgument,
            InvalidField,
            &["aggregator"],
        ),
        refusal(
            "an aggregator of the future",
            ask(SubQuery {
                aggregator: Some(Aggregator {
                    kind: Some(aggregator::Kind::Function(4711)),
                }),
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["aggregator", "4711"],
        ),
        refusal(
            "no interval",
            ask(SubQuery {
                downsample: Some(Downsample {
                    interval: None,
                    aggregator: Some(AggregateFunction::Avg.into()),
                    ..Downsample::default()
                }),
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["interval"],
        ),
        refusal(
            "downsampling with none",
            ask(SubQuery {
                downsample: Some(Downsample {
                    interval: Some(downsample::Interval::WholeRange(
                        oxtsdb_proto::data::v1::downsample::WholeRange {},
                    )),
                    aggregator: Some(AggregateFunction::None.into()),
                    ..Downsample::default()
                }),
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["function"],
        ),
        refusal(
            "a TSUID of a wrong length",
            ask(SubQuery {
                source: Some(Source::Tsuids(TsuidSource {
                    tsuids: vec![vec![0, 0, 1, 0].into()],
                    filters: Vec::new(),
                })),
                ..sum()
            }),
            InvalidArgument,
            InvalidUidWidth,
            &["tsuid"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn query_names_the_field_that_is_wrong() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let sample = Sample::int(GOOD, &[("path", "query")], T, 0);
    tsdb.data().write(write_request([&sample])).await?;
    for bad in bad_queries() {
        let status = query_error(&mut tsdb.data(), bad.request)
            .await
            .context(bad.what)?;
        assert_eq!(status.code(), bad.code, "{}: {status:?}", bad.what);
        assert_eq!(reason_of(&status), Some(bad.reason), "{}: {status:?}", bad.what);
        for part in bad.says {
            let message = status.message().to_ascii_lowercase();
            assert!(message.contains(part), "{}: {status:?}", bad.what);
        }
        if bad.reason == InvalidField {
            let violations = status
                .get_details_bad_request()
                .context(bad.what)?
                .field_violations;
            assert!(!violations.is_empty(), "{}: no field", bad.what);
        }
    }
    check_good(&tsdb, "query", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn http_rejects_queries_as_opentsdb_does() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = Sample::int(GOOD, &[("path", "query")], T, 0).to_json();
    tsdb.http().post("/api/put", &point).await?;
    let cases: &[(&str, &str)] = &[
        (
            "start=1&m=sum:no.such.metric",
            "No such name for 'metrics': 'no.such.metric'",
        ),
        (
            "start=1&m=sum:good.points%7Bnokey=x%7D",
            "No such name for 'tagk': 'nokey'",
        ),
        (
            "start=1&m=sum:good.points%7Bpath=novalue%7D",
            "No such name for 'tagv': 'novalue'",
        ),
        (
            "start=1&m=bogus:good.points",
            "No such aggregation function: bogus",
        ),
        ("start=1", "Missing sub queries"),
    ];
    for (query, message) in cases {
        let answer = tsdb.http().get(&format!("/api/query?{query}")).await?;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert_eq!(answer.error_message()?, *message, "{query}");
    }
    for query in [
        "start=2000&end=1000&m=sum:good.points",
        "start=nonsense&m=sum:good.points",
        "m=sum:good.points",
        "start=1&m=sum:1x-avg:good.points",
    ] {
        let answer = tsdb.http().get(&format!("/api/query?{query}")).await?;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(!answer.error_message()?.is_empty(), "{query}");
    }
    Ok(())
}
