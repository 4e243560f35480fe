//! Queries Q1 to Q4 over the workload.
//!
//! | | | points |
//! |---|---|---|
//! | Q1 | one host, raw | 360 |
//! | Q1x | the same, with all tags and `explicit_tags` | 360 |
//! | Q2 | all hosts, sum of 1 m averages | 60 |
//! | Q3 | largest 5 m maximum by dc | 5 × 12 |
//! | Q4 | 200 hosts, raw | 72,000 |
//! | R | all hosts for a day, sum of 1 m averages | 1,440 |

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_client::{DataClient, QueryFrame};
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source};
use oxtsdb_proto::data::v1::tag_filter::FilterType;
use oxtsdb_proto::data::v1::{AggregateFunction, Downsample, QueryRequest, SubQuery, TagFilter, downsample};

use crate::ingest::http::Connection;
use crate::workload::Shape;

/// Times of a query, and the number of its points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Half of the runs were faster.
    pub(crate) median: Duration,
    /// 99 of 100 runs were faster.
    pub(crate) p99: Duration,
    /// Points of the result.
    pub(crate) points: usize,
}

/// A query over the workload.
#[derive(Debug)]
pub(crate) struct Query {
    /// `Q1`, `Q1x`, `Q2` to `Q4`, or `R`.
    pub(crate) name: &'static str,
    expression: String,
    sub_query: SubQuery,
    /// Points of the result.
    pub(crate) expected: usize,
    /// Points that the query reads.
    pub(crate) read: usize,
    shape: Shape,
}

/// Q1 to Q4.
pub(crate) fn all(shape: Shape) -> Vec<Query> {
    let metric = "bench.metric01";
    let steps = shape.steps as usize;
    let hosts: Vec<String> = (0..shape.hosts.min(200))
        .map(|host| format!("host{host:05}"))
        .collect();
    let filter = |key: &str, kind: FilterType, values: &[String], group_by| TagFilter {
        key: key.to_owned(),
        r#type: kind as i32,
        pattern: if kind == FilterType::Wildcard {
            "*".to_owned()
        } else {
            String::new()
        },
        values: values.to_vec(),
        group_by,
    };
    // The tags of the first host.
    let tags = [("host", "host00000"), ("dc", "dc0"), ("rack", "rack00")];
    let sub_query = |filters: Vec<TagFilter>, aggregator: AggregateFunction, downsample| SubQuery {
        source: Some(Source::Metric(MetricSource {
            metric: metric.to_owned(),
            explicit_tags: filters.len() == tags.len(),
            filters,
        })),
        aggregator: Some(aggregator.into()),
        downsample,
        ..SubQuery::default()
    };
    let window = |length, function: AggregateFunction| {
        let interval = downsample::Interval::Fixed(seconds(length));
        Some(Downsample {
            interval: Some(interval),
            aggregator: Some(function.into()),
            ..Downsample::default()
        })
    };
    let minutes = (steps * 10).div_ceil(60);
    use AggregateFunction::{Avg, Max, Sum};
    let of_all = shape.hosts as usize * steps;
    let query = |name: &'static str, expression, sub_query, expected| Query {
        name,
        expression,
        sub_query,
        expected,
        read: match name {
            "Q2" | "Q3" => of_all,
            _ => expected,
        },
        shape,
    };
    vec![
        query(
            "Q1",
            format!("sum:{metric}{{host=host00000}}"),
            sub_query(
                vec![filter("host", FilterType::LiteralOr, &hosts[..1], true)],
                Sum,
                None,
            ),
            steps,
        ),
        query(
            "Q1x",
            format!(
                "sum:explicit_tags:{metric}{{{}}}",
                tags.map(|(tagk, tagv)| format!("{tagk}={tagv}")).join(",")
            ),
            sub_query(
                tags.map(|(tagk, tagv)| filter(tagk, FilterType::LiteralOr, &[tagv.to_owned()], true))
                    .to_vec(),
                Sum,
                None,
            ),
            steps,
        ),
        query(
            "Q2",
            format!("sum:1m-avg:{metric}"),
            sub_query(vec![], Sum, window(60, Avg)),
            minutes,
        ),
        query(
            "Q3",
            format!("max:5m-max:{metric}{{dc=*}}"),
            sub_query(
                vec![filter("dc", FilterType::Wildcard, &[], true)],
                Max,
                window(300, Max),
            ),
            minutes.div_ceil(5) * shape.hosts.min(5) as usize,
        ),
        query(
            "Q4",
            format!("sum:{metric}{{host={}}}", hosts.join("|")),
            sub_query(
                vec![filter("host", FilterType::LiteralOr, &hosts, true)],
                Sum,
                None,
            ),
            hosts.len() * steps,
        ),
    ]
}

/// Q2 over a long range of one metric.
pub(crate) fn range(shape: Shape) -> Query {
    let [_, downsampled, ..] = over_all(shape);
    Query {
        name: "R",
        ..downsampled
    }
}

/// Queries over all points of one metric with integers: raw, downsampled to windows shorter and longer than a block of
/// the store, and each series by itself.
pub(crate) fn over_all(shape: Shape) -> [Query; 4] {
    let metric = "bench.metric00";
    let steps = shape.steps as usize;
    let query = |name, part: &str, aggregator: AggregateFunction, window_s: Option<i64>, expected| Query {
        name,
        expression: format!("{part}:{metric}"),
        sub_query: SubQuery {
            source: Some(Source::Metric(MetricSource {
                metric: metric.to_owned(),
                ..MetricSource::default()
            })),
            aggregator: Some(aggregator.into()),
            downsample: window_s.map(|window_s| Downsample {
                interval: Some(downsample::Interval::Fixed(seconds(window_s))),
                aggregator: Some(AggregateFunction::Avg.into()),
                ..Downsample::default()
            }),
            ..SubQuery::default()
        },
        expected,
        read: shape.points(),
        shape,
    };
    [
        query("raw", "sum", AggregateFunction::Sum, None, steps),
        query(
            "minutes",
            "sum:1m-avg",
            AggregateFunction::Sum,
            Some(60),
            (steps * 10).div_ceil(60),
        ),
        query(
            "days",
            "sum:1d-avg",
            AggregateFunction::Sum,
            Some(86_400),
            (steps * 10).div_ceil(86_400),
        ),
        query("each", "none", AggregateFunction::None, None, shape.points()),
    ]
}

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

impl Query {
    /// Runs it over HTTP. Points are counted after the clock has stopped.
    pub(crate) async fn time_http(&self, server: SocketAddr, runs: usize) -> anyhow::Result<Timing> {
        let mut connection = Connection::open(server).await?;
        let expression = self
            .expression
            .replace('{', "%7B")
            .replace('}', "%7D")
            .replace('|', "%7C");
        let path = format!(
            "/api/query?start={}&end={}&m={expression}",
            self.shape.start_seconds,
            self.end_seconds()
        );
        let mut body = Vec::new();
        let mut times = Vec::new();
        for _ in 0..=runs {
            let started = Instant::now();
            let (status, response) = connection.get(&path).await?;
            times.push(started.elapsed());
            ensure!(
                status == 200,
                "{}: status {status}: {}",
                self.name,
                String::from_utf8_lossy(&response)
            );
            body = response;
        }
        let response: serde_json::Value = serde_json::from_slice(&body)?;
        let groups = response.as_array().context("the response is not an array")?;
        let points = groups
            .iter()
            .filter_map(|group| group["dps"].as_object())
            .map(|dps| dps.len())
            .sum();
        Ok(timing(times, points))
    }

    /// Runs it over gRPC, by `oxtsdb-client`.
    pub(crate) async fn time_grpc(&self, server: SocketAddr, runs: usize) -> anyhow::Result<Timing> {
        let client = client(server)?;
        let mut points = 0;
        let mut times = Vec::new();
        for _ in 0..=runs {
            let started = Instant::now();
            points = self.receive(&client, || ()).await?;
            times.push(started.elapsed());
        }
        Ok(timing(times, points))
    }

    /// Runs it once over gRPC and returns the number of points; calls `on_points` for each frame of them.
    pub(crate) async fn stream_grpc(
        &self,
        server: SocketAddr,
        on_points: impl FnMut(),
    ) -> anyhow::Result<usize> {
        self.receive(&client(server)?, on_points).await
    }

    async fn receive(&self, client: &DataClient, mut on_points: impl FnMut()) -> anyhow::Result<usize> {
        let request = QueryRequest {
            range: Some(TimeRange {
                start: Some(time_range::Start::StartMs(
                    i64::from(self.shape.start_seconds) * 1000,
                )),
                end: Some(time_range::End::EndMs(i64::from(self.end_seconds()) * 1000 + 1)),
            }),
            queries: vec![self.sub_query.clone()],
            ..QueryRequest::default()
        };
        let mut points = 0;
        let mut frames = client.query(request).await?;
        while let Some(frame) = frames.next().await? {
            if let QueryFrame::Points(frame) = frame {
                on_points();
                points += frame.timestamps.len();
            }
        }
        Ok(points)
    }

    /// In OpenTSDB's query language.
    pub(crate) fn expression(&self) -> &str {
        &self.expression
    }

    fn end_seconds(&self) -> u32 {
        self.shape.seconds(self.shape.steps as usize) - 1
    }
}

/// A client without a deadline: the large queries take minutes.
fn client(server: SocketAddr) -> anyhow::Result<DataClient> {
    Ok(DataClient::connect(&format!("http://{server}"))?.without_deadline())
}

/// The first run warms up and does not count.
fn timing(mut times: Vec<Duration>, points: usize) -> Timing {
    times.remove(0);
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    Timing {
        median: at(50),
        p99: at(99),
        points,
    }
}
