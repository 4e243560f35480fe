//! All stores: one conformance suite, histories with failures, damage, HBase and its gateways.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cells;
mod crash;
mod damage;
mod expiry;
mod folder;
mod hbase;
mod hbase_gateways;
mod hbase_hostile;
mod hbase_kerberos;
mod hbase_native;
mod hbase_scan;
mod hbase_tls;
mod intercept;
mod journal;
mod memory;
mod model;
mod process_limits;
mod support;
