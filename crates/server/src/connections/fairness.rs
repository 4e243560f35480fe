//! Shares of addresses at the limit of connections, by max-min fairness.
//!
//! ```text
//!   limit 6, all busy        a new one of c            a new one of b, then
//!   a a a a a b         ─►   a a a a b c          ─►   a a a b b c  ─►  a new one of b is rejected
//! ```
//!
//! An address below the largest by two or more takes a connection from it, which leaves the largest with as many or
//! more: two addresses never take the same connection from each other in turn. Behind a proxy all clients have its
//! address, and none displaces another. A connection that was accepted and has not sent its request yet is idle: an
//! address with as many connections cannot evict it at once ([`JUST_IDLE`]), and its own address does so last.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::state::State;

/// Time in which an idle connection is not evicted for an address with as many connections or more.
pub(super) const JUST_IDLE: Duration = Duration::from_secs(1);

/// The shares of addresses in the open connections, and the share of a new connection's address.
pub(super) struct Shares {
    address: IpAddr,
    counts: HashMap<IpAddr, usize>,
}

impl Shares {
    /// Counts the connections that stay open, for a new one of this address.
    pub(super) fn new<'a>(address: IpAddr, open: impl Iterator<Item = &'a Arc<State>>) -> Self {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for state in open.filter(|state| !state.is_cut()) {
            *counts.entry(state.address).or_default() += 1;
        }
        Self { address, counts }
    }

    fn count(&self, address: IpAddr) -> usize {
        self.counts.get(&address).copied().unwrap_or_default()
    }

    /// Whether the new connection evicts one of this address that has only just become idle.
    pub(super) fn may_evict(&self, address: IpAddr) -> bool {
        self.count(address) > self.count(self.address)
    }

    /// The busy connection that the new one displaces: the newest of the address with the most, so that the latest of
    /// its clients wait. `None` if the new one's address has its share.
    pub(super) fn displaced<'a>(&self, open: impl Iterator<Item = &'a Arc<State>>) -> Option<&'a Arc<State>> {
        let (largest, most) = self.counts.iter().max_by_key(|(_, count)| **count)?;
        if self.count(self.address) + 1 >= *most {
            return None;
        }
        open.filter(|state| state.address == *largest && !state.is_cut())
            .max_by_key(|state| state.opened_ms())
    }
}
