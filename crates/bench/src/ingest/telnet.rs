//! Telnet `put`: pipelined lines. It has no acknowledgement, so each connection ends with
//! `version`: the server responds to it after it has stored all lines before.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

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

/// Lines that were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Lines that the server rejected.
    pub(crate) rejected: usize,
    /// The longest time that the server did not read on.
    pub(crate) longest: Duration,
}

/// Sends all lines; returns after all are stored.
///
/// OpenTSDB rejects lines while a region moves or splits ("Please throttle writes"), with one response a line.
pub(crate) async fn send(server: SocketAddr, lines: &Lines) -> anyhow::Result<Sent> {
    let mut connections = JoinSet::new();
    for portions in lines.0.clone() {
        connections.spawn(async move {
            let mut stream = TcpStream::connect(server).await?;
            let mut longest = Duration::ZERO;
            for portion in portions {
                let started = Instant::now();
                stream.write_all(&portion).await?;
                longest = longest.max(started.elapsed());
            }
            stream.write_all(b"version\nexit\n").await?;
            let mut responses = String::new();
            stream.read_to_string(&mut responses).await?;
            let rejected = responses.lines().filter(|line| line.starts_with("put:")).count();
            ensure!(responses.lines().count() > rejected, "no response to `version`");
            anyhow::Ok(Sent { rejected, longest })
        });
    }
    let mut sent = Sent::default();
    while let Some(connection) = connections.join_next().await {
        let of_one = connection??;
        sent.rejected += of_one.rejected;
        sent.longest = sent.longest.max(of_one.longest);
    }
    Ok(sent)
}
