//! Typed client of OxTSDB's gRPC services.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod call;
mod data;
mod error;
mod health;
mod point;
mod query;
mod results;
mod retry;
mod series;
mod service_config;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod uid;

pub use builder::ClientBuilder;
pub use data::DataClient;
pub use error::{Error, FieldViolation, Rejection};
pub use health::{Health, HealthClient};
pub use point::{Point, Timestamp, Value};
pub use query::{
    DamagedRow, ExpressionFrame, ExpressionResult, ExpressionSeries, LastPoint, LastPointOutcome, Points,
    QueryFrame, QueryResult, Series, SeriesPoints, Statistics, Values,
};
pub use results::Results;
pub use series::SeriesName;
pub use stream::{Acknowledged, FailedPoint, StreamOptions, StreamWriter, WriteReport};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use tls::TlsOptions;
pub use uid::{AssignedUid, KindLayout, KindUsage, SuggestPage, UidClient, UidLayout, UidMapping};

pub use oxtsdb_proto::common::v1::ErrorReason;
pub use oxtsdb_schema::{Uid, UidKind};
pub use tonic::Code;

/// The contract's messages, which requests are made of.
pub use oxtsdb_proto as proto;
