//! State that the calls share.

use std::borrow::Cow;
use std::sync::Arc;

use oxtsdb_access::{Access, MetricScope};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::Writer;
use oxtsdb_ingest::columns::TablesLimits;
use oxtsdb_maintenance::fsck::Fsck;
use oxtsdb_maintenance::rollup::build::RollupShared;
use oxtsdb_metadata::annotation::Annotations;
use oxtsdb_metadata::uids::limited_engine;
use oxtsdb_query::Engine;
use oxtsdb_server::Shutdown;
use tonic::Extensions;

/// Serves `oxtsdb.data.v1.DataService`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct DataServiceHandler {
    pub(super) writer: Writer,
    pub(super) engine: Engine,
    pub(super) settings: Arc<DataSettings>,
    pub(super) shutdown: Shutdown,
    pub(super) fsck: Fsck,
    pub(super) rollups: RollupShared,
}

impl DataServiceHandler {
    /// A handler over the domain's parts.
    pub fn new(writer: Writer, engine: Engine, settings: Arc<DataSettings>, shutdown: Shutdown) -> Self {
        let fsck = Fsck::from_engine(&engine);
        Self {
            fsck,
            rollups: RollupShared::default(),
            writer,
            engine,
            settings,
            shutdown,
        }
    }

    /// This handler as the caller of a request may use it: limited to the metrics that its rights name, and to
    /// the sight of its own queries.
    pub(super) fn for_caller(&self, extensions: &Extensions) -> Cow<'_, Self> {
        let access = extensions.get::<Access>();
        let Some(access) = access.filter(|access| access.is_limited()) else {
            return Cow::Borrowed(self);
        };
        let mut limited = self.clone();
        if let Some(scope) = &access.metrics {
            limited.writer = self.writer.limited_to(scope);
            limited.engine = limited_engine(&self.engine, scope);
        }
        if let Some(caller) = &access.queries_of {
            limited.engine = limited.engine.with_queries_of(caller);
        }
        Cow::Owned(limited)
    }

    /// Checks of rows; one runs at a time.
    pub const fn fsck(&self) -> &Fsck {
        &self.fsck
    }

    /// The state that its builds of rollups share with others of the process.
    pub const fn rollups(&self) -> &RollupShared {
        &self.rollups
    }

    /// The largest message that is read, in bytes.
    pub(crate) fn max_message_bytes(&self) -> usize {
        self.settings.connections.max_message_bytes()
    }

    /// Annotations, to be changed.
    pub(super) fn annotations(&self) -> Annotations {
        Annotations::from_engine(&self.engine).announcing(self.writer.meta_table().changes())
    }

    /// The limits of a write's tables.
    pub(super) fn tables_limits(&self) -> TablesLimits {
        TablesLimits {
            series: self.settings.streams.stream_max_series as usize,
            symbol_bytes: self.settings.streams.max_symbol_bytes(),
            tags: self.writer.max_tags(),
            ttl: self.settings.naming.cache_ttl(),
        }
    }
}

/// The metrics that the rights of a request's caller name; `None`: all of them.
pub(super) fn scope_of(extensions: &Extensions) -> Option<&MetricScope> {
    let access = extensions.get::<Access>()?;
    access.metrics.as_ref()
}
