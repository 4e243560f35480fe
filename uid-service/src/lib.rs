//! The UID service: `oxtsdb.uid.v1` over gRPC, and the start of its program. The UIDs themselves are in `oxtsdb-uids`.

pub mod grpc;
mod metrics;
pub mod settings;

use std::sync::Arc;

use anyhow::Context as _;
use futures::future::BoxFuture;
use oxtsdb_proto::uid::v1::uid_admin_service_server::UidAdminServiceServer;
use oxtsdb_proto::uid::v1::uid_meta_service_server::UidMetaServiceServer;
use oxtsdb_proto::uid::v1::uid_reclaim_service_server::UidReclaimServiceServer;
use oxtsdb_proto::uid::v1::uid_service_server::UidServiceServer;
use oxtsdb_row_store::{RowStore, Writers};
use oxtsdb_schema::{KindState, data_table};
use oxtsdb_server::admin::deployment::WidthFacts;
use oxtsdb_server::settings::SettingError;
use oxtsdb_server::store::{StorePart, StoreTable};
use oxtsdb_server::{Admin, GrpcServer, Shutdown};
use oxtsdb_uids::config::UidConfig;
use oxtsdb_uids::meta::Metadata;
use oxtsdb_uids::policy::watch::LivePolicy;
use oxtsdb_uids::state::StateTable;
use oxtsdb_uids::table::UidTable;
use oxtsdb_uids::uids::Uids;
use oxtsdb_uids::{in_use, upkeep, widths};
use tonic::service::Routes;

pub use crate::grpc::reclaim::UidReclaimServiceHandler;
pub use crate::grpc::{UidAdminHandler, UidMetaHandler, UidServiceHandler};
pub use crate::settings::UidSettings;

/// The table and the resources that the service needs of its store.
///
/// # Errors
///
/// A setting breaks its rule.
pub fn store_part(settings: &UidSettings) -> Result<StorePart, SettingError> {
    let UidConfig {
        table, state_table, ..
    } = settings.check()?;
    Ok(StorePart {
        folder: "uid",
        table: StoreTable {
            setting: "--uid-table",
            default_name: data_table::UID_TABLE,
            def: UidTable::definition(table),
        },
        others: Vec::new(),
        own: vec![StateTable::definition(state_table)],
        memory_bytes: STORE_BYTES,
        points_bytes: 0,
    })
}

/// Memory of the embedded store of names: less than a store for points has.
const STORE_BYTES: u64 = 96 << 20;

/// The services of table `tsdb-uid`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidService {
    /// `oxtsdb.uid.v1.UidService`.
    pub uids: UidServiceServer<UidServiceHandler>,
    /// `oxtsdb.uid.v1.UidReclaimService`.
    pub reclaim: UidReclaimServiceServer<UidReclaimServiceHandler>,
    /// `oxtsdb.uid.v1.UidMetaService`.
    pub meta: UidMetaServiceServer<UidMetaHandler>,
    /// `oxtsdb.uid.v1.UidAdminService`.
    pub admin: UidAdminServiceServer<UidAdminHandler>,
    domain: Arc<Uids>,
}

impl UidService {
    /// Adds the metrics of the service to the metrics of the process.
    pub fn report_to(&self, admin: &Admin) {
        metrics::report(&admin.metrics, &self.domain);
        let domain = Arc::downgrade(&self.domain);
        admin.readiness.add_notes(move || {
            let states = domain
                .upgrade()
                .map(|uids| uids.kind_states())
                .unwrap_or_default();
            let blocked = states.into_iter().filter(KindState::is_blocked);
            blocked
                .map(|state| in_use::error_of(&state).to_string())
                .collect()
        });
        let kinds = self.domain.layout().kinds;
        admin.describe(|facts| {
            facts.uid_widths = Some(WidthFacts {
                metric: kinds.metric.width.bytes(),
                tagk: kinds.tagk.width.bytes(),
                tagv: kinds.tagv.width.bytes(),
            });
        });
    }

    /// Adds the services to a server.
    #[must_use]
    pub fn add_to(self, server: GrpcServer) -> GrpcServer {
        server
            .service(self.uids)
            .service(self.meta)
            .service(self.admin)
            .service(self.reclaim)
    }

    /// The services, for clients of the same process.
    pub fn routes(&self) -> Routes {
        Routes::new(self.uids.clone())
            .add_service(self.meta.clone())
            .add_service(self.admin.clone())
            .add_service(self.reclaim.clone())
    }
}

/// Checks that a store's UIDs have the widths of the settings, without the service, as a start does.
///
/// # Errors
///
/// A setting breaks its rule, most UIDs of a kind have another width, or the store fails.
pub async fn check_widths(store: Arc<dyn RowStore>, settings: &UidSettings) -> anyhow::Result<()> {
    let config = settings.check()?;
    Ok(widths::check(&UidTable::new(store, config.table, config.layout)).await?)
}

/// Assembles the service over a store that has the tables of [`store_part`]. Watches end when `shutdown` begins.
///
/// # Errors
///
/// A setting breaks its rule, the table was written with other UID widths, or the store fails.
pub fn assemble(
    store: Arc<dyn RowStore>,
    writers: Writers,
    settings: &UidSettings,
    shutdown: Shutdown,
) -> BoxFuture<'_, anyhow::Result<UidService>> {
    Box::pin(assembled(store, writers, settings, shutdown))
}

/// The future of [`assemble`]. Behind a pointer: the program that polls it does not compile it once more.
async fn assembled(
    store: Arc<dyn RowStore>,
    writers: Writers,
    settings: &UidSettings,
    shutdown: Shutdown,
) -> anyhow::Result<UidService> {
    let config = settings.check()?;
    let policy = LivePolicy::load(config.policy.clone()).context("assignment rules")?;
    let uids = Arc::new(Uids::new(store, writers, config).with_policy(policy));
    widths::check(uids.table()).await?;
    uids.start();
    upkeep::start(&uids);
    Ok(UidService {
        domain: Arc::clone(&uids),
        meta: grpc::meta_server(Metadata::new(uids.table().clone())),
        admin: grpc::admin_server(uids.fsck().clone()),
        uids: grpc::server(Arc::clone(&uids), shutdown),
        reclaim: grpc::reclaim::server(uids),
    })
}
