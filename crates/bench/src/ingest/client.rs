//! `oxtsdb-client`: a stream writer on each connection. Encoding is part of the measurement.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use anyhow::ensure;
use oxtsdb_client::{DataClient, SeriesName, StreamOptions, Timestamp};
use tokio::task::JoinSet;

use crate::workload::{Order, Value, Workload};

/// Sends the workload; returns when all points are acknowledged. Each connection has a part of the series.
pub(crate) async fn send(server: SocketAddr, workload: &Arc<Workload>, order: Order) -> anyhow::Result<()> {
    let mut connections = JoinSet::new();
    for series in super::parts(workload) {
        connections.spawn(send_part(server, Arc::clone(workload), series, order));
    }
    while let Some(connection) = connections.join_next().await {
        connection??;
    }
    Ok(())
}

async fn send_part(
    server: SocketAddr,
    workload: Arc<Workload>,
    part: Range<usize>,
    order: Order,
) -> anyhow::Result<()> {
    let names: Vec<SeriesName> = workload.series[part.clone()]
        .iter()
        .map(|series| {
            SeriesName::new(
                &series.metric,
                series.tags.iter().map(|(key, value)| (key, value)),
            )
        })
        .collect();
    let client = DataClient::connect(&format!("http://{server}"))?;
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    for batch in workload.batches(part.clone(), order) {
        for (step, number) in batch.points() {
            let series = &names[number - part.start];
            let timestamp = Timestamp::from_seconds(workload.shape.seconds(step).into());
            match workload.value(step, number) {
                Value::Int(value) => writer.send(series, timestamp, value).await?,
                Value::Double(value) => writer.send(series, timestamp, value).await?,
            }
        }
    }
    let report = writer.close().await?;
    ensure!(report.is_complete(), "{} points failed", report.failed);
    Ok(())
}
