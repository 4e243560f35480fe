//! Requests shared by the tests of each call.

mod any_columns;
mod columns;
mod encoded;
mod series;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::{
    self as pb, Columns, DeltaTimestamps, Failures, TimeUnit, WriteColumnsRequest, WriteRequest,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_test_stack::{Gate, TestStack};
use tonic::Code;
use uid_service::UidSettings;

use super::*;

/// Milliseconds, any time.
fn options() -> pb::WriteOptions {
    pb::WriteOptions {
        time_unit: TimeUnit::Milliseconds.into(),
        allow_any_time: true,
        ..pb::WriteOptions::default()
    }
}

fn columns_request(columns: Columns) -> WriteColumnsRequest {
    WriteColumnsRequest {
        columns: Some(columns),
        options: Some(options()),
    }
}

/// First point, count, reason and message of each error.
fn errors(failures: &Failures) -> Vec<(u64, u64, ErrorReason, &str)> {
    failures
        .errors
        .iter()
        .map(|error| {
            let item = error.error.as_ref().unwrap();
            assert_eq!(item.code, Code::InvalidArgument as i32, "{item:?}");
            (error.first, error.count, item.reason(), item.message.as_str())
        })
        .collect()
}
