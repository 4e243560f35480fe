//! Writes a point of two series each, and prints their sum.
//!
//! Run it against `tsdb serve`: `cargo run -p oxtsdb-client --example quickstart [URL]`.

use std::time::Duration;

use oxtsdb_client::{AggregateFunction, DataClient, Point, Query, SeriesName, Timestamp};

#[tokio::main]
async fn main() -> Result<(), oxtsdb_client::Error> {
    let url = std::env::args().nth(1);
    let client = DataClient::connect(url.as_deref().unwrap_or("http://127.0.0.1:4243"))?;

    let now = Timestamp::now();
    let hosts = ["web01", "web02"].map(|host| SeriesName::new("sys.cpu.nice", [("host", host)]));
    let points = hosts.iter().map(|series| Point::new(series, now, 18));
    println!("{} points written", client.write(points).await?.written);

    let query = Query::last(Duration::from_secs(3600)).metric("sys.cpu.nice", AggregateFunction::Sum);
    for sum in client.query(query).await?.into_result().await?.series {
        for (timestamp, value) in sum.points {
            println!("{} {} {}", sum.series.metric, timestamp.millis(), value.as_f64());
        }
    }
    Ok(())
}
