//! Tests that queries over gRPC and HTTP, `QueryLast` and `ScanRows` read all that OpenTSDB stores in a table.
//!
//! The cells are recorded from OpenTSDB 2.4.1 on HBase and written to a memory store; the expected results are
//! OpenTSDB's.

mod damage;
mod forms;
mod layouts;

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::data_service_server::DataServiceServer;
use oxtsdb_proto::data::v1::query_response::{self, Frame};
use oxtsdb_proto::data::v1::scan_rows_request;
use oxtsdb_proto::data::v1::sub_query::{self, MetricSource};
use oxtsdb_proto::data::v1::{
    AggregateFunction, CellView, QueryRequest, ScanRowsRequest, StoredRow, SubQuery,
};
use oxtsdb_query::last::search::{self as last, LookBack};
use oxtsdb_query::{Budget, Engine, Limits, QueryContext};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore as _, TableName, WriteBatch};
use oxtsdb_schema::{RowKeyRef, Tsuid, UidKind};
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use serde_json::json;
use tonic::Status;
use uid_service::UidSettings;

use crate::grpc::DataServiceHandler;
use crate::test_handlers::data_handler;

/// The hour of the rows: 2013-01-01 00:00 UTC, `50e22700`.
const HOUR_MS: i64 = 1_356_998_400_000;

/// A cell: qualifier and value in hex, the timestamp that the store gave it.
type Cell = (&'static str, &'static str, i64);

/// A value of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Int(i64),
    Double(f64),
}

use Number::{Double, Int};

/// Points by milliseconds since the hour, or since the epoch.
type Points = Vec<(i64, Number)>;

/// A service over tables with rows.
struct Tsdb {
    store: MemoryStore,
    table: TableName,
    engine: Engine,
    grpc: DataServiceClient<DataServiceServer<DataServiceHandler>>,
    http: Service,
}

impl Tsdb {
    /// A service with names that have the UIDs 1, 2, ... of their kind, in the order given.
    async fn start(
        settings: DataSettings,
        uid_settings: UidSettings,
        metrics: &[&str],
        tagks: &[&str],
        tagvs: &[&str],
    ) -> Self {
        let table = settings.tables.data_table_name().unwrap();
        let stack = TestStack::with(settings, uid_settings).await;
        for (kind, names) in [
            (UidKind::Metric, metrics),
            (UidKind::Tagk, tagks),
            (UidKind::Tagv, tagvs),
        ] {
            let names: Vec<_> = names.iter().map(|name| (kind, *name)).collect();
            let uids = stack
                .service
                .uids
                .assign_for(&names, |_| None, None)
                .await
                .unwrap();
            assert!(uids.iter().all(Result::is_ok));
        }
        Self {
            store: stack.store.clone(),
            table,
            engine: stack.service.engine.clone(),
            grpc: DataServiceClient::new(DataServiceServer::new(data_handler(&stack), 4 << 20)),
            http: Service::from_stack(stack).await,
        }
    }

    /// Stores a row, its key in hex, and the row of its series in `tsdb-meta`.
    async fn plant(&self, row_key: &str, cells: &[Cell]) {
        let row_key = hex::decode(row_key).unwrap();
        let layout = &self.engine.storage().layout;
        let tsuid = RowKeyRef::decode(&row_key, layout)
            .ok()
            .and_then(|key| key.tsuid().ok());
        if let Some(tsuid) = tsuid {
            let mut batch = WriteBatch::new(self.engine.storage().meta_table.clone());
            let family = batch.family("name");
            batch.row(tsuid.as_bytes()).put(family, b"ts_ctr", &[0; 8]);
            self.store.write(batch).await.unwrap();
        }
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family("t");
        batch.row(&row_key);
        for (qualifier, value, timestamp_ms) in cells {
            let (qualifier, value) = (hex::decode(qualifier).unwrap(), hex::decode(value).unwrap());
            batch.put_at(family, &qualifier, *timestamp_ms, &value);
        }
        self.store.write(batch).await.unwrap();
    }

    /// Queries each series of a metric by itself, in the hour and the next one: its points by the value of a tag, and
    /// the statistics of the query.
    async fn query(
        &self,
        metric: &str,
        tagk: &str,
    ) -> Result<(BTreeMap<String, Points>, query_response::Statistics), Status> {
        let request = QueryRequest {
            range: Some(range(HOUR_MS, HOUR_MS + 7_200_000)),
            queries: vec![SubQuery {
                source: Some(sub_query::Source::Metric(metric_source(metric))),
                aggregator: Some(AggregateFunction::None.into()),
                ..SubQuery::default()
            }],
            ..QueryRequest::default()
        };
        let frames: Vec<_> = self
            .grpc
            .clone()
            .query(request)
            .await?
            .into_inner()
            .try_collect()
            .await?;
        let (mut names, mut all, mut statistics) = (Vec::new(), BTreeMap::new(), None);
        for frame in frames.into_iter().map(|message| message.frame.unwrap()) {
            match frame {
                Frame::Series(series) => {
                    let name = series.tags[tagk].clone();
                    all.insert(name.clone(), Points::new());
                    names.push(name);
                }
                Frame::Points(block) => {
                    let ints = block.int_values.iter().map(|int| Int(*int));
                    let values = ints.chain(block.values.iter().map(|double| Double(*double)));
                    let points = all.get_mut(&names[block.series as usize]).unwrap();
                    for (time_ms, value) in block.timestamps_ms.iter().zip(values) {
                        points.push((time_ms - HOUR_MS, value));
                    }
                }
                Frame::Annotations(_) | Frame::Done(_) => {}
                Frame::Statistics(read) => statistics = Some(read),
            }
        }
        Ok((all, statistics.unwrap()))
    }

    /// One series over HTTP.
    async fn http_query(&self, metric: &str, tagk: &str, tagv: &str) -> HttpResponse {
        let query = json!({
            "start": HOUR_MS,
            "end": HOUR_MS + 7_200_000,
            "msResolution": true,
            "queries": [{"aggregator": "none", "metric": metric, "tags": {tagk: tagv}}],
        });
        self.http.post("/api/query", query.to_string()).await
    }

    /// The time of the last point of a series, its TSUID in hex, since the hour.
    async fn last(&self, tsuid: &str) -> Option<i64> {
        let tsuid = Tsuid::parse(tsuid, &self.engine.storage().layout.widths).unwrap();
        let look_back = LookBack {
            from_ms: HOUR_MS,
            now_ms: HOUR_MS + 7_200_000,
        };
        let context = QueryContext::unregistered(Budget::from_limits(Limits::NONE));
        let (storage, compute) = (self.engine.storage(), &self.engine.resources().compute);
        let last = last::find_last_point(storage, &tsuid, look_back, &context, compute).await;
        let last = last.unwrap();
        last.map(|point| point.time_ms - HOUR_MS)
    }

    /// The rows of a metric, their cells decoded.
    async fn scan(&self, metric: &str) -> Vec<StoredRow> {
        let source = scan_rows_request::Source::Metric(metric_source(metric));
        let request = ScanRowsRequest {
            source: Some(source),
            range: Some(range(HOUR_MS, HOUR_MS + 7_200_000)),
            view: CellView::Full.into(),
            ..ScanRowsRequest::default()
        };
        let messages = self.grpc.clone().scan_rows(request).await.unwrap().into_inner();
        let messages: Vec<_> = messages.try_collect().await.unwrap();
        messages.into_iter().flat_map(|message| message.rows).collect()
    }
}

fn range(start_ms: i64, end_ms: i64) -> TimeRange {
    TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        end: Some(time_range::End::EndMs(end_ms)),
    }
}

fn metric_source(metric: &str) -> MetricSource {
    MetricSource {
        metric: metric.to_owned(),
        filters: Vec::new(),
        explicit_tags: false,
    }
}

/// The points of an HTTP response with one series, by milliseconds since the hour.
fn http_points(response: &HttpResponse) -> Points {
    assert_eq!(response.status, 200, "{}", response.text());
    let json = response.json();
    let Some(dps) = json[0]["dps"].as_object() else {
        return Points::new();
    };
    let mut points: Points = dps
        .iter()
        .map(|(time_ms, value)| {
            let value = value
                .as_i64()
                .map_or_else(|| Double(value.as_f64().unwrap()), Int);
            (time_ms.parse::<i64>().unwrap() - HOUR_MS, value)
        })
        .collect();
    points.sort_by_key(|(time_ms, _)| *time_ms);
    points
}

/// Points as HTTP returns them: as in OpenTSDB, an integer before a floating point number is returned as floating
/// point too.
fn as_returned(points: &[(i64, Number)]) -> Points {
    let mut returned = points.to_vec();
    for place in 0..returned.len().saturating_sub(1) {
        if let (Int(int), Double(_)) = (returned[place].1, returned[place + 1].1) {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let double = int as f64;
            returned[place].1 = Double(double);
        }
    }
    returned
}
