//! Many points of a metric, written quickly.

use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::{Columns, DeltaTimestamps, WriteColumnsRequest};

use anyhow::ensure;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use tonic::transport::Channel;

use crate::Tsdb;
use crate::write_requests::columns_request;

/// Points of a request.
const REQUEST_POINTS: usize = 250_000;

/// The most series of a request: names of many series take more memory than their points.
const REQUEST_SERIES: usize = 5000;

/// Requests at a time.
const REQUESTS: usize = 2;

/// Series of one metric, each with a tag `host` and with points at the same instants.
#[derive(Clone, Debug)]
pub struct Load {
    /// The metric.
    pub metric: String,
    /// How many series.
    pub series: usize,
    /// Points of each of them.
    pub points: usize,
    /// The first instant, milliseconds since the epoch.
    pub start_ms: i64,
    /// Between two points, milliseconds.
    pub step_ms: i64,
}

impl Load {
    /// A point a second from 2017-07-14T02:40:00Z.
    pub fn new(metric: &str, series: usize, points: usize) -> Self {
        Self {
            metric: metric.to_owned(),
            series,
            points,
            start_ms: 1_500_000_000_000,
            step_ms: 1000,
        }
    }

    /// Points of all series.
    pub fn total(&self) -> usize {
        self.series * self.points
    }

    /// The first second inside and the first one outside.
    pub fn seconds(&self) -> (i64, i64) {
        let steps = i64::try_from(self.points).unwrap_or(i64::MAX);
        let end_ms = self.start_ms + steps * self.step_ms;
        (self.start_ms / 1000, end_ms / 1000)
    }

    /// The path of an HTTP query over all of it: `part` is what stands before the metric, `sum` for
    /// example.
    pub fn path(&self, part: &str) -> String {
        let (start, end) = self.seconds();
        format!("/api/query?start={start}&end={end}&m={part}:{}", self.metric)
    }

    /// Writes all points; all are acknowledged then.
    ///
    /// # Errors
    ///
    /// If a point is rejected.
    pub async fn write(&self, tsdb: &Tsdb) -> anyhow::Result<()> {
        self.write_with(&tsdb.data()).await
    }

    /// As [`Load::write`], through a client that may be connected already.
    ///
    /// # Errors
    ///
    /// As [`Load::write`].
    pub async fn write_with(&self, client: &DataServiceClient<Channel>) -> anyhow::Result<()> {
        let series = (REQUEST_POINTS / self.points).clamp(1, REQUEST_SERIES);
        let requests = (0..self.series).step_by(series).map(|first| {
            let request = self.request(first, (first + series).min(self.series));
            let mut client = client.clone();
            async move {
                let response = client.write_columns(request?).await?.into_inner();
                ensure!(response.failed == 0, "{response:?}");
                Ok(())
            }
        });
        stream::iter(requests)
            .buffer_unordered(REQUESTS)
            .try_collect()
            .await
    }

    /// The points of some of the series.
    fn request(&self, first: usize, end: usize) -> anyhow::Result<WriteColumnsRequest> {
        let mut columns = Columns {
            new_symbols: vec![self.metric.clone(), "host".to_owned()],
            ..Columns::default()
        };
        for number in first..end {
            let series = u32::try_from(number - first)?;
            columns.new_symbols.push(format!("host{number:05}"));
            columns.new_series.push(SeriesDeclaration {
                metric_symbol: 0,
                tag_symbols: vec![1, series + 2],
                tsuid: Default::default(),
            });
            let number = i64::try_from(number)?;
            let points = 0..i64::try_from(self.points)?;
            let timestamps: Vec<i64> = points
                .clone()
                .map(|point| self.start_ms + point * self.step_ms)
                .collect();
            columns.blocks.push(Block {
                series: vec![series],
                delta_timestamps: DeltaTimestamps::encode(&timestamps),
                int_values: points.map(|point| scattered(number + point * 100_003)).collect(),
                ..Block::default()
            });
        }
        Ok(columns_request(columns))
    }
}

/// A number of up to 16 bits that does not compress well beside its neighbours.
fn scattered(seed: i64) -> i64 {
    let mixed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x1405_7b7e_f767_814f);
    (mixed >> 40) & 0xffff
}
