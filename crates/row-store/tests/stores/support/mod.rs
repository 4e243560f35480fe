//! Helpers for the tests of the stores.

#![allow(unreachable_pub, reason = "the tests are one program")]
pub mod fake_gateway;
pub mod files;
pub mod proxy;
pub mod reply;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A latch, closed until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Opens the gate for good.
    pub fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    /// Waits up to `time` for it to open.
    pub fn is_open_within(&self, time: Duration) -> bool {
        let mut open = self.0.0.lock();
        self.0.1.wait_while_for(&mut open, |open| !*open, time);
        *open
    }

    /// Waits until it is open.
    pub fn pass(&self) {
        self.0.1.wait_while(&mut self.0.0.lock(), |open| !*open);
    }
}

/// The gateways of a real HBase, which `tests/hbase/rig.sh run` sets.
pub fn real_gateways() -> Vec<String> {
    let gateways =
        std::env::var("OXTSDB_TEST_HBASE").expect("OXTSDB_TEST_HBASE names HBase's Thrift gateways");
    gateways.split(',').map(str::to_owned).collect()
}
