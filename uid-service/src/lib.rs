//! The UID service: names of metrics, tag keys and tag values, and the UIDs that stand for them in
//! row keys. It owns table `tsdb-uid`.
//!
//! ```text
//!   grpc ─► uids ─┬─► lookup ──┬─► cache
//!                 ├─► assign ──┤
//!                 ├─► suggest  ├─► table ─► row store
//!                 └─► usage ───┘
//! ```
//!
//! What always holds, whatever races and crashes there were: a name has one UID, a UID has one
//! name, and a name that has a UID can be read back from it. [`assign`] says how.

pub mod assign;
pub mod cache;
pub mod error;
mod flight;
pub mod grpc;
pub mod layout;
mod lookup;
pub mod settings;
pub mod suggest;
pub mod table;
pub mod uids;
pub mod usage;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use oxtsdb_proto::uid::v1::uid_service_server::UidServiceServer;
use oxtsdb_row_store::RowStore;

pub use crate::grpc::UidServiceHandler;
pub use crate::settings::UidSettings;
use crate::table::UidTable;
use crate::uids::Uids;

/// The folder of the UID service's embedded store within a data folder.
///
/// The same for the service alone and within `tsdb serve`, so that a data folder can go from one to
/// the other.
pub fn store_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("uid")
}

/// The service over a store: opens the table, or makes it if there is none.
///
/// # Errors
///
/// A setting breaks its rule, the table has other families or was written with other UID widths, or
/// the store fails.
pub async fn assemble(
    store: Arc<dyn RowStore>,
    settings: &UidSettings,
) -> anyhow::Result<UidServiceServer<UidServiceHandler>> {
    let config = settings.check()?;
    let table = UidTable::open(store, config.table, config.layout)
        .await
        .context("open the UID table")?;
    Ok(grpc::server(Uids::new(table, config.cache)))
}
