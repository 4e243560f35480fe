//! Write streams of clients that read no acks, and writes while the UID service is away.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use oxtsdb_proto::data::v1::WriteStreamRequest;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::write_stream_request::{Frame, Message};
use oxtsdb_tests::bystander::{Bystander, Kind};
use oxtsdb_tests::raw_grpc::RawChannel;
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::{ColumnsBuilder, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::{open, write_request};
use oxtsdb_tests::{DataProgram, UidProgram, until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{BOUND, Target, limited, new_flag, turn};

const T: i64 = 1_500_000_000_000;

/// How long others write beside clients that read nothing.
const ATTACK: Duration = Duration::from_secs(8);

fn message(message: Message) -> WriteStreamRequest {
    WriteStreamRequest {
        message: Some(message),
    }
}

/// A frame of good points, and of bad ones. Each bad one is an error in the ack: a few acks fill the
/// window of HTTP/2.
fn frame(columns: &mut ColumnsBuilder, number: u64) -> Message {
    let host = format!("host{}", number % 7);
    let samples: Vec<Sample> = (0..500)
        .map(|point| {
            let instant = if point % 5 == 0 { -point } else { T + point * 1000 };
            Sample::int("unread", &[("host", &host)], instant, point)
        })
        .collect();
    Message::Frame(Frame {
        sequence: number,
        columns: Some(columns.columns(&samples)),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_acks_delay_no_other_writes() -> anyhow::Result<()> {
    // A small budget of writes, which the streams could hold on to.
    let options = limited()
        .flag("--max-writes-mib", "1")
        .flag("--stream-grace-seconds", "2")
        .flags(new_flag("--client-timeout-seconds", 3));
    let mut target = Target::start_with(options).await?;
    let address = target.tsdb.data_address();
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let channel = RawChannel::connect_slow_reader(address).await?;
        let mut client = DataServiceClient::with_origin(channel, RawChannel::origin(address)?);
        clients.spawn(async move {
            let (requests, receiver) = mpsc::channel(1);
            let opening = async { requests.send(message(Message::Open(open()))).await };
            let (opened, response) =
                tokio::join!(opening, client.write_stream(ReceiverStream::new(receiver)));
            opened?;
            // Kept, never read.
            let _responses = response?.into_inner();
            let mut columns = ColumnsBuilder::default();
            for number in 1.. {
                requests.send(message(frame(&mut columns, number))).await?;
            }
            anyhow::Ok(())
        });
    }
    let bystander = Bystander::start_with(&target.tsdb, &[Kind::Put, Kind::Write, Kind::Version]).await?;
    sleep(ATTACK).await;
    bystander.finish(BOUND).await?;

    // The drain reaches them too.
    let begun = Instant::now();
    let status = target.tsdb.terminate().await?;
    println!("  stopped in {:.1} s", begun.elapsed().as_secs_f64());
    ensure!(status.code() == Some(0), "{status}");
    ensure!(begun.elapsed() < 2 * BOUND, "SIGTERM took {:?}", begun.elapsed());
    clients.shutdown().await;
    target.memory.check_below(crate::support::MOST_BYTES)
}

fn known(protocol: &str, number: i64) -> Sample {
    Sample::int(
        &format!("known.{protocol}"),
        &[("host", "a")],
        T + number * 1000,
        number,
    )
}

/// Stores a point of a known series through each protocol, each within [`BOUND`].
async fn write_known(data: &DataProgram, stream: &mut WriteStream, number: i64) -> anyhow::Result<()> {
    let write = async {
        let response = data
            .client()
            .write(write_request(&[known("write", number)]))
            .await?;
        ensure!(response.get_ref().written == 1, "{response:?}");
        Ok(())
    };
    timeout(BOUND, write).await.context("Write waits")??;
    let put = async {
        let body = Value::from(vec![known("http", number).to_json()]);
        let response = data.http().post("/api/put?details", &body).await?;
        ensure!(response.status == 200, "{response:?}");
        Ok(())
    };
    timeout(BOUND, put).await.context("/api/put waits")??;
    let acknowledged = async {
        stream.send(&[known("stream", number)]).await?;
        ensure!(stream.all_written().await? == 1);
        Ok(())
    };
    timeout(BOUND, acknowledged)
        .await
        .context("WriteStream waits")??;
    let lines = async {
        let mut telnet = data.telnet().await?;
        telnet
            .send(known("telnet", number).to_telnet_line().as_bytes())
            .await?;
        telnet.send(b"exit\n").await?;
        let replies = telnet.rest().await?;
        ensure!(replies.is_empty(), "{replies}");
        Ok(())
    };
    timeout(BOUND, lines).await.context("telnet waits")?
}

/// Clients that wait for UIDs of new series, through each protocol.
async fn write_new(data: &DataProgram, clients: &mut JoinSet<()>) -> anyhow::Result<()> {
    for number in 0..8 {
        let sample = Sample::int(&format!("new.{number}"), &[("host", "b")], T, 1);
        let (mut client, write) = (data.client(), write_request(std::slice::from_ref(&sample)));
        clients.spawn(async move { drop(client.write(write).await) });
        let (http, body) = (data.http(), Value::from(vec![sample.to_json()]));
        clients.spawn(async move { drop(http.post("/api/put", &body).await) });
        let mut telnet = data.telnet().await?;
        telnet.send(sample.to_telnet_line().as_bytes()).await?;
        clients.spawn(async move { drop(telnet.rest().await) });
    }
    Ok(())
}

/// A stream with many points of a known series, and behind them one of a new series. The first ones are
/// acknowledged within [`BOUND`], and hold no budget of writes while the last one waits.
async fn stream_known_then_new(data: &DataProgram, number: i64) -> anyhow::Result<WriteStream> {
    let mut stream = WriteStream::open(&mut data.client()).await?;
    let points: Vec<Sample> = (0..10_000)
        .map(|point| Sample::int("known.many", &[("host", "a")], T + point * 1000, number))
        .collect();
    stream.send(&points).await?;
    stream
        .send(&[Sample::int(
            &format!("new.stream.{number}"),
            &[("host", "b")],
            T,
            1,
        )])
        .await?;
    let ack = timeout(BOUND, stream.ack())
        .await
        .context("points of a known series are not acknowledged, as those behind them wait")??;
    ensure!(ack.sequence == 1 && ack.written == 10_000, "{ack:?}");
    Ok(stream)
}

/// A UID service that hangs, then one that is gone: points of known series are stored, points of new series wait.
#[tokio::test(flavor = "multi_thread")]
async fn known_series_are_written_without_the_uid_service() -> anyhow::Result<()> {
    let _turn = turn().await;
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut uid = UidProgram::start(folder.path(), None).await?;
    let address = uid.address();
    // A small budget of writes, which waiting ones could hold on to.
    let flags = ["--max-writes-mib=2".to_owned()];
    let data = DataProgram::start_with(folder.path(), address, &flags).await?;
    let mut stream = WriteStream::open(&mut data.client()).await?;
    write_known(&data, &mut stream, 0).await?;
    stream
        .send(&[Sample::int("known.many", &[("host", "a")], T, 1)])
        .await?;
    stream.all_written().await?;

    let mut waiting = JoinSet::new();
    uid.process().signal(Signal::STOP)?;
    write_new(&data, &mut waiting).await?;
    let streams = (0..8).map(|number| stream_known_then_new(&data, number));
    let streams = try_join_all(streams)
        .await
        .context("while the UID service hangs")?;
    for number in 1..4 {
        write_known(&data, &mut stream, number)
            .await
            .context("while the UID service hangs")?;
    }
    uid.process().kill9()?;
    for number in 4..7 {
        write_known(&data, &mut stream, number)
            .await
            .context("while the UID service is gone")?;
    }
    waiting.shutdown().await;
    drop(streams);

    // It comes back: new series are written again.
    let _uid = UidProgram::start(folder.path(), Some(address)).await?;
    until("new series are written", || async {
        let sample = Sample::int("new.again", &[("host", "b")], T, 1);
        let response = data.client().write(write_request(&[sample])).await?;
        ensure!(response.get_ref().written == 1, "{response:?}");
        Ok(())
    })
    .await?;
    for protocol in ["write", "http", "stream", "telnet"] {
        let series = series_of(&mut data.client(), &format!("known.{protocol}")).await?;
        let points: Vec<usize> = series.values().map(Vec::len).collect();
        ensure!(points == [7], "{protocol}: {points:?}");
    }
    Ok(())
}
