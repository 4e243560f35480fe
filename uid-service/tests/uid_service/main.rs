//! The UID service through its client and as a program, on each store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod meta;
mod policy;
mod program;
mod service;
mod support;
mod vectors;
