//! The parameters of [`Uids`](crate::uids::Uids), checked.

use std::time::Duration;

use oxtsdb_row_store::{TableName, TableNameError};

use crate::cache::CacheLimits;
use crate::change::LogRetention;
use crate::layout::UidLayout;
use crate::policy::watch::PolicySource;

/// Tables, format and limits of a deployment's UIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidConfig {
    /// Table of the UIDs.
    pub table: TableName,
    /// The service's own state: the name of the table of UIDs and `-state`.
    pub state_table: TableName,
    /// Widths of UIDs, and the rules of names.
    pub layout: UidLayout,
    /// Size and expiry of the cache.
    pub cache: CacheLimits,
    /// How long a UID is in quarantine.
    pub quarantine: Duration,
    /// Where the rules of new names are.
    pub policy: PolicySource,
    /// Which renames and deletes the log keeps.
    pub log_retention: LogRetention,
    /// Open watches at most.
    pub max_watches: usize,
    /// The pause between two scans for changes by other programs; `None`: no scans.
    pub scan_interval: Option<Duration>,
}

impl UidConfig {
    /// The UIDs of a table, with the service's default settings.
    ///
    /// # Errors
    ///
    /// With `-state`, the name is none of a table.
    pub fn new(table: TableName) -> Result<Self, TableNameError> {
        Ok(Self {
            state_table: format!("{table}-state").parse()?,
            table,
            layout: UidLayout::default(),
            cache: CacheLimits {
                bytes: 128 << 20,
                ttl: Some(Duration::from_secs(300)),
            },
            quarantine: Duration::from_secs(86_400),
            policy: PolicySource::default(),
            log_retention: LogRetention {
                entries: 10_000,
                age: Duration::from_secs(168 * 3600),
            },
            max_watches: 128,
            scan_interval: Some(Duration::from_secs(300)),
        })
    }
}
