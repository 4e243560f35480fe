//! Typed client of OxTSDB's gRPC services, for Rust programs.
//!
//! | client | service |
//! |---|---|
//! | [`DataClient`] | points: [`write`](DataClient::write), [`stream_writer`](DataClient::stream_writer), [`query`](DataClient::query), expressions, last points, stored rows; [`annotations`](DataClient::annotations); series: [`lookup_series`](DataClient::lookup_series), export, numbers |
//! | [`UidClient`] | names and UIDs: assign, look up, suggest, export, rename, delete, [watch](UidClient::watch), layout, usage |
//! | [`HealthClient`] | gRPC health checks |
//!
//! ```no_run
//! use std::time::Duration;
//! use oxtsdb_client::{AggregateFunction, DataClient, Point, Query, SeriesName, Timestamp};
//!
//! # async fn run() -> Result<(), oxtsdb_client::Error> {
//! let client = DataClient::connect("http://127.0.0.1:4243")?;
//! let series = SeriesName::new("sys.cpu.nice", [("host", "web01")]);
//! let report = client.write([Point::new(&series, Timestamp::now(), 18)]).await?;
//! assert!(report.is_complete());
//!
//! let query = Query::last(Duration::from_secs(3600)).metric("sys.cpu.nice", AggregateFunction::Sum);
//! let result = client.query(query).await?.into_result().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A client connects with its first call and reconnects as needed. [`ClientBuilder`] has its options: several
//! endpoints with load balancing, TLS, deadlines, retries, compression. Deadlines and retries default to those
//! of the contract's `service_config.json`, which clients in other languages load.
//!
//! [`Error::is_retry_safe`] says of every failure whether the same call can be sent again, also of failures
//! within a stream and, as [`Rejection::is_retry_safe`], of single points and names.
//!
//! # Features
//!
//! `tls`: connections to `https://` endpoints, by rustls with ring. It needs no system library.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod annotation;
mod builder;
mod call;
mod data;
mod error;
mod failures;
mod health;
mod lookup;
mod point;
mod query;
mod references;
mod results;
mod retry;
mod series;
mod series_meta;
mod service_config;
mod store_admin;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod tree;
mod uid;
mod write;

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use annotation::{Annotation, AnnotationPage};
pub use builder::ClientBuilder;
pub use data::DataClient;
pub use error::Error;
pub use health::{Health, HealthClient};
pub use lookup::{FoundSeries, SeriesPage, SeriesSelector};
pub use point::{Point, Timestamp, Value};
pub use query::{
    DamagedRow, ExpressionFrame, ExpressionResult, ExpressionSeries, LastPoint, LastPointOutcome, Points,
    Query, QueryFrame, QueryResult, Series, SeriesPoints, Statistics, Values,
};
pub use references::ReferencedUids;
pub use results::Results;
pub use series::SeriesName;
pub use series_meta::{PurgedMeta, SyncedMeta};
pub use store_admin::CheckedStore;
pub use stream::{Acknowledged, FailedPoint, StreamOptions, StreamWriter, WriteReport};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use tls::TlsOptions;
pub use uid::{
    KindLayout, KindUsage, NewName, PurgedUidMeta, QuotaUsage, ReclaimState, ReclaimedUid, SuggestPage,
    UidClient, UidEvent, UidLayout, UidMapping, UidUsage, UidUse, UidWatch, WatchOptions, WatchUpdate,
};
pub use write::{Aggregate, Rollup};

pub use oxtsdb_proto::common::v1::ErrorReason;
pub use oxtsdb_proto::data::v1::percentile::Estimator;
pub use oxtsdb_proto::data::v1::{AggregateFunction, Aggregator, QueryRequest};
pub use oxtsdb_proto::rejection::{FieldViolation, Rejection};
pub use oxtsdb_schema::uid_meta::{Custom, UidMetaAction};
pub use oxtsdb_schema::{AssignedUid, KindState, Uid, UidKind, UidMeta, UidSet};
pub use tonic::Code;

/// The contract's messages, which requests are made of.
pub use oxtsdb_proto as proto;
