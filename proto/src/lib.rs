//! OxTSDB's gRPC contract: generated types, rich errors and the bounds of requests.
//!
//! The `.proto` files in `oxtsdb/` say what each call means; this crate compiles them without
//! `protoc`.

mod bounded_codec;
mod bounds;
mod conversions;
pub mod deadline;
pub mod decode_memory;
mod delta_timestamps;
pub mod error;
pub mod rejection;
mod rpc;
pub mod serve;
pub mod update_mask;
pub mod write_view;

pub use bounded_codec::{EncodedCodec, EncodedDecoder, EncodedEncoder, decode_request};
pub use conversions::{uid_kind, uid_kind_name};
pub use rpc::Rpc;

#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

pub use generated::oxtsdb::{common, data, uid};

/// The compiled contract as an encoded `google.protobuf.FileDescriptorSet`, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/oxtsdb.fds"));

/// gRPC's service config of the contract, as JSON: the deadline and the retry policy of each method.
pub const SERVICE_CONFIG: &str = include_str!("../service_config.json");
