//! The program as it is: real processes, sockets and folders.

#![expect(clippy::unwrap_used, reason = "what does not work fails the test")]

mod commands;
mod harness;
mod help;
mod import;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet_file.rs")]
mod parquet_file;
mod serve;
mod tables;
mod trees;
