//! Names and UIDs, looked up at the UID service and cached.
//!
//! ```text
//!   query ──► lookup ──► cache ── missing ──────────► requests ──► UID service
//!   write ──► lookup ──► cache ── missing ─► outage ─► requests ──► UID service
//! ```
//!
//! A mapping never changes unless an operator renames or deletes it. The UID service reports that in a watch
//! (`watch`), and what has changed is removed from the caches. Changes by other programs are not reported: cached
//! mappings expire a set time after they were loaded. "Not found" expires after a second: another
//! client may be assigning the name. Concurrent look-ups of one name may each send a request; the UID service
//! coalesces them.

mod cache;
pub mod changes;
mod connect;
mod custom_fields;
mod directory;
mod error;
mod in_use;
mod limited;
mod lookup;
mod meta;
mod outage;
mod requests;
pub mod series;
pub mod series_cache;
mod watch;

use std::sync::{Arc, Weak};
use std::time::Duration;

use oxtsdb_client::UidClient;
use oxtsdb_schema::{NameRules, RowKeyLayout, UidKind, UidWidths};

pub(crate) use directory::name_error;
pub use error::{ExceededQuota, UidRejection, UidsError};
pub use limited::limited_engine;

use crate::meta::changes::MetaChanges;
use cache::NameCache;
use changes::UidChanges;
use outage::Outage;
use parking_lot::Mutex;
use series_cache::SeriesCache;
use tracing::warn;

/// How long the UID service may take to drop its cache.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Look-ups at the UID service. Cloning is cheap, clones share the caches.
#[derive(Clone, Debug)]
pub struct Uids(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: UidClient,
    /// The UIDs of the series here; part of the client's requests.
    uses: Arc<in_use::SeriesUse>,
    /// The identity of the table of UIDs when this process started; 0: unknown.
    table_id: u64,
    layout: RowKeyLayout,
    name_rules: NameRules,
    /// Kinds that writes assign UIDs of.
    auto_create: Vec<UidKind>,
    /// The availability of the service to writes.
    outage: Outage,
    cache: NameCache,
    /// The UIDs that were removed from the caches.
    changes: UidChanges,
    /// Changes of metadata, for the text search.
    meta_changes: MetaChanges,
    /// Caches of series; their UIDs are from `cache`.
    series_caches: Mutex<Vec<Weak<SeriesCache>>>,
}

impl Uids {
    /// Whether calls of writes to the UID service succeed.
    pub fn is_available(&self) -> bool {
        !self.0.outage.is_on()
    }

    /// Entries of the cache of names, by their kinds.
    pub fn cached_entries(&self) -> [(UidKind, u64); 3] {
        UidKind::ALL.map(|kind| (kind, self.0.cache.entries(kind)))
    }

    /// About the bytes of the cache of names.
    pub fn cached_bytes(&self) -> u64 {
        self.0.cache.byte_len()
    }

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

    /// Forgets all names, UIDs and series, also the results of look-ups in progress, and the cache of the UID service's
    /// replica that takes the call.
    pub async fn drop_caches(&self) {
        // First, so that its old mappings are not cached here again.
        if let Err(error) = self.0.client.with_timeout(DROP_TIMEOUT).drop_caches().await {
            warn!(%error, "the UID service keeps its cached names");
        }
        watch::forget_everything(self).await;
    }

    /// Which mappings have changed.
    pub fn changes(&self) -> &UidChanges {
        &self.0.changes
    }

    /// Announcements of changes of metadata.
    pub fn meta_changes(&self) -> &MetaChanges {
        &self.0.meta_changes
    }

    /// Removes mappings that have changed from this cache, too.
    pub fn keep_coherent(&self, cache: &Arc<SeriesCache>) {
        self.0.series_caches.lock().push(Arc::downgrade(cache));
    }

    fn each_series_cache(&self, action: impl Fn(&SeriesCache)) {
        let caches = self.0.series_caches.lock().clone();
        caches
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|cache| action(&cache));
    }

    /// Whether writes assign UIDs of this kind.
    pub fn auto_creates(&self, kind: UidKind) -> bool {
        self.0.auto_create.contains(&kind)
    }
}
