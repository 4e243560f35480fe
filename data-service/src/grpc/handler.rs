//! What the calls share.

use std::sync::Arc;

use oxtsdb_server::Shutdown;

use crate::annotation::Annotations;
use crate::fsck::Fsck;
use crate::settings::DataSettings;
use crate::write::Writer;
use crate::write::columns::TablesLimits;
use oxtsdb_query::Engine;

/// Serves `oxtsdb.data.v1.DataService`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct DataServiceHandler {
    pub(super) writer: Writer,
    pub(super) engine: Engine,
    pub(super) settings: Arc<DataSettings>,
    pub(super) shutdown: Shutdown,
    pub(super) fsck: Fsck,
}

impl DataServiceHandler {
    /// A handler over the domain's parts.
    pub fn new(writer: Writer, engine: Engine, settings: Arc<DataSettings>, shutdown: Shutdown) -> Self {
        let fsck = Fsck::of(&engine);
        Self {
            fsck,
            writer,
            engine,
            settings,
            shutdown,
        }
    }

    /// The largest message that is read, in bytes.
    pub(crate) fn max_message_bytes(&self) -> usize {
        self.settings.connections.max_message_bytes()
    }

    /// Annotations, to be changed.
    pub(super) fn annotations(&self) -> Annotations {
        Annotations::of(&self.engine).announcing(self.writer.meta_table().changes())
    }

    /// What the tables of a write may grow to.
    pub(super) fn tables_limits(&self) -> TablesLimits {
        TablesLimits {
            series: self.settings.streams.stream_max_series as usize,
            symbol_bytes: self.settings.streams.max_symbol_bytes(),
            tags: self.writer.max_tags(),
            ttl: self.settings.naming.cache_ttl(),
        }
    }
}
