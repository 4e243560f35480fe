//! A client of the stream, shared by the tests of each subject.

mod acks;
mod end;
mod names;
mod protocol;

use std::time::Duration;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::write_stream_response as outgoing;
use oxtsdb_proto::data::v1::write_stream_response::Ack;
use oxtsdb_proto::data::v1::{Columns, DeltaTimestamps, TimeUnit, WriteOptions};
use oxtsdb_proto::error::reason_of;
use oxtsdb_test_stack::{Gate, TestStack};
use tokio::sync::mpsc;

use super::*;

/// The limit of each wait for the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client's side of a stream.
struct Client {
    requests: mpsc::UnboundedSender<WriteStreamRequest>,
    replies: Streaming<WriteStreamResponse>,
}

impl Client {
    /// Opens a call, without sending a message.
    async fn connect(stack: &TestStack) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let requests_stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
        let replies = stack
            .client()
            .write_stream(requests_stream)
            .await
            .unwrap()
            .into_inner();
        Self { requests, replies }
    }

    /// Opens a call and sends `open`.
    async fn open(stack: &TestStack) -> (Self, Opened) {
        let mut client = Self::connect(stack).await;
        client.send(incoming::Message::Open(open_message()));
        let Ok(outgoing::Message::Opened(opened)) = client.reply().await else {
            panic!("not opened")
        };
        (client, opened)
    }

    fn send(&self, message: incoming::Message) {
        // Fails if the server has ended the stream; the test then reads the status.
        let _ = self.requests.send(WriteStreamRequest {
            message: Some(message),
        });
    }

    fn frame(&self, sequence: u64, columns: Columns) {
        self.send(incoming::Message::Frame(Frame {
            sequence,
            columns: Some(columns),
        }));
    }

    async fn reply(&mut self) -> Result<outgoing::Message, Status> {
        let reply = tokio::time::timeout(PATIENCE, self.replies.message())
            .await
            .expect("no reply in time");
        Ok(reply?.expect("a reply").message.unwrap())
    }

    async fn ack(&mut self) -> Ack {
        match self.reply().await.unwrap() {
            outgoing::Message::Ack(ack) => ack,
            other => panic!("expected an ack, got {other:?}"),
        }
    }

    /// Sums acks until `sequence` is acknowledged.
    async fn acks_through(&mut self, sequence: u64) -> Ack {
        let mut sum = Ack::default();
        while sum.sequence < sequence {
            let ack = self.ack().await;
            assert!(ack.sequence > sum.sequence, "acks ascend");
            sum.sequence = ack.sequence;
            sum.written += ack.written;
            sum.failed += ack.failed;
            sum.failures.extend(ack.failures);
        }
        sum
    }

    /// The status that ends the stream, and the last frame acknowledged before it.
    async fn status(&mut self) -> (u64, Status) {
        let mut acknowledged = 0;
        loop {
            match self.reply().await {
                Ok(outgoing::Message::Ack(ack)) => acknowledged = ack.sequence,
                Ok(_) => {}
                Err(status) => return (acknowledged, status),
            }
        }
    }
}

/// Milliseconds, any time, and two errors a frame.
fn open_message() -> Open {
    Open {
        options: Some(WriteOptions {
            time_unit: TimeUnit::Milliseconds.into(),
            allow_any_time: true,
            max_errors: Some(2),
            ..WriteOptions::default()
        }),
        ..Open::default()
    }
}

/// Declares one series, metric `m`.
fn declaration() -> Columns {
    Columns {
        new_symbols: ["m", "host", "a"].map(str::to_owned).to_vec(),
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2],
            ..Default::default()
        }],
        ..Columns::default()
    }
}

/// `first`, with the declaration of its series.
fn declaring(first: Columns) -> Columns {
    Columns {
        blocks: first.blocks,
        ..declaration()
    }
}

/// One point of a series.
fn at(series: u32, seconds: i64) -> Columns {
    points(series, seconds, 1)
}

/// Points of a series, one a second from `seconds` on.
fn points(series: u32, seconds: i64, count: usize) -> Columns {
    let timestamps: Vec<i64> = (seconds..).take(count).map(|second| second * 1000).collect();
    Columns {
        blocks: vec![Block {
            series: vec![series],
            delta_timestamps: DeltaTimestamps::encode(&timestamps),
            int_values: vec![7; count],
            ..Block::default()
        }],
        ..Columns::default()
    }
}

/// A point of the series of [`declaration`].
fn known_point(second: u32) -> oxtsdb_ingest::NewPoint<'static> {
    oxtsdb_ingest::NewPoint {
        metric: "m",
        tags: &[("host", "a")],
        timestamp: oxtsdb_schema::Timestamp::from_seconds(second),
        value: oxtsdb_schema::Value::Int(1),
    }
}

/// `first`, with the declaration of a second series of metric `m`. Its tag value is the fourth symbol.
fn another(tagv: &str, first: Columns) -> Columns {
    Columns {
        first_symbol: 3,
        new_symbols: vec![tagv.to_owned()],
        first_series: 1,
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 3],
            ..Default::default()
        }],
        blocks: first.blocks,
    }
}
