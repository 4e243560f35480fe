//! What the end-to-end tests share: the real programs on free ports and in folders of their own,
//! and clients for every door.
//!
//! ```text
//!   Tsdb::start ─► program    finds the binary (and builds it, if it is missing or stale)
//!               ─► process    runs it, keeps its log, ends it in Drop
//!               ─► wait       until every service says SERVING
//!   Tsdb::{data, uids, http, telnet} ─► the doors
//!   sample                  one point in the form of each door
//!   read_back               what is stored, asked by query and by scan
//! ```

pub mod health;
pub mod http;
mod ports;
pub mod process;
mod program;
pub mod random;
pub mod raw_grpc;
pub mod read_back;
pub mod sample;
pub mod stream;
mod telnet;
mod tsdb;
mod two_programs;
mod wait;

pub use program::path as program_path;
pub use telnet::Telnet;
pub use tsdb::{Options, Tsdb};
pub use two_programs::{DataProgram, UidProgram};
pub use wait::{PATIENCE, until};
