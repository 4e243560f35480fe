//! Free ports that stay reserved across a restart.
//!
//! Port 0 would give a new port with each start, from the range that outgoing connections use too;
//! between a kill and the restart one of those could take it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::bail;

/// Below the range of outgoing connections of Linux (32768 and up).
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// Returns a loopback address with a free port.
///
/// # Errors
///
/// If all are in use.
pub(crate) fn free() -> anyhow::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at once start far from each other.
    let offset = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + offset.wrapping_add(step) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port from {FIRST} to {} is free", FIRST + COUNT - 1)
}
