//! gRPC `Write`: points with their names, one call at a time on each connection.

use std::net::SocketAddr;

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use http::uri::PathAndQuery;
use oxtsdb_proto::common::v1::{SeriesKey, SeriesName, Tag, series_key};
use oxtsdb_proto::data::v1::{Point, WriteRequest, WriteResponse, point};
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
    let points = batch
        .points()
        .map(|(step, number)| {
            let series = &workload.series[number];
            let tags = series.tags.iter().map(|(key, value)| Tag {
                key: (*key).to_owned(),
                value: value.clone(),
            });
            let name = SeriesName {
                metric: series.metric.clone(),
                tags: tags.collect(),
            };
            Point {
                series: Some(SeriesKey {
                    key: Some(series_key::Key::Name(name)),
                }),
                timestamp_ms: i64::from(workload.shape.seconds(step)) * 1000,
                value: Some(match workload.value(step, number) {
                    Value::Int(value) => point::Value::IntValue(value),
                    Value::Double(value) => point::Value::DoubleValue(value),
                }),
            }
        })
        .collect();
    WriteRequest {
        points,
        precision: 0,
        max_errors: 0,
    }
    .encode_to_vec()
    .into()
}

/// Sends all calls; returns when all are acknowledged.
pub(crate) async fn send(server: SocketAddr, calls: &Calls) -> anyhow::Result<()> {
    let mut connections = JoinSet::new();
    for calls in calls.0.clone() {
        connections.spawn(async move {
            let mut client = Grpc::new(super::channel(server).await?);
            for call in calls {
                client
                    .ready()
                    .await
                    .map_err(|error| anyhow!("not ready: {error}"))?;
                let path = PathAndQuery::from_static("/oxtsdb.data.v1.DataService/Write");
                let answer = client
                    .unary(Request::new(call), path, RawCodec::<WriteResponse>::default())
                    .await?;
                let answer = answer.into_inner();
                ensure!(answer.failed == 0, "points failed: {:?}", answer.errors.first());
            }
            Ok(())
        });
    }
    while let Some(connection) = connections.join_next().await {
        connection??;
    }
    Ok(())
}
