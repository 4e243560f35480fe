//! For tests: the whole service over memory stores, with a real UID service in this process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod gate;
pub mod service;

use std::sync::Arc;
use std::time::Duration;

use data_service::DataServiceHandler;
use data_service::assemble::{DataService, assemble, store_part};
use data_service::points::PointsPart;
use futures::TryStreamExt as _;
use oxtsdb_client::UidClient;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::data_service_server::DataServiceServer;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, Scan};
use oxtsdb_server::store::StoreKind;
use oxtsdb_server::{Shutdown, ShutdownTrigger};
use tonic::service::Routes;
use uid_service::UidSettings;

pub use gate::{Gate, Pass};

/// A data service and a UID service that run in this process, without sockets.
#[derive(Debug)]
pub struct TestStack {
    /// Holds all tables.
    pub store: MemoryStore,
    /// A client of the UID service, in process unless [`TestStack::with_uid_client`] made it.
    pub uid_client: UidClient,
    /// The parts of the data service.
    pub service: DataService,
    /// The settings that the data service was assembled with.
    pub settings: DataSettings,
    /// The shutdown of both services; `trigger` starts it.
    pub shutdown: Shutdown,
    /// Starts the shutdown.
    pub trigger: ShutdownTrigger,
    /// Where points are, if they are in columns.
    pub points_folder: Option<tempfile::TempDir>,
}

impl TestStack {
    /// Starts both services with default settings.
    pub async fn start() -> Self {
        Self::with(DataSettings::default(), UidSettings::default()).await
    }

    /// Starts both services over one store in memory.
    pub async fn with(settings: DataSettings, uid_settings: UidSettings) -> Self {
        let store = MemoryStore::new();
        let same: Arc<dyn RowStore> = Arc::new(store.clone());
        Self::over(store, Arc::clone(&same), same, settings, uid_settings).await
    }

    /// As [`TestStack::start`], with points in columns.
    pub async fn with_points() -> Self {
        Self::with_points_and(DataSettings::default()).await
    }

    /// As [`TestStack::with`], with points in columns.
    pub async fn with_points_and(settings: DataSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let part = "data";
        std::fs::create_dir(folder.path().join(part)).unwrap();
        let points = PointsPart {
            data_dir: folder.path().to_owned(),
            part,
            head_bytes: 8 << 20,
            cache_bytes: 8 << 20,
            snapshot_dir: std::env::temp_dir(),
            cells: Vec::new(),
        };
        let store = MemoryStore::new();
        let same: Arc<dyn RowStore> = Arc::new(store.clone());
        let settings = (settings, UidSettings::default());
        let memory = MemoryAccount::unlimited();
        let stores = (Arc::clone(&same), same, StoreKind::Embedded);
        let connect = UidClient::in_process;
        let mut stack = Self::assembled(store, stores, Some(points), settings, &memory, connect).await;
        stack.points_folder = Some(folder);
        stack
    }

    /// As [`TestStack::with`], with a limit of memory.
    pub async fn with_memory(settings: DataSettings, memory: &MemoryAccount) -> Self {
        let store = MemoryStore::new();
        let same: Arc<dyn RowStore> = Arc::new(store.clone());
        let uid_settings = UidSettings::default();
        Self::over_in(store, Arc::clone(&same), same, settings, uid_settings, memory).await
    }

    /// As [`TestStack::with`], over stores that wrap `store`, one for each service.
    pub async fn over(
        store: MemoryStore,
        uid_store: Arc<dyn RowStore>,
        data_store: Arc<dyn RowStore>,
        settings: DataSettings,
        uid_settings: UidSettings,
    ) -> Self {
        let memory = MemoryAccount::unlimited();
        Self::over_in(store, uid_store, data_store, settings, uid_settings, &memory).await
    }

    /// As [`TestStack::over`], as on HBase: other processes may write to the stores.
    pub async fn over_hbase(
        store: MemoryStore,
        uid_store: Arc<dyn RowStore>,
        data_store: Arc<dyn RowStore>,
        settings: DataSettings,
        uid_settings: UidSettings,
    ) -> Self {
        let stores = (uid_store, data_store, StoreKind::Hbase);
        let (settings, memory) = ((settings, uid_settings), MemoryAccount::unlimited());
        Self::assembled(store, stores, None, settings, &memory, UidClient::in_process).await
    }

    /// As [`TestStack::over`], with a limit of memory.
    pub async fn over_in(
        store: MemoryStore,
        uid_store: Arc<dyn RowStore>,
        data_store: Arc<dyn RowStore>,
        settings: DataSettings,
        uid_settings: UidSettings,
        memory: &MemoryAccount,
    ) -> Self {
        let stores = (uid_store, data_store, StoreKind::Embedded);
        let settings = (settings, uid_settings);
        Self::assembled(store, stores, None, settings, memory, UidClient::in_process).await
    }

    /// As [`TestStack::start`], with the client of the UID service that `connect` returns.
    pub async fn with_uid_client(connect: impl FnOnce(Routes) -> UidClient) -> Self {
        let store = MemoryStore::new();
        let same: Arc<dyn RowStore> = Arc::new(store.clone());
        let stores = (Arc::clone(&same), same, StoreKind::Embedded);
        let memory = MemoryAccount::unlimited();
        Self::assembled(store, stores, None, Default::default(), &memory, connect).await
    }

    async fn assembled(
        store: MemoryStore,
        (uid_store, data_store, kind): (Arc<dyn RowStore>, Arc<dyn RowStore>, StoreKind),
        points: Option<PointsPart>,
        (settings, uid_settings): (DataSettings, UidSettings),
        memory: &MemoryAccount,
        connect: impl FnOnce(Routes) -> UidClient,
    ) -> Self {
        let (uid_part, part) = (uid_service::store_part(&uid_settings), store_part(&settings, 0));
        uid_part.unwrap().make_tables(&*uid_store).await.unwrap();
        part.unwrap().make_tables(&*data_store).await.unwrap();
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        let uids = uid_service::assemble(uid_store, kind.writers(), &uid_settings, shutdown.clone())
            .await
            .unwrap();
        let uid_client = connect(uids.routes());
        let service = assemble(
            (data_store, kind),
            points,
            uid_client.clone(),
            settings.clone(),
            memory,
            shutdown.clone(),
        )
        .await
        .unwrap();
        Self {
            store,
            uid_client,
            service,
            settings,
            shutdown,
            trigger,
            points_folder: None,
        }
    }

    /// A client of the data service, without a socket.
    pub fn client(&self) -> DataServiceClient<DataServiceServer<DataServiceHandler>> {
        DataServiceClient::new(self.service.server())
    }

    /// The cells of a table, as [`cells`].
    pub async fn cells(&self, table: &str) -> Vec<String> {
        cells(&self.store, table).await
    }
}

/// The cells of a table in its order, as `row family:qualifier value`; row, qualifier and value
/// in hex.
pub async fn cells(store: &dyn RowStore, table: &str) -> Vec<String> {
    let scan = store
        .scan(&table.parse().unwrap(), Scan::prefix(&[]))
        .await
        .unwrap();
    let batches: Vec<_> = scan.try_collect().await.unwrap();
    let mut cells = Vec::new();
    for row in batches.iter().flatten() {
        cells.extend(row.cells().map(|cell| {
            let (key, qualifier, value) = (
                hex::encode(row.key()),
                hex::encode(cell.qualifier),
                hex::encode(cell.value),
            );
            format!("{key} {}:{qualifier} {value}", cell.family)
        }));
    }
    cells
}
