//! Errors of fields that several messages of queries share.

use oxtsdb_proto::error::invalid_field;
use tonic::Status;

pub(in crate::grpc) fn missing(field: &str) -> Status {
    invalid_field(field, "is missing")
}

pub(in crate::grpc) fn no_such(field: &str, number: i32) -> Status {
    invalid_field(field, format!("is {number}, expected one of the named values"))
}

pub(in crate::grpc) fn count(field: &str, actual: usize, most: usize) -> Status {
    invalid_field(field, format!("has {actual} items, expected 1 to {most}"))
}
