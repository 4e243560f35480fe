//! The write path over both services and a store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tracking;
mod writer;
