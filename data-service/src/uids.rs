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
mod directory;
mod error;
mod lookup;
mod outage;
mod requests;
pub(crate) mod series;
pub(crate) mod series_cache;

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_client::{UidClient, UidLayout};
use oxtsdb_schema::{NameRules, RowKeyLayout, UidKind, UidWidth, UidWidths};
use oxtsdb_server::settings::SettingError;

pub use error::{UidRejection, UidsError};

use crate::settings::DataSettings;
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
    /// Requests the layout from the service, and starts with empty caches.
    ///
    /// # Errors
    ///
    /// [`UidsError::Unavailable`] and [`UidsError::DeadlineExceeded`] are transient;
    /// [`UidsError::Layout`] means that the service does not match the settings.
    pub async fn connect(
        client: UidClient,
        settings: &DataSettings,
        deadline: Option<Instant>,
    ) -> Result<Uids, UidsError> {
        let layout = requests::with_deadline(&client, deadline)
            .get_uid_layout()
            .await
            .map_err(UidsError::from_client)?;
        let widths = widths(&layout)?;
        let mismatch = |error: SettingError| UidsError::Layout {
            detail: error.to_string(),
        };
        if let Some(expected) = settings
            .tables
            .expected_widths()
            .map_err(mismatch)?
            .filter(|expected| *expected != widths)
        {
            let shown = |widths: UidWidths| format!("{}/{}/{}", widths.metric, widths.tagk, widths.tagv);
            let detail = format!(
                "it has the UID widths {}, --expected-uid-widths says {}",
                shown(widths),
                shown(expected)
            );
            return Err(UidsError::Layout { detail });
        }
        let cache_bytes = u64::try_from(settings.memory.name_cache_mib << 20).unwrap_or(u64::MAX);
        let auto_creates = |kind: &UidKind| layout.kind(*kind).is_some_and(|layout| layout.auto_create);
        Ok(Uids(Arc::new(Inner {
            client,
            layout: settings.tables.row_key_layout(widths).map_err(mismatch)?,
            name_rules: name_rules(&layout),
            auto_create: UidKind::ALL.into_iter().filter(auto_creates).collect(),
            outage: Outage::default(),
            cache: NameCache::new(cache_bytes, settings.naming.cache_ttl()),
        })))
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

    /// Whether writes assign UIDs of this kind.
    pub fn auto_creates(&self, kind: UidKind) -> bool {
        self.0.auto_create.contains(&kind)
    }
}

fn widths(layout: &UidLayout) -> Result<UidWidths, UidsError> {
    let width = |kind| {
        let layout = layout.kind(kind).ok_or_else(|| UidsError::Layout {
            detail: format!("its layout has no kind {kind}"),
        })?;
        UidWidth::new(layout.width).map_err(|error| UidsError::Layout {
            detail: format!("{kind}: {error}"),
        })
    };
    Ok(UidWidths {
        metric: width(UidKind::Metric)?,
        tagk: width(UidKind::Tagk)?,
        tagv: width(UidKind::Tagv)?,
    })
}

fn name_rules(layout: &UidLayout) -> NameRules {
    let max_length = Some(layout.max_name_length).filter(|length| *length > 0);
    NameRules {
        extra_characters: layout.extra_name_characters.clone(),
        max_length: max_length.unwrap_or(NameRules::default().max_length),
    }
}
