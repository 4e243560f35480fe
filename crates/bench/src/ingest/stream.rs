//! gRPC `WriteStream`: the series declared once, then frames of points.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use http::uri::PathAndQuery;
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::write_stream_request::{Frame, Message, Open};
use oxtsdb_proto::data::v1::{
    Columns, DeltaTimestamps, WriteStreamRequest, WriteStreamResponse, write_stream_response,
};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::client::Grpc;

use super::raw_codec::RawCodec;
use crate::workload::{Batch, Order, Value, Workload};

/// Streams, each with its messages, ready to be sent.
#[derive(Debug)]
pub(crate) struct Streams(Vec<Vec<Bytes>>);

/// Encodes the workload, a batch in a frame; each connection has a part of the series.
pub(crate) fn encode(workload: &Workload, order: Order) -> Streams {
    let parts = super::parts(workload);
    Streams(parts.map(|series| stream(workload, &series, order)).collect())
}

fn stream(workload: &Workload, all: &Range<usize>, order: Order) -> Vec<Bytes> {
    let open = Open {
        client_name: "bench".to_owned(),
        options: Some(super::write_options()),
    };
    let mut messages = vec![encoded(Message::Open(open))];
    let declarations = declarations(workload, all);
    for (number, batch) in workload.batches(all.clone(), order).iter().enumerate() {
        let mut columns = if number == 0 {
            declarations.clone()
        } else {
            Columns::default()
        };
        columns.blocks = blocks(workload, all, batch);
        let sequence = u64::try_from(number).expect("small") + 1;
        messages.push(encoded(Message::Frame(Frame {
            sequence,
            columns: Some(columns),
        })));
    }
    messages
}

fn encoded(message: Message) -> Bytes {
    WriteStreamRequest {
        message: Some(message),
    }
    .encode_to_vec()
    .into()
}

fn declarations(workload: &Workload, all: &Range<usize>) -> Columns {
    let mut columns = Columns::default();
    let mut numbers = std::collections::HashMap::new();
    for series in &workload.series[all.clone()] {
        let mut symbol = |text: &str| {
            *numbers.entry(text.to_owned()).or_insert_with(|| {
                columns.new_symbols.push(text.to_owned());
                u32::try_from(columns.new_symbols.len() - 1).expect("few symbols")
            })
        };
        let metric_symbol = symbol(&series.metric);
        let tag_symbols = series
            .tags
            .iter()
            .flat_map(|(key, value)| [symbol(key), symbol(value)])
            .collect();
        columns.new_series.push(SeriesDeclaration {
            metric_symbol,
            tag_symbols,
            tsuid: Bytes::new(),
        });
    }
    columns
}

/// A block of the integers and one of the doubles: a block has one type.
fn blocks(workload: &Workload, all: &Range<usize>, batch: &Batch) -> Vec<Block> {
    let (mut ints, mut doubles) = (Vec::new(), Vec::new());
    let (mut int_points, mut double_points) = (Vec::new(), Vec::new());
    for (step, number) in batch.points() {
        match workload.value(step, number) {
            Value::Int(value) => {
                ints.push(value);
                int_points.push((step, number));
            }
            Value::Double(value) => {
                doubles.push(value);
                double_points.push((step, number));
            }
        }
    }
    let mut blocks = Vec::new();
    if !ints.is_empty() {
        blocks.push(Block {
            int_values: ints,
            ..block(workload, all, &int_points)
        });
    }
    if !doubles.is_empty() {
        blocks.push(Block {
            values: doubles,
            ..block(workload, all, &double_points)
        });
    }
    blocks
}

/// Series and timestamps of points.
fn block(workload: &Workload, all: &Range<usize>, points: &[(usize, usize)]) -> Block {
    let ms = |step: usize| i64::from(workload.shape.seconds(step)) * 1000;
    let number = |series: usize| u32::try_from(series - all.start).expect("few series");
    let first = points[0];
    let series = if points.iter().all(|(_, series)| *series == first.1) {
        vec![number(first.1)]
    } else {
        points.iter().map(|(_, series)| number(*series)).collect()
    };
    let timestamps: Vec<i64> = points.iter().map(|(step, _)| ms(*step)).collect();
    Block {
        series,
        delta_timestamps: DeltaTimestamps::encode(&timestamps),
        ..Block::default()
    }
}

/// Sends all streams; returns when all frames are acknowledged, with the longest time that one took.
pub(crate) async fn send(server: SocketAddr, streams: &Streams) -> anyhow::Result<Duration> {
    let mut connections = JoinSet::new();
    for messages in streams.0.clone() {
        connections.spawn(send_one(server, messages));
    }
    super::longest(connections).await
}

async fn send_one(server: SocketAddr, messages: Vec<Bytes>) -> anyhow::Result<Duration> {
    let frames = u64::try_from(messages.len())? - 1;
    let mut messages = messages.into_iter();
    let (sender, receiver) = mpsc::channel(1);
    sender
        .send(messages.next().context("a stream begins with open")?)
        .await?;

    let mut client = Grpc::new(super::channel(server).await?);
    client
        .ready()
        .await
        .map_err(|error| anyhow!("not ready: {error}"))?;
    let path = PathAndQuery::from_static("/oxtsdb.data.v1.DataService/WriteStream");
    let codec = RawCodec::<WriteStreamResponse>::default();
    let responses = client
        .streaming(Request::new(ReceiverStream::new(receiver)), path, codec)
        .await?;
    let mut responses = responses.into_inner();

    use write_stream_response::Message as Response;
    let Some(Response::Opened(opened)) = responses.message().await?.and_then(|response| response.message)
    else {
        bail!("the first response is not `opened`");
    };
    let window = Arc::new(Semaphore::new(opened.window_frames as usize));
    let sent = Arc::new(Mutex::new(VecDeque::new()));
    let feeding = tokio::spawn({
        let (window, sent) = (window.clone(), sent.clone());
        async move {
            for message in messages {
                window.acquire().await?.forget();
                sent.lock().push_back(Instant::now());
                sender.send(message).await?;
            }
            anyhow::Ok(())
        }
    });
    let mut acknowledged = 0;
    let mut longest = Duration::ZERO;
    while acknowledged < frames {
        match responses.message().await?.and_then(|response| response.message) {
            Some(Response::Ack(ack)) => {
                ensure!(ack.failed == 0, "points failed: {:?}", ack.failures.first());
                let frames = usize::try_from(ack.sequence - acknowledged)?;
                let first = sent.lock().drain(..frames).next();
                longest = longest.max(first.context("an ack of a frame")?.elapsed());
                window.add_permits(frames);
                acknowledged = ack.sequence;
            }
            other => bail!("expected an ack, got {other:?}"),
        }
    }
    feeding.await??;
    Ok(longest)
}
