//! Tokens that were verified before, so that a client's calls cost one signature in all.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// The most tokens. When there are more, all are verified again.
const MAX_TOKENS: usize = 10_000;

/// Verified tokens, by their hash: the tokens themselves are not kept.
#[derive(Default)]
pub(super) struct SeenTokens(Mutex<HashMap<[u8; 32], Seen>>);

struct Seen {
    names: Vec<Box<str>>,
    /// Since the epoch.
    until: Duration,
}

impl std::fmt::Debug for SeenTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SeenTokens")
    }
}

impl SeenTokens {
    pub(super) fn get(&self, token: &[u8], now: Duration) -> Option<Vec<Box<str>>> {
        let seen = self.0.lock();
        let seen = seen.get(&hash(token)).filter(|seen| now < seen.until)?;
        Some(seen.names.clone())
    }

    /// Keeps a token, unless the keys that verified it have been replaced.
    pub(super) fn insert(
        &self,
        token: &[u8],
        names: &[Box<str>],
        until: Duration,
        has_same_keys: impl FnOnce() -> bool,
    ) {
        let mut seen = self.0.lock();
        if !has_same_keys() {
            return;
        }
        if seen.len() >= MAX_TOKENS {
            seen.clear();
        }
        let names = names.to_vec();
        seen.insert(hash(token), Seen { names, until });
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}
