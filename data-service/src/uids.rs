//! Names and UIDs, looked up at the UID service and cached.
//!
//! ```text
//!   query ──► lookup ──► cache ── missing ──────────► requests ──► UID service
//!   write ──► lookup ──► cache ── missing ─► outage ─► requests ──► UID service
//! ```
//!
//! A mapping never changes unless an operator renames or deletes it, which the UID service does not announce.
//! Cached mappings therefore expire a set time after they were loaded. "Not found" expires after a second: another
//! client may be assigning the name. Concurrent look-ups of one name may each send a request; the UID service
//! coalesces them.

mod cache;
mod connect;
mod directory;
mod error;
mod lookup;
mod meta;
mod outage;
mod requests;
pub(crate) mod series;
pub(crate) mod series_cache;

use std::sync::Arc;

use oxtsdb_client::UidClient;
use oxtsdb_schema::{NameRules, RowKeyLayout, UidKind, UidWidths};

pub(crate) use directory::name_error;
pub use error::{ExceededQuota, UidRejection, UidsError};

use cache::NameCache;
use outage::Outage;

/// Look-ups at the UID service. Cloning is cheap, clones share the caches.
#[derive(Clone, Debug)]
pub struct Uids(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: UidClient,
    layout: RowKeyLayout,
    name_rules: NameRules,
    /// Kinds of which writes assign UIDs.
    auto_create: Vec<UidKind>,
    /// The availability of the service to writes.
    outage: Outage,
    cache: NameCache,
}

impl Uids {
    /// The layout of row keys: UID widths of the service, salt of the settings.
    pub fn layout(&self) -> &RowKeyLayout {
        &self.0.layout
    }

    /// The UID widths of the deployment.
    pub fn widths(&self) -> &UidWidths {
        &self.0.layout.widths
    }

    /// Which names the deployment accepts.
    pub fn name_rules(&self) -> &NameRules {
        &self.0.name_rules
    }

    /// Forgets all names and UIDs. Those that are being looked up meanwhile may be cached again.
    pub(crate) fn drop_caches(&self) {
        self.0.cache.clear();
    }

    /// Whether writes assign UIDs of this kind.
    pub fn auto_creates(&self, kind: UidKind) -> bool {
        self.0.auto_create.contains(&kind)
    }
}
