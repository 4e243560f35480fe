//! Telnet `put`: lines one behind the other. It has no acknowledgement, so each connection ends with
//! `version`, which is answered when all lines before it are stored.

use std::net::SocketAddr;

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::http::push_value;
use crate::workload::{Batch, Order, Workload};

/// Lines, ready to be sent, in portions.
#[derive(Debug)]
pub(crate) struct Lines(Vec<Vec<Vec<u8>>>);

/// Encodes the workload, a batch in a portion.
pub(crate) fn encode(workload: &Workload, order: Order) -> Lines {
    let batches = workload.all_batches(order);
    Lines(super::deal(batches.iter().map(|batch| portion(workload, batch))))
}

fn portion(workload: &Workload, batch: &Batch) -> Vec<u8> {
    let mut lines = String::new();
    for (step, number) in batch.points() {
        let series = &workload.series[number];
        lines.push_str(&format!(
            "put {} {} ",
            series.metric,
            workload.shape.seconds(step)
        ));
        push_value(&mut lines, workload.value(step, number));
        for (key, value) in &series.tags {
            lines.push_str(&format!(" {key}={value}"));
        }
        lines.push('\n');
    }
    lines.into_bytes()
}

/// Sends all lines; returns when all are stored, with the number of those that were refused.
///
/// OpenTSDB refuses lines while a region moves or splits ("Please throttle writes"), one answer a line.
pub(crate) async fn send(server: SocketAddr, lines: &Lines) -> anyhow::Result<usize> {
    let mut connections = JoinSet::new();
    for portions in lines.0.clone() {
        connections.spawn(async move {
            let mut stream = TcpStream::connect(server).await?;
            for portion in portions {
                stream.write_all(&portion).await?;
            }
            stream.write_all(b"version\nexit\n").await?;
            let mut answers = String::new();
            stream.read_to_string(&mut answers).await?;
            let refused = answers.lines().filter(|line| line.starts_with("put:")).count();
            ensure!(answers.lines().count() > refused, "`version` was not answered");
            anyhow::Ok(refused)
        });
    }
    let mut refused = 0;
    while let Some(connection) = connections.join_next().await {
        refused += connection??;
    }
    Ok(refused)
}
