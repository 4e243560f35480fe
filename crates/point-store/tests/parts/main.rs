//! The embedded engine: the conformance suite on real and simulated disks, histories with crashes and power loss, flipped bits,
//! limits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod flips;
mod histories;
mod limits;
mod snapshots;
mod steps;
mod support;
