//! The same queries in OpenTSDB's language and in MetricsQL, and what both responses have in common.
//!
//! OpenTSDB's window begins at its timestamp, VictoriaMetrics' ends there, inclusive: the window of the minute at `t`
//! is VictoriaMetrics' window at `t + 50 s`, the instant of its last point.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::points::{self, METRICS};
use crate::answer::{Answer, escaped};
use crate::ingest::http::Connection;
use crate::workload::{START_SECONDS, STEP_SECONDS};

/// Steps of an hour.
const HOUR: u32 = 3600 / STEP_SECONDS;

/// Number of hosts with a name that begins with `host00`.
const THOUSAND: u32 = 1000;

/// A query in the words of both.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) name: &'static str,
    /// Path and query of OxTSDB's HTTP API.
    oxtsdb: String,
    /// The same for VictoriaMetrics.
    victoria_metrics: String,
    /// Points of the result.
    pub(crate) points: usize,
}

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    OpenTsdb,
    MetricsQl,
}

/// An answer and the median time of its responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) answer: Answer,
    pub(crate) median: Duration,
}

/// Series raw, one and 200, sums of 1 m averages of a thousand series and of all series of a metric, and their maxima of
/// 5 m by data centre, over the last hour; and sums over all hours.
pub(crate) fn measured(hosts: u32, steps: u32) -> Vec<Query> {
    // The range begins at a window of 5 m.
    let first = steps.saturating_sub(HOUR) / 30 * 30;
    let range = Range::new(first, steps);
    let metric = points::metric(1);
    let mut queries = vec![
        range.raw("one series, raw", &metric, &points::host(hosts / 2)),
        range.raw_of_some("200 series, raw", &metric, hosts),
    ];
    if hosts > THOUSAND {
        queries.push(range.sums("1 m sums, 1,000 series", &metric, "host", "host00"));
    }
    queries.push(range.sums("1 m sums, all series", &metric, "", ""));
    queries.push(range.maxima("5 m maxima by dc, all series", &metric, hosts));
    if steps > 2 * HOUR {
        queries.push(Range::new(0, steps).sums("1 m sums, all series, all hours", &metric, "", ""));
    }
    queries
}

/// Counts of all points, by metric and hour.
pub(crate) fn counts(steps: u32) -> Vec<Query> {
    let range = Range::new(0, steps);
    (0..METRICS)
        .map(|number| range.counts(&points::metric(number)))
        .collect()
}

/// Steps of points, in seconds since the epoch.
struct Range {
    start: u32,
    /// After the last point.
    end: u32,
}

impl Range {
    fn new(first: u32, end: u32) -> Self {
        Self {
            start: START_SECONDS + first * STEP_SECONDS,
            end: START_SECONDS + end * STEP_SECONDS,
        }
    }

    fn windows(&self, seconds: u32) -> u32 {
        (self.end - self.start).div_ceil(seconds)
    }

    fn oxtsdb(&self, expression: &str) -> String {
        let (start, end) = (self.start, self.end - 1);
        format!("/api/query?start={start}&end={end}&m={}", escaped(expression))
    }

    fn metrics_ql(&self, seconds: u32, expression: &str) -> String {
        let start = self.start + seconds - STEP_SECONDS;
        let end = start + (self.windows(seconds) - 1) * seconds;
        let path = "/prometheus/api/v1/query_range?nocache=1";
        let expression = escaped(expression);
        format!("{path}&start={start}&end={end}&step={seconds}&query={expression}")
    }

    fn raw(&self, name: &'static str, metric: &str, host: &str) -> Query {
        let selector = escaped(&format!(r#"{{__name__="{metric}",host="{host}"}}"#));
        let (start, end) = (self.start, self.end - 1);
        Query {
            name,
            oxtsdb: self.oxtsdb(&format!("sum:{metric}{{host={host}}}")),
            victoria_metrics: format!("/api/v1/export?start={start}&end={end}&match[]={selector}"),
            points: self.windows(STEP_SECONDS) as usize,
        }
    }

    /// The series of hosts with the numbers 100 to 299, each by itself.
    fn raw_of_some(&self, name: &'static str, metric: &str, hosts: u32) -> Query {
        let pattern = "host00[12].*";
        let matching_hosts = hosts.min(300).saturating_sub(100);
        Query {
            name,
            oxtsdb: self.oxtsdb(&format!("sum:{metric}{{host=regexp({pattern})}}")),
            victoria_metrics: self.metrics_ql(
                STEP_SECONDS,
                &format!(r#"{{__name__="{metric}",host=~"{pattern}"}}"#),
            ),
            points: (matching_hosts * self.windows(STEP_SECONDS)) as usize,
        }
    }

    fn maxima(&self, name: &'static str, metric: &str, hosts: u32) -> Query {
        let selector = format!(r#"{{__name__="{metric}"}}"#);
        Query {
            name,
            oxtsdb: self.oxtsdb(&format!("max:5m-max:{metric}{{dc=*}}")),
            victoria_metrics: self.metrics_ql(300, &format!("max(max_over_time({selector}[5m])) by (dc)")),
            points: (hosts.min(points::DATA_CENTRES) * self.windows(300)) as usize,
        }
    }

    fn sums(&self, name: &'static str, metric: &str, tag: &str, prefix: &str) -> Query {
        let (filter, matcher) = match tag {
            "" => (String::new(), String::new()),
            _ => (
                format!("{{}}{{{tag}=wildcard({prefix}*)}}"),
                format!(r#",{tag}=~"{prefix}.*""#),
            ),
        };
        let selector = format!(r#"{{__name__="{metric}"{matcher}}}"#);
        Query {
            name,
            oxtsdb: self.oxtsdb(&format!("sum:1m-avg:{metric}{filter}")),
            victoria_metrics: self.metrics_ql(60, &format!("sum(avg_over_time({selector}[1m]))")),
            points: self.windows(60) as usize,
        }
    }

    fn counts(&self, metric: &str) -> Query {
        let selector = format!(r#"{{__name__="{metric}"}}"#);
        Query {
            name: "counts",
            oxtsdb: self.oxtsdb(&format!("sum:1h-count:{metric}")),
            victoria_metrics: self.metrics_ql(3600, &format!("sum(count_over_time({selector}[1h]))")),
            points: self.windows(3600) as usize,
        }
    }
}

impl Query {
    /// Runs it so often, and once before that.
    pub(crate) async fn time(
        &self,
        server: SocketAddr,
        language: Language,
        runs: usize,
    ) -> anyhow::Result<Timed> {
        let path = match language {
            Language::OpenTsdb => &self.oxtsdb,
            Language::MetricsQl => &self.victoria_metrics,
        };
        let mut connection = Connection::open(server).await?;
        let mut times = Vec::new();
        let mut body = Vec::new();
        for _ in 0..=runs {
            let started = Instant::now();
            let (status, response) = connection.get(path).await?;
            times.push(started.elapsed());
            let text = || String::from_utf8_lossy(&response[..response.len().min(500)]);
            ensure!(status == 200, "{}: status {status}: {}", self.name, text());
            body = response;
        }
        times.remove(0);
        times.sort_unstable();
        let answer = Answer::from_response(&serde_json::from_slice(&body)?).with_context(|| path.clone())?;
        Ok(Timed {
            answer,
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_the_last_hour_in_whole_windows() {
        let queries = measured(2000, 1000);
        // Steps 630 to 999: 370 points, 61 whole minutes and one of four points, 12 windows of 5 m and one of ten points.
        let points: Vec<usize> = queries.iter().map(|query| query.points).collect();
        assert_eq!(points, [370, 200 * 370, 62, 62, 5 * 13, 167]);
        assert!(queries[2].oxtsdb.contains("start=1767231900&end=1767235599"));
        assert!(
            queries[2]
                .victoria_metrics
                .contains("start=1767231950&end=1767235610")
        );
        let few = measured(50, 20);
        assert_eq!((few.len(), few[1].points), (4, 0));
        assert_eq!(counts(361)[0].points, 2);
    }
}
