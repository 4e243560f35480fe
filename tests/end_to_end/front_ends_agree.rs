//! The same points through each front end give the same results.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::{
    AggregateFunction, Downsample, QueryRequest, Rate, SubQuery, TagFilter, downsample, sub_query, tag_filter,
};
use oxtsdb_tests::read_back::{self, Group, range};
use oxtsdb_tests::sample::{ColumnsBuilder, Number, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::{columns_request, write_request};
use oxtsdb_tests::{Tsdb, program_path, random, until};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, RngExt as _};
use serde_json::Value;

const T: i64 = 1_500_000_000_000;
const SPAN: i64 = 3 * 3_600_000;

/// The front ends and the forms of writing, each with a metric of its own.
const FRONT_ENDS: [&str; 6] = [
    "front_end.write",
    "front_end.columns",
    "front_end.stream",
    "front_end.http",
    "front_end.telnet",
    "front_end.import",
];

/// Points of several series over some hours, in no order; no instant of a series twice.
fn random_points(random: &mut StdRng) -> Vec<Sample> {
    let mut points = BTreeMap::new();
    for _ in 0..1500 {
        let host = format!("host{}", random.random_range(0..4));
        let cpu = format!("cpu{}", random.random_range(0..3));
        let mut timestamp_ms = T + random.random_range(0..SPAN);
        if random.random_bool(0.6) {
            timestamp_ms -= timestamp_ms % 1000;
        }
        let sample = Sample::new(
            "any",
            &[("host", &host), ("cpu", &cpu)],
            timestamp_ms,
            random_value(random),
        );
        points.insert((host, cpu, timestamp_ms), sample);
    }
    let mut points: Vec<Sample> = points.into_values().collect();
    points.shuffle(random);
    points
}

/// Of all widths and both types.
fn random_value(random: &mut StdRng) -> Number {
    match random.random_range(0..7) {
        0 => Number::Int(random.random_range(-128..128)),
        1 => Number::Int(random.random_range(-32768..32768)),
        2 => Number::Int(i64::from(random.next_u32() as i32)),
        3 => Number::Int(random.random_range(-(1 << 50)..1 << 50)),
        4 => Number::Double(f64::from(random.random_range(-1000..1000_i32)) / 4.0),
        5 => Number::Double(random.random_range(-1e6..1e6)),
        _ => Number::Double(random.random_range(-1.0..1.0) * 1e-9),
    }
}

async fn send(tsdb: &Tsdb, front_end: &str, samples: &[Sample]) -> anyhow::Result<()> {
    let count = samples.len() as u64;
    match front_end {
        "front_end.write" => {
            let response = tsdb.data().write(write_request(samples)).await?.into_inner();
            ensure!(response.written == count, "{response:?}");
        }
        "front_end.columns" => {
            let request = columns_request(ColumnsBuilder::default().columns(samples));
            let response = tsdb.data().write_columns(request).await?.into_inner();
            ensure!(response.written == count, "{response:?}");
        }
        "front_end.stream" => {
            let mut stream = WriteStream::open(&mut tsdb.data()).await?;
            for frame in samples.chunks(100) {
                stream.send(frame).await?;
            }
            ensure!(stream.all_written().await? == count);
            stream.close().await?;
        }
        "front_end.http" => {
            for body in samples.chunks(100) {
                let body: Vec<Value> = body.iter().map(Sample::to_json).collect();
                let response = tsdb.http().post("/api/put", &Value::from(body)).await?;
                ensure!(response.status == 204, "{response:?}");
            }
        }
        "front_end.telnet" => {
            let mut telnet = tsdb.telnet().await?;
            let lines: String = samples.iter().map(Sample::to_telnet_line).collect();
            telnet.send(lines.as_bytes()).await?;
            telnet.send(b"exit\n").await?;
            let replies = telnet.rest().await?;
            ensure!(replies.is_empty(), "{replies}");
        }
        "front_end.import" => {
            let file = tsdb.folder().join("points.txt");
            let lines: Vec<String> = samples.iter().map(Sample::to_import_line).collect();
            std::fs::write(&file, lines.join("\n") + "\n")?;
            let output = tokio::process::Command::new(program_path("tsdb")?)
                .arg("import")
                .arg(format!("--target=http://{}", tsdb.data_address()))
                .arg(&file)
                .stdin(Stdio::null())
                .output()
                .await?;
            ensure!(output.status.success(), "{output:?}");
        }
        other => anyhow::bail!("unknown front end `{other}`"),
    }
    Ok(())
}

/// The expected points of each series: those that were sent.
fn expected(samples: &[Sample]) -> BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>> {
    let mut series: BTreeMap<_, Vec<(i64, Number)>> = BTreeMap::new();
    for sample in samples {
        let tags = sample.tags.iter().cloned().collect();
        series
            .entry(tags)
            .or_default()
            .push((sample.timestamp_ms, sample.value));
    }
    for points in series.values_mut() {
        points.sort_by_key(|(instant, _)| *instant);
    }
    series
}

fn check_series(stored: Option<&Vec<(i64, Number)>>, sent: &[(i64, Number)]) -> anyhow::Result<()> {
    let stored = stored.context("the series is missing")?;
    ensure!(
        stored.len() == sent.len(),
        "{} of {} points",
        stored.len(),
        sent.len()
    );
    for (stored, sent) in stored.iter().zip(sent) {
        ensure!(stored == sent, "{sent:?} was sent, {stored:?} is read");
    }
    Ok(())
}

/// Queries of several kinds.
fn queries(metric: &str) -> Vec<SubQuery> {
    let by_host = |aggregator| {
        let mut query = read_back::sub_query(metric, aggregator);
        if let Some(sub_query::Source::Metric(source)) = &mut query.source {
            source.filters.push(TagFilter {
                key: "host".to_owned(),
                r#type: tag_filter::FilterType::Wildcard.into(),
                pattern: "*".to_owned(),
                group_by: true,
                ..TagFilter::default()
            });
        }
        query
    };
    let every_minute = |function: AggregateFunction| {
        Some(Downsample {
            interval: Some(downsample::Interval::Fixed(oxtsdb_tests::sample::seconds(60))),
            aggregator: Some(function.into()),
            ..Downsample::default()
        })
    };
    vec![
        read_back::sub_query(metric, AggregateFunction::Sum),
        by_host(AggregateFunction::Max),
        SubQuery {
            downsample: every_minute(AggregateFunction::Avg),
            ..by_host(AggregateFunction::Sum)
        },
        SubQuery {
            downsample: every_minute(AggregateFunction::Count),
            ..read_back::sub_query(metric, AggregateFunction::Avg)
        },
        SubQuery {
            rate: Some(Rate::default()),
            ..by_host(AggregateFunction::Min)
        },
    ]
}

/// Results over gRPC, without the metric, which differs by front end.
async fn results(tsdb: &Tsdb, metric: &str) -> anyhow::Result<Vec<Vec<Group>>> {
    let mut results = Vec::new();
    for query in queries(metric) {
        let request = QueryRequest {
            range: Some(range(T - 1000, T + SPAN)),
            queries: vec![query],
            ..QueryRequest::default()
        };
        let mut groups = read_back::query(&mut tsdb.data(), request).await?;
        ensure!(!groups.is_empty(), "no result for {metric}");
        for group in &mut groups {
            ensure!(group.metric == metric, "{group:?}");
            group.metric.clear();
            group.aggregate_tags.sort();
        }
        groups.sort_by(|a, b| a.tags.cmp(&b.tags));
        results.push(groups);
    }
    Ok(results)
}

/// Results over HTTP as text, so that every bit of a number counts.
async fn http_results(tsdb: &Tsdb, metric: &str) -> anyhow::Result<Vec<String>> {
    let mut results = Vec::new();
    for expression in [
        format!("none:{metric}"),
        format!("sum:1m-avg:{metric}%7Bhost=*%7D"),
        format!("max:rate:{metric}%7Bcpu=cpu1%7D"),
    ] {
        let (start, end) = (T / 1000 - 1, (T + SPAN) / 1000);
        let path = format!("/api/query?start={start}&end={end}&ms=true&m={expression}");
        let response = tsdb.http().get(&path).await?;
        ensure!(response.status == 200, "{path}: {response:?}");
        let mut groups: Vec<String> = response
            .json()?
            .as_array()
            .into_iter()
            .flatten()
            .map(|group| group.to_string().replace(metric, "METRIC"))
            .collect();
        ensure!(!groups.is_empty(), "{path}: no result");
        groups.sort();
        results.push(groups.join("\n"));
    }
    Ok(results)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_points_give_the_same_results() -> anyhow::Result<()> {
    let mut random = random::seeded("front_ends_agree")?;
    let tsdb = Tsdb::start().await?;
    let points = random_points(&mut random);
    let expected = expected(&points);

    for front_end in FRONT_ENDS {
        let samples: Vec<Sample> = points
            .iter()
            .map(|sample| sample.with_metric(front_end))
            .collect();
        send(&tsdb, front_end, &samples).await?;
        // Telnet does not acknowledge points.
        until(front_end, || async {
            let stored = read_back::series_of_or_none(&mut tsdb.data(), front_end).await?;
            let count: usize = stored.values().map(Vec::len).sum();
            ensure!(count >= points.len(), "{count} of {} points", points.len());
            for (tags, points) in &expected {
                check_series(stored.get(tags), points).with_context(|| format!("{front_end} {tags:?}"))?;
            }
            Ok(())
        })
        .await?;
    }

    let (first, others) = FRONT_ENDS.split_first().expect("there are front ends");
    let (grpc, http) = (results(&tsdb, first).await?, http_results(&tsdb, first).await?);
    for front_end in others {
        assert!(
            results(&tsdb, front_end).await? == grpc,
            "{front_end} and {first} differ over gRPC"
        );
        assert!(
            http_results(&tsdb, front_end).await? == http,
            "{front_end} and {first} differ over HTTP"
        );
    }
    Ok(())
}
