//! gRPC `Write`: points with their names, one call at a time on each connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use http::uri::PathAndQuery;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::{TimeSeries, WriteRequest, WriteResponse, time_series};
use prost::Message as _;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;

use super::raw_codec::RawCodec;
use crate::workload::{Batch, Order, Value, Workload};

/// Calls, ready to be sent.
#[derive(Debug)]
pub(crate) struct Calls(Vec<Vec<Bytes>>);

/// Encodes the workload, a batch in a call.
pub(crate) fn encode(workload: &Workload, order: Order) -> Calls {
    let batches = workload.all_batches(order);
    Calls(super::deal(batches.iter().map(|batch| call(workload, batch))))
}

fn call(workload: &Workload, batch: &Batch) -> Bytes {
    let mut series: Vec<TimeSeries> = Vec::new();
    let mut last = None;
    for (step, number) in batch.points() {
        let value = workload.value(step, number);
        let of = (number, matches!(value, Value::Int(_)));
        if last.replace(of) != Some(of) {
            series.push(TimeSeries {
                series: Some(time_series::Series::Name(name(workload, number))),
                ..TimeSeries::default()
            });
        }
        let Some(series) = series.last_mut() else { continue };
        series
            .timestamps
            .push(i64::from(workload.shape.seconds(step)) * 1000);
        match value {
            Value::Int(value) => series.int_values.push(value),
            Value::Double(value) => series.values.push(value),
        }
    }
    WriteRequest {
        series,
        options: Some(super::write_options()),
    }
    .encode_to_vec()
    .into()
}

fn name(workload: &Workload, number: usize) -> SeriesName {
    let series = &workload.series[number];
    let tags = series.tags.iter().map(|(key, value)| Tag {
        key: (*key).to_owned(),
        value: value.clone(),
    });
    SeriesName {
        metric: series.metric.clone(),
        tags: tags.collect(),
    }
}

/// Sends all calls; returns when all are acknowledged, with the longest time that one took.
pub(crate) async fn send(server: SocketAddr, calls: &Calls) -> anyhow::Result<Duration> {
    let mut connections = JoinSet::new();
    for calls in calls.0.clone() {
        connections.spawn(async move {
            let mut client = Grpc::new(super::channel(server).await?);
            let mut longest = Duration::ZERO;
            for call in calls {
                let started = Instant::now();
                client
                    .ready()
                    .await
                    .map_err(|error| anyhow!("not ready: {error}"))?;
                let path = PathAndQuery::from_static("/oxtsdb.data.v1.DataService/Write");
                let response = client
                    .unary(Request::new(call), path, RawCodec::<WriteResponse>::default())
                    .await?;
                longest = longest.max(started.elapsed());
                let response = response.into_inner();
                ensure!(response.failed == 0, "points failed: {:?}", response.failures);
            }
            Ok(longest)
        });
    }
    super::longest(connections).await
}
