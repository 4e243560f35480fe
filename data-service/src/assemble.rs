//! Assembles the service from a store and a client of the UID service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::BoxFuture;
use oxtsdb_client::UidClient;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::{IngestResources, Writer};
use oxtsdb_maintenance::compaction::Compactor;
use oxtsdb_maintenance::compaction::background::Background;
use oxtsdb_maintenance::layout_check;
use oxtsdb_maintenance::rollup::build::RollupBuilder;
use oxtsdb_maintenance::rollup::jobs::{self, RollupJobs};
use oxtsdb_metadata::references::Tables;
use oxtsdb_metadata::series_index::SeriesIndex;
use oxtsdb_metadata::text_search::{Sources, TextSearch};
use oxtsdb_metadata::tree::Trees;
use oxtsdb_metadata::tree::process::QUEUE_SERIES;
use oxtsdb_metadata::uids::{Uids, UidsError};
use oxtsdb_opentsdb_front::listener::HttpTelnetServer;
use oxtsdb_proto::data::v1::annotation_service_server::AnnotationServiceServer;
use oxtsdb_proto::data::v1::data_admin_service_server::DataAdminServiceServer;
use oxtsdb_proto::data::v1::data_service_server::DataServiceServer;
use oxtsdb_proto::data::v1::reference_service_server::ReferenceServiceServer;
use oxtsdb_proto::data::v1::series_meta_service_server::SeriesMetaServiceServer;
use oxtsdb_proto::data::v1::series_service_server::SeriesServiceServer;
use oxtsdb_proto::data::v1::store_admin_service_server::StoreAdminServiceServer;
use oxtsdb_proto::data::v1::tree_service_server::TreeServiceServer;
use oxtsdb_query::Limit;
use oxtsdb_query::Limits;
use oxtsdb_query::{Engine, QueryResources};
use oxtsdb_resources::{Admission, AdmissionLimits, ComputePool, FixedShare, MemoryAccount};
use oxtsdb_row_store::cells::CellStore;
use oxtsdb_row_store::{RowStore, TableDef};
use oxtsdb_schema::{RowKeyLayout, data_table};
use oxtsdb_server::settings::SettingError;
use oxtsdb_server::store::{StoreKind, StorePart, StoreSettings, StoreTable};
use oxtsdb_server::{FrontEnd, GrpcServer, Host, Shutdown};
use tracing::warn;

use crate::grpc::{
    DataServiceHandler, ReferenceServiceHandler, SeriesMetaHandler, StoreAdminHandler, TreeServiceHandler,
};
use crate::points::{self, PointsPart};

/// The longest pause between two attempts to connect to the UID service at start.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Memory of the rows of the embedded store.
const ROWS_BYTES: u64 = 128 << 20;

/// Memory that a query may hold unless it is set, however much the process has.
const MAX_QUERY_MEMORY_BYTES: u64 = 1 << 30;

/// Bytes of a request with repairs: a repair has the cells of a row, before and after.
const MAX_REPAIR_BYTES: usize = 32 << 20;

/// Bytes of a request with names, ranges and rules.
const MAX_LOOKUP_BYTES: usize = 4 << 20;

/// The data service: the parts that its front ends are built from.
#[derive(Debug)]
pub struct DataService {
    /// Its tables.
    pub store: Arc<dyn RowStore>,
    /// Serves `oxtsdb.data.v1.DataService`.
    pub handler: DataServiceHandler,
    /// Writes points.
    pub writer: Writer,
    /// Executes queries.
    pub engine: Engine,
    /// Names and UIDs.
    pub uids: Uids,
    /// HTTP and telnet, and OpenTelemetry's service.
    pub front: HttpTelnetServer,
    references: ReferenceServiceHandler,
    store_admin: StoreAdminHandler,
    /// Trees.
    pub trees: Trees,
    /// Free-text search over metadata, if it is enabled.
    pub text_search: Option<TextSearch>,
    /// The memory of the process.
    pub memory: MemoryAccount,
}

impl DataService {
    /// `oxtsdb.data.v1.DataService`.
    pub fn server(&self) -> DataServiceServer<DataServiceHandler> {
        DataServiceServer::new(self.handler.clone(), self.handler.max_message_bytes())
    }

    /// Adds the gRPC services to a server.
    #[must_use]
    pub fn add_to(&self, server: GrpcServer) -> GrpcServer {
        let handler = || self.handler.clone();
        let (engine, uids) = (self.engine.clone(), self.uids.clone());
        let series_meta = SeriesMetaHandler::new(engine, &self.writer, uids, self.text_search.clone());
        let trees = TreeServiceHandler::new(self.trees.clone(), self.engine.clone());
        let max_bytes = self.handler.max_message_bytes();
        server
            .service(self.server())
            .service(AnnotationServiceServer::new(handler(), max_bytes))
            .service(DataAdminServiceServer::new(
                handler(),
                MAX_REPAIR_BYTES.max(max_bytes),
            ))
            .service(ReferenceServiceServer::new(
                self.references.clone(),
                MAX_LOOKUP_BYTES,
            ))
            .service(SeriesServiceServer::new(handler(), MAX_LOOKUP_BYTES))
            .service(SeriesMetaServiceServer::new(series_meta, max_bytes))
            .service(StoreAdminServiceServer::new(
                self.store_admin.clone(),
                MAX_LOOKUP_BYTES,
            ))
            .service(TreeServiceServer::new(trees, MAX_LOOKUP_BYTES))
            .service(self.front.metrics_service(max_bytes))
    }

    /// HTTP and telnet on one port, with their connections among the process's.
    pub fn http_and_telnet(&self, host: &Host) -> FrontEnd {
        let server = self
            .front
            .clone()
            .with_connections(&host.connections)
            .with_metrics(&host.admin.metrics)
            .with_access(&host.access)
            .with_drain_limit(host.drain_limit);
        FrontEnd::new(|listener, shutdown| async move {
            server.serve(listener, shutdown).await;
            Ok(())
        })
    }
}

/// The tables of the service: OpenTSDB's except for `tsdb-uid`, with the column families of OpenTSDB's
/// script. An embedded store gets its memory under a limit of all memory.
///
/// # Errors
///
/// A setting breaks its rule.
pub fn store_part(settings: &DataSettings, memory_limit_bytes: u64) -> Result<StorePart, SettingError> {
    settings.check()?;
    let table = StoreTable {
        setting: "--data-table",
        default_name: data_table::DATA_TABLE,
        def: TableDef::new(settings.tables.data_table_name()?, &["t"]),
    };
    let meta = StoreTable {
        setting: "--meta-table",
        default_name: data_table::META_TABLE,
        def: TableDef::new(settings.tables.meta_table_name()?, &["name"]),
    };
    let tree = StoreTable {
        setting: "--tree-table",
        default_name: data_table::TREE_TABLE,
        def: TableDef::new(settings.tables.tree_table_name()?, &["t"]),
    };
    let mut others = vec![meta, tree];
    if let Some(rollups) = settings.rollups.rollups()? {
        let is_new = |name: &&oxtsdb_row_store::TableName| **name != table.def.name;
        others.extend(rollups.tables().filter(is_new).map(|name| StoreTable {
            setting: "--rollups-config",
            default_name: "",
            def: TableDef::new(name.clone(), &["t"]),
        }));
    }
    let own = match settings.rollups.jobs() {
        Some(_) => vec![jobs::state_table(settings.tables.rollup_state_table_name()?)],
        None => Vec::new(),
    };
    Ok(StorePart {
        folder: "data",
        table,
        others,
        own,
        memory_bytes: ROWS_BYTES,
        points_bytes: settings.point_store.head_bytes(memory_limit_bytes)
            + settings.point_store.cache_bytes(memory_limit_bytes),
    })
}

/// Where the points of an embedded store are, with their share of the memory; `None` on HBase. `embedded` are the stores
/// of the process by their folders.
pub fn points_part(
    store: &StoreSettings,
    embedded: &[(&'static str, Arc<CellStore>)],
    part: &StorePart,
    settings: &DataSettings,
    memory: &MemoryAccount,
    share: &FixedShare,
) -> Option<PointsPart> {
    let limit_bytes = memory.limit_bytes();
    let mut cells = embedded.to_vec();
    // Names last, so that all series of a snapshot have theirs.
    cells.sort_by_key(|(folder, _)| *folder != part.folder);
    Some(PointsPart {
        data_dir: store.embedded_dir()?.to_owned(),
        part: part.folder,
        snapshot_dir: settings.point_store.snapshot_dir(&store.data_dir),
        cells,
        head_bytes: share.scale(settings.point_store.head_bytes(limit_bytes)),
        cache_bytes: share.scale(settings.point_store.cache_bytes(limit_bytes)),
    })
}

/// Assembles the service over a store that has the tables of [`store_part`], and over the points that are not in
/// its rows; reserves from the memory account.
/// Waits until the UID service responds.
///
/// # Errors
///
/// A setting breaks its rule, the UID service does not respond in time or has unexpected UID widths, the
/// table of points was written with another salt, or the program drains.
pub fn assemble(
    store: (Arc<dyn RowStore>, StoreKind),
    points: Option<PointsPart>,
    client: UidClient,
    settings: DataSettings,
    memory: &MemoryAccount,
    shutdown: Shutdown,
) -> BoxFuture<'_, anyhow::Result<DataService>> {
    Box::pin(assembled(store, points, client, settings, memory, shutdown))
}

/// The future of [`assemble`]. Behind a pointer: the program that polls it does not compile it once more, with all jobs.
async fn assembled(
    (store, kind): (Arc<dyn RowStore>, StoreKind),
    points: Option<PointsPart>,
    client: UidClient,
    settings: DataSettings,
    memory: &MemoryAccount,
    shutdown: Shutdown,
) -> anyhow::Result<DataService> {
    settings.check()?;
    let uids = tokio::select! {
        uids = connect(client, &settings) => uids?,
        () = shutdown.draining() => anyhow::bail!("the program stopped before the UID service responded"),
    };
    let (store, points, admin) = match points {
        None => (store, None, None),
        Some(points) => {
            let tables = (
                settings.tables.data_table_name()?,
                settings.tables.meta_table_name()?,
            );
            let rollups = settings.rollups.rollups()?;
            let folder = points.folder().display().to_string();
            let (store, points, admin) = points
                .open(
                    store,
                    *uids.layout(),
                    tables,
                    rollups.as_deref(),
                    &settings.point_store,
                )
                .await?;
            let mut stores = vec![Arc::clone(&points.columns)];
            stores.extend(points.rollups.values().cloned());
            let table = settings.tables.data_table_name()?;
            let accepts_table = settings.naming.accept_uid_table;
            uids.protect(stores, Arc::clone(&points.cells), &table, &folder, accepts_table)
                .await?;
            // The first call starts the read of rows' prefixes. A raw query is cut into time slices only where its metric is
            // known to have no rows.
            points.cells.may_have_rows(&table, &[], &[]);
            (store, Some(points), Some(admin))
        }
    };
    layout_check::check(&*store, &settings.tables.data_table_name()?, uids.layout()).await?;
    let columns = points.as_ref().map(|points| Arc::clone(&points.columns));
    let index = SeriesIndex::open(
        Arc::clone(&store),
        kind.writers(),
        &uids.layout().widths,
        &settings,
    )?;
    let resources = query_resources(&settings, memory).context("start the threads for computation")?;
    let written = match columns {
        Some(columns) => columns,
        None => points::in_rows(
            (Arc::clone(&store), kind),
            *uids.layout(),
            &settings,
            shutdown.clone(),
        )?,
    };
    let writer = Writer::new(
        Arc::clone(&store),
        kind.writers(),
        written,
        uids.clone(),
        &settings,
        index.clone(),
        IngestResources {
            memory: memory.ingest().clone(),
            // A pool of its own: a body of points must not wait behind the aggregation of a large query.
            compute: ComputePool::with_default_threads().context("start the threads for computation")?,
        },
    )?;
    let counts = Arc::clone(writer.counts());
    let until_end = shutdown.clone();
    tokio::spawn(async move { counts.rejections().log_due(until_end).await });
    let mut data = vec![settings.tables.data_table_name()?];
    if let Some(rollups) = settings.rollups.rollups()? {
        data.extend(rollups.tables().cloned());
        data.sort_unstable();
        data.dedup();
    }
    let tables = Tables {
        data,
        meta: settings.tables.meta_table_name()?,
        tree: settings.tables.tree_table_name()?,
    };
    let trees = Trees::new(
        Arc::clone(&store),
        (
            settings.tables.tree_table_name()?,
            settings.tables.meta_table_name()?,
        ),
        uids.clone(),
        Some(Arc::new(uids.clone())),
        resources.compute.clone(),
    );
    if settings.trees.enable_tree_processing {
        let new = writer.meta_table().new_series().subscribe(QUEUE_SERIES);
        tokio::spawn(trees.clone().process(new, |new| new.tsuid, shutdown.clone()));
    }
    let engine = Engine::new(
        Arc::clone(&store),
        (
            settings.tables.data_table_name()?,
            settings.tables.meta_table_name()?,
        ),
        *uids.layout(),
        Arc::new(uids.clone()),
        query_limits(&settings, memory),
        resources,
    )
    .with_points(points)
    .with_histograms(writer.histograms())
    .with_rollups(settings.rollups.rollups()?)
    .with_series_index(index.map(|index| Arc::new(index) as Arc<dyn oxtsdb_query::SeriesIndex>));
    start_compaction(&engine, &settings, &shutdown)?;
    let text_search = match &settings.text_search.text_search {
        None => None,
        Some(folder) => {
            let sources = Sources::new(uids.clone(), writer.meta_table().clone(), engine.clone());
            let pause = settings.text_search.pause();
            Some(TextSearch::start(folder, pause, sources, shutdown.clone()).await?)
        }
    };
    let settings = Arc::new(settings);
    let references = ReferenceServiceHandler::new(engine.clone(), tables);
    let store_admin = StoreAdminHandler::new(admin, engine.clone(), writer.clone());
    let handler = DataServiceHandler::new(
        writer.clone(),
        engine.clone(),
        Arc::clone(&settings),
        shutdown.clone(),
    );
    if let Some(rules) = settings.rollups.jobs() {
        let shared = handler.rollups().clone();
        let builder = RollupBuilder::new(engine.clone(), uids.clone(), shutdown.clone(), shared);
        let table = settings.tables.rollup_state_table_name()?;
        let jobs = RollupJobs::new(builder, Arc::clone(&store), table, rules);
        tokio::spawn(jobs.run(shutdown));
    }
    let front = HttpTelnetServer::new(
        writer.clone(),
        engine.clone(),
        uids.clone(),
        trees.clone(),
        text_search.clone(),
        &settings,
    );
    Ok(DataService {
        front,
        store,
        handler,
        writer,
        engine,
        uids,
        references,
        store_admin,
        trees,
        text_search,
        memory: memory.clone(),
    })
}

/// Starts the compaction of rows in the background, if the settings have it.
fn start_compaction(engine: &Engine, settings: &DataSettings, shutdown: &Shutdown) -> anyhow::Result<()> {
    if settings.compaction.after().is_none() {
        return Ok(());
    }
    let compactor = Compactor::from_engine(engine, settings.writing.use_otsdb_timestamp);
    let compactor = compactor.context("--compact-rows-after")?;
    if let Some(job) = Background::from_settings(compactor, engine, &settings.compaction) {
        tokio::spawn(job.run(shutdown.clone()));
    }
    Ok(())
}

/// Opens the tables of the service as rows, without the service: for copies of a store that no server uses.
///
/// # Errors
///
/// The points cannot be opened, or the table of points was written with another layout.
pub async fn open_tables(
    store: Arc<dyn RowStore>,
    points: Option<PointsPart>,
    layout: RowKeyLayout,
    settings: &DataSettings,
) -> anyhow::Result<Arc<dyn RowStore>> {
    let table = settings.tables.data_table_name()?;
    let store = match points {
        None => store,
        Some(points) => {
            let tables = (table.clone(), settings.tables.meta_table_name()?);
            let rollups = settings.rollups.rollups()?;
            let opened = points.open(store, layout, tables, rollups.as_deref(), &settings.point_store);
            opened.await?.0
        }
    };
    layout_check::check(&*store, &table, &layout).await?;
    Ok(store)
}

/// The resources that queries share, with their part of the memory account.
///
/// # Errors
///
/// The system provides no threads for computation.
fn query_resources(settings: &DataSettings, memory: &MemoryAccount) -> std::io::Result<QueryResources> {
    let queries = &settings.queries;
    Ok(QueryResources {
        memory: memory.query().clone(),
        admission: Admission::new(AdmissionLimits {
            running: queries.concurrent(),
            queued: queries.max_queued_queries,
            wait: queries.queue_timeout(),
        }),
        compute: ComputePool::with_default_threads()?,
        expressions: ComputePool::with_default_threads()?,
        timeout: queries.timeout(),
        client_timeout: settings.connections.client_timeout(),
    })
}

/// The budget of a query.
fn query_limits(settings: &DataSettings, memory: &MemoryAccount) -> Limits {
    let settings = &settings.queries;
    let all = memory.limit_bytes();
    // One large query may take half of the pool, as long as others leave that free.
    let share = memory.query().limit_bytes() / 2;
    let memory = settings
        .query_max_memory_mib
        .map(|mib| mib.saturating_mul(1 << 20));
    Limits {
        series: Limit::from_setting_or("--query-max-series", settings.query_max_series, all / 2048),
        rows: Limit::from_setting_or("--query-max-rows", settings.query_max_rows, all / 32),
        bytes: Limit::from_setting_or(
            "--query-max-bytes",
            settings.query_max_bytes,
            all.saturating_mul(16),
        ),
        points: Limit::from_setting_or("--query-max-points", settings.query_max_points, all / 4),
        memory: Limit::from_setting_or(
            "--query-max-memory-mib",
            memory,
            share.min(MAX_QUERY_MEMORY_BYTES),
        ),
    }
}

/// Connects to the UID service, which may be starting too; retries with a growing pause.
async fn connect(client: UidClient, settings: &DataSettings) -> Result<Uids, UidsError> {
    let give_up = Instant::now() + settings.naming.start_timeout();
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match Uids::connect(client.clone(), settings, Some(give_up)).await {
            Ok(uids) => return Ok(uids),
            Err(error) => error,
        };
        let passes = error.is_transient();
        if !passes || Instant::now() + pause >= give_up {
            return Err(error);
        }
        warn!(%error, "waiting for the UID service");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
