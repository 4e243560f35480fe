//! Measures the cost of writes above the store: calls the handlers as the gRPC server does, over a store that
//! acknowledges every write and drops it.
//!
//! `cargo run --release -p data-service --example write-bench`

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{BufMut as _, Bytes};
use data_service::{DataSettings, assemble, store_part};
use http::uri::PathAndQuery;
use oxtsdb_client::UidClient;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::data_service_server::{DataService, DataServiceServer};
use oxtsdb_proto::data::v1::write_stream_request::{Frame, Message, Open};
use oxtsdb_proto::data::v1::write_stream_response;
use oxtsdb_proto::data::v1::{
    Columns, DeltaTimestamps, TimeSeries, TimeUnit, WriteColumnsRequest, WriteOptions, WriteRequest,
    WriteResponse, WriteStreamRequest, time_series,
};
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, Writers};
use oxtsdb_server::Shutdown;
use oxtsdb_server::store::StoreKind;
use prost::Message as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::service::Routes;
use tonic::{Request, Status};
use uid_service::UidSettings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Series of the workload and points of a request.
const SERIES: usize = 1000;
/// Series of encoded requests.
const MANY_SERIES: usize = 10_000;
/// Duration of each measurement.
const TIME: Duration = Duration::from_secs(3);
/// Timestamp of the first point: an exact hour.
const START_MS: i64 = 1_356_998_400_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let tables = MemoryStore::new();
    uid_service::store_part(&UidSettings::default())?
        .make_tables(&tables)
        .await?;
    store_part(&DataSettings::default(), 0)?
        .make_tables(&tables)
        .await?;
    let (shutdown, _trigger) = Shutdown::new(Duration::ZERO);
    let (uid_store, settings) = (Arc::new(tables.clone()), UidSettings::default());
    let uids = uid_service::assemble(uid_store, Writers::Single, &settings, shutdown.clone()).await?;
    let client = UidClient::in_process(uids.routes());
    let store = InterceptedStore::new(Arc::new(tables), Arc::new(NoStore));
    let service = assemble(
        (Arc::new(store), StoreKind::Embedded),
        None,
        client,
        DataSettings::default(),
        &MemoryAccount::unlimited(),
        shutdown,
    )
    .await?;
    let handler = service.handler.clone();

    let points = WriteRequest {
        series: (0..SERIES).map(series).collect(),
        options: Some(options()),
    };
    let points = Bytes::from(points.encode_to_vec());
    measure("Write, 1000 points of 1000 series", || async {
        handler
            .write(Request::new(points.clone()))
            .await
            .map(|response| response.into_inner().written)
    })
    .await?;

    let columns = Columns {
        blocks: blocks(0),
        ..declarations()
    };
    let request = WriteColumnsRequest {
        columns: Some(columns),
        options: Some(options()),
    };
    measure(
        "WriteColumns, 1000 points of 1000 series, declared anew",
        || async {
            handler
                .write_columns(Request::new(request.clone()))
                .await
                .map(|response| response.into_inner().written)
        },
    )
    .await?;
    encoded_writes(Routes::new(service.server())).await?;
    write_stream(service.server()).await
}

/// Sends encoded requests to the server, in process: what the server does, from the bytes of a call to its response.
async fn encoded_writes(server: Routes) -> anyhow::Result<()> {
    let requests: Vec<Bytes> = (0..MANY_SERIES / SERIES)
        .map(|request| WriteRequest {
            series: (request * SERIES..(request + 1) * SERIES).map(series).collect(),
            options: Some(options()),
        })
        .map(|request| request.encode_to_vec().into())
        .collect();
    let mut requests = requests.iter().cycle();
    let name = format!("Write, 1000 points of {MANY_SERIES} series, encoded");
    measure(&name, || {
        let mut client = Grpc::new(server.clone());
        let request = Request::new(requests.next().cloned().unwrap_or_default());
        async move {
            let path = PathAndQuery::from_static("/oxtsdb.data.v1.DataService/Write");
            client
                .ready()
                .await
                .map_err(|error| Status::internal(format!("{error:?}")))?;
            let response = client.unary(request, path, EncodedRequest).await?;
            Ok(response.into_inner().written)
        }
    })
    .await
}

/// A codec whose requests are encoded already.
struct EncodedRequest;

impl Codec for EncodedRequest {
    type Encode = Bytes;
    type Decode = WriteResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for EncodedRequest {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for EncodedRequest {
    type Item = WriteResponse;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<WriteResponse>, Status> {
        WriteResponse::decode(buffer)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

/// Sends frames through the generated client, in process, including encoding and decoding.
async fn write_stream(server: DataServiceServer<data_service::DataServiceHandler>) -> anyhow::Result<()> {
    let (requests, receiver) = tokio::sync::mpsc::channel(64);
    let open = Message::Open(Open {
        options: Some(options()),
        ..Open::default()
    });
    requests.send(WriteStreamRequest { message: Some(open) }).await?;
    let mut client = DataServiceClient::new(server);
    let mut replies = client
        .write_stream(ReceiverStream::new(receiver))
        .await?
        .into_inner();
    let began = Instant::now();
    let sender = tokio::spawn(async move {
        let mut sequence = 0_u64;
        let mut columns = declarations();
        while began.elapsed() < TIME {
            sequence += 1;
            columns.blocks = blocks(sequence.cast_signed() % 360);
            let frame = Message::Frame(Frame {
                sequence,
                columns: Some(std::mem::take(&mut columns)),
            });
            if requests
                .send(WriteStreamRequest { message: Some(frame) })
                .await
                .is_err()
            {
                break;
            }
        }
    });
    let mut written = 0;
    while let Some(reply) = replies.message().await? {
        if let Some(write_stream_response::Message::Ack(ack)) = reply.message {
            written += ack.written;
        }
    }
    sender.await?;
    report(
        "WriteStream, 1000 points of 1000 series, client and server on one core",
        written,
        began.elapsed(),
    );
    Ok(())
}

async fn measure<F>(name: &str, mut call: impl FnMut() -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<u64, tonic::Status>>,
{
    call().await?;
    let began = Instant::now();
    let mut points = 0;
    while began.elapsed() < TIME {
        points += call().await?;
    }
    report(name, points, began.elapsed());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "printed with two digits")]
fn report(name: &str, points: u64, time: Duration) {
    println!(
        "{name}: {:.2} M points/s",
        points as f64 / time.as_secs_f64() / 1e6
    );
}

fn tags(number: usize) -> [(&'static str, String); 3] {
    [
        ("host", format!("web{:04}", number / 10)),
        ("dc", "lga".to_owned()),
        ("cpu", (number % 10).to_string()),
    ]
}

/// Milliseconds.
fn options() -> WriteOptions {
    WriteOptions {
        time_unit: TimeUnit::Milliseconds.into(),
        ..WriteOptions::default()
    }
}

/// One point of a series.
fn series(number: usize) -> TimeSeries {
    let tags = tags(number).map(|(key, value)| Tag {
        key: key.to_owned(),
        value,
    });
    let name = SeriesName {
        metric: "sys.cpu.user".to_owned(),
        tags: tags.to_vec(),
    };
    TimeSeries {
        series: Some(time_series::Series::Name(name)),
        timestamps: vec![START_MS],
        values: vec![0.25],
        ..TimeSeries::default()
    }
}

fn declarations() -> Columns {
    let mut columns = Columns {
        new_symbols: vec!["sys.cpu.user".to_owned()],
        ..Columns::default()
    };
    for number in 0..SERIES {
        let mut tag_symbols = Vec::new();
        for (key, value) in tags(number) {
            for text in [key.to_owned(), value] {
                let known = columns.new_symbols.iter().position(|symbol| *symbol == text);
                let symbol = known.unwrap_or_else(|| {
                    columns.new_symbols.push(text);
                    columns.new_symbols.len() - 1
                });
                tag_symbols.push(u32::try_from(symbol).unwrap_or(u32::MAX));
            }
        }
        columns.new_series.push(SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols,
            ..Default::default()
        });
    }
    columns
}

/// One point of each series at one timestamp: half of them integers, half doubles.
fn blocks(step: i64) -> Vec<Block> {
    let half = |from: usize| {
        let series = (from..from + SERIES / 2).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Block {
            series: series.collect(),
            delta_timestamps: DeltaTimestamps::encode(&[START_MS + step * 10_000; SERIES / 2]),
            ..Block::default()
        }
    };
    let ints = (0..SERIES / 2)
        .map(|number| i64::try_from(number * 17).unwrap_or(0))
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let doubles = (0..SERIES / 2).map(|number| number as f64 / 100.0).collect();
    vec![
        Block {
            int_values: ints,
            ..half(0)
        },
        Block {
            values: doubles,
            ..half(SERIES / 2)
        },
    ]
}

/// Acknowledges every write and drops it.
#[derive(Debug)]
struct NoStore;

#[async_trait]
impl Intercept for NoStore {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        match operation {
            Operation::Write { .. } => Ok(Response::Written),
            Operation::Scan { .. } => operation.perform(store).await,
            _ => Err(StoreError::Unavailable {
                detail: "nothing is kept here".to_owned(),
            }),
        }
    }
}
