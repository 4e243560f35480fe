//! The start: requests the layout of UIDs and checks it against the settings.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_client::{UidClient, UidLayout};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_schema::{NameRules, UidKind, UidWidth, UidWidths};
use oxtsdb_server::settings::SettingError;
use parking_lot::Mutex;

use super::cache::NameCache;
use super::changes::UidChanges;
use super::in_use::SeriesUse;
use super::outage::Outage;
use super::requests::with_deadline;
use super::{Inner, Uids, UidsError, watch};
use crate::meta::changes::MetaChanges;

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
        let layout = with_deadline(&client, deadline)
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
        let is_random = |kind: &UidKind| layout.kind(*kind).is_some_and(|layout| layout.random);
        let random = UidKind::ALL.into_iter().filter(is_random).collect();
        let uses = Arc::new(SeriesUse::new(widths, random));
        let uids = Uids(Arc::new(Inner {
            client: client.with_uid_use(Arc::clone(&uses) as _),
            uses,
            table_id: layout.table_id,
            layout: settings.tables.row_key_layout(widths).map_err(mismatch)?,
            name_rules: name_rules(&layout),
            auto_create: UidKind::ALL.into_iter().filter(auto_creates).collect(),
            outage: Outage::default(),
            cache: NameCache::new(cache_bytes, settings.naming.cache_ttl()),
            changes: UidChanges::default(),
            meta_changes: MetaChanges::default(),
            series_caches: Mutex::default(),
        }));
        watch::start(&uids).await;
        Ok(uids)
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
