//! Sends points through the front ends of OpenTSDB and of OxTSDB, each point through one of them.

use anyhow::ensure;
use futures::future::try_join_all;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::Tsdb;
use crate::http::Http;
use crate::opentsdb::OpenTsdb;
use crate::random_points::Sent;
use crate::sample::{ColumnsBuilder, Sample};
use crate::telnet::Telnet;
use crate::write_requests::{columns_request, write_request};

/// Points of a request.
const BATCH: usize = 500;

/// Points in two halves, by chance.
pub fn halves(random: &mut StdRng, points: Vec<Sent>) -> (Vec<Sent>, Vec<Sent>) {
    points.into_iter().partition(|_| random.random())
}

/// Through HTTP and telnet of OpenTSDB. Points over HTTP are stored when it responds; points over telnet about a second
/// later, without a notification.
///
/// # Errors
///
/// If a point is rejected.
pub async fn write_to_opentsdb(
    opentsdb: &OpenTsdb,
    random: &mut StdRng,
    points: &[Sent],
) -> anyhow::Result<()> {
    let (telnet, http) = points
        .iter()
        .partition::<Vec<&Sent>, _>(|sent| sent.fits_telnet() && random.random());
    let requests = http.chunks(BATCH).map(|batch| put(opentsdb.http(), batch));
    let telnet = put_lines(opentsdb.telnet().await?, &telnet);
    tokio::try_join!(try_join_all(requests), telnet)?;
    Ok(())
}

/// Through HTTP, telnet and both forms of gRPC of OxTSDB. All is stored then.
///
/// # Errors
///
/// If a point is rejected.
pub async fn write_to_oxtsdb(oxtsdb: &Tsdb, random: &mut StdRng, points: &[Sent]) -> anyhow::Result<()> {
    let (mut http, mut telnet, mut simple, mut columns) = (vec![], vec![], vec![], vec![]);
    for sent in points {
        let front_end = match random.random_range(0..4) {
            1 if sent.fits_telnet() => &mut telnet,
            2 if sent.fits_grpc() => &mut simple,
            3 if sent.fits_grpc() => &mut columns,
            _ => &mut http,
        };
        front_end.push(sent);
    }
    let requests = http.chunks(BATCH).map(|batch| put(oxtsdb.http(), batch));
    let telnet = put_lines(oxtsdb.telnet().await?, &telnet);
    let simple = simple.chunks(BATCH).map(|batch| write(oxtsdb, batch));
    let columns = columns.chunks(BATCH).map(|batch| write_columns(oxtsdb, batch));
    tokio::try_join!(
        try_join_all(requests),
        telnet,
        try_join_all(simple),
        try_join_all(columns)
    )?;
    Ok(())
}

/// One request to `/api/put` of either; they are stored then.
///
/// # Errors
///
/// If a point is rejected.
pub async fn put(http: Http, points: &[&Sent]) -> anyhow::Result<()> {
    let body: Vec<Value> = points.iter().map(|sent| sent.to_json()).collect();
    let answer = http.post("/api/put?details&sync", &Value::Array(body)).await?;
    ensure!(
        answer.status == 200,
        "/api/put: {} {}",
        answer.status,
        answer.body
    );
    Ok(())
}

/// Lines to telnet of either, on one connection.
///
/// # Errors
///
/// If a line is answered, as only a bad one is.
pub async fn put_lines(mut telnet: Telnet, points: &[&Sent]) -> anyhow::Result<()> {
    let lines: String = points.iter().map(|sent| sent.to_telnet_line()).collect();
    telnet.send(lines.as_bytes()).await?;
    telnet.send(b"exit\n").await?;
    let replies = telnet.rest().await?;
    ensure!(replies.is_empty(), "{replies}");
    Ok(())
}

async fn write(oxtsdb: &Tsdb, points: &[&Sent]) -> anyhow::Result<()> {
    let request = write_request(points.iter().map(|sent| &sent.sample));
    let answer = oxtsdb.data().write(request).await?.into_inner();
    ensure!(answer.written == points.len() as u64, "{answer:?}");
    Ok(())
}

async fn write_columns(oxtsdb: &Tsdb, points: &[&Sent]) -> anyhow::Result<()> {
    let samples: Vec<Sample> = points.iter().map(|sent| sent.sample.clone()).collect();
    let request = columns_request(ColumnsBuilder::default().columns(&samples));
    let answer = oxtsdb.data().write_columns(request).await?.into_inner();
    ensure!(answer.written == points.len() as u64, "{answer:?}");
    Ok(())
}
