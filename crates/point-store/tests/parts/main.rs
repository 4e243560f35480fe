//! The embedded engine: the conformance suite on real and simulated disks, histories with crashes, power loss and failed
//! operations, flipped bits, lost files, older formats, limits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod faults;
mod flips;
mod formats;
mod histories;
mod limits;
mod losses;
mod snapshots;
mod steps;
mod support;
