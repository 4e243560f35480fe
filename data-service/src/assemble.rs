//! Everything from a store and a client of the UID service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use oxtsdb_proto::UidClient;
use oxtsdb_proto::data::v1::data_service_server::DataServiceServer;
use oxtsdb_row_store::{RowStore, TableDef, TableName};
use oxtsdb_server::Shutdown;
use tracing::{info, warn};

use crate::grpc::DataServiceHandler;
use crate::query::{Engine, Limits};
use crate::settings::DataSettings;
use crate::uids::{Uids, UidsError};
use crate::write::Writer;

/// The longest pause between two attempts to reach the UID service at start.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The data service: what its doors are built from.
#[derive(Debug)]
pub struct DataService {
    /// Answers `oxtsdb.data.v1.DataService`.
    pub handler: DataServiceHandler,
    /// Writes points.
    pub writer: Writer,
    /// Answers queries.
    pub engine: Engine,
    /// Names and UIDs.
    pub uids: Uids,
}

impl DataService {
    /// `oxtsdb.data.v1.DataService`, with the limit of messages that is set.
    pub fn server(&self) -> DataServiceServer<DataServiceHandler> {
        let max_message_bytes = self.handler.max_message_bytes();
        DataServiceServer::new(self.handler.clone()).max_decoding_message_size(max_message_bytes)
    }
}

/// The folder of the data service's embedded store within a data folder.
///
/// The same for the service alone and within `tsdb serve`, so that a data folder can go from one to
/// the other.
pub fn store_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("data")
}

/// The service over a store. Makes the tables that are not there, and waits until the UID service
/// answers.
///
/// # Errors
///
/// A setting breaks its rule, a table has other families, the UID service does not answer in time or
/// has other UID widths than were expected, or the program is to end.
pub async fn assemble(
    store: Arc<dyn RowStore>,
    client: UidClient,
    settings: DataSettings,
    shutdown: Shutdown,
) -> anyhow::Result<DataService> {
    settings.check()?;
    create_tables(store.as_ref(), &settings).await?;
    let uids = tokio::select! {
        uids = connect(client, &settings) => uids?,
        () = shutdown.draining() => anyhow::bail!("stopped before the UID service answered"),
    };
    let writer = Writer::new(Arc::clone(&store), uids.clone(), &settings, shutdown.clone())?;
    let engine = Engine::new(
        store,
        settings.data_table_name()?,
        *uids.layout(),
        Arc::new(uids.clone()),
        Limits::of_setting(settings.query_max_points),
    );
    let settings = Arc::new(settings);
    let handler = DataServiceHandler::new(writer.clone(), engine.clone(), settings, shutdown);
    Ok(DataService {
        handler,
        writer,
        engine,
        uids,
    })
}

/// OpenTSDB's tables beside `tsdb-uid`, with the families that its script gives them.
async fn create_tables(store: &dyn RowStore, settings: &DataSettings) -> anyhow::Result<()> {
    let tables: [(TableName, &str); 3] = [
        (settings.data_table_name()?, "t"),
        (settings.meta_table_name()?, "name"),
        (settings.tree_table_name()?, "t"),
    ];
    for (name, family) in tables {
        let table = TableDef::new(name, &[family]);
        let made = store
            .create_table(&table)
            .await
            .with_context(|| format!("create table `{}`", table.name))?;
        if made {
            info!(table = %table.name, family, "table created");
        }
    }
    Ok(())
}

/// Asks the UID service until it answers: it may be starting too.
async fn connect(client: UidClient, settings: &DataSettings) -> Result<Uids, UidsError> {
    let give_up = Instant::now() + Duration::from_secs(settings.uid_start_timeout_seconds);
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match Uids::connect(client.clone(), settings, Some(give_up)).await {
            Ok(uids) => return Ok(uids),
            Err(error) => error,
        };
        let passes = matches!(error, UidsError::Unavailable { .. } | UidsError::DeadlineExceeded);
        if !passes || Instant::now() + pause >= give_up {
            return Err(error);
        }
        warn!(%error, "waiting for the UID service");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
