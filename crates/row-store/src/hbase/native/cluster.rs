//! A cluster: its servers, where its regions are, and how often a request is sent.
//!
//! ```text
//!   row ─► region (cache, else hbase:meta) ─► server ─► call ─┬─► response
//!              ▲                                              └─► an error with a remedy: see `error`
//!              └── forget the region or the server, wait ◄────────┘   until the deadline
//! ```
//!
//! Source: HBase 2.6.1, `AsyncNonMetaRegionLocator`, `AsyncSingleRequestRpcRetryingCaller`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hashbrown::HashMap;
use oxtsdb_tls::Connector;
use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxBuildHasher;

use super::cell_block::CellReader;
use super::config::NativeConfig;
use super::connection::{ConnectOptions, Request, Service};
use super::error::{CallError, Remedy};
use super::kerberos::Kerberos;
use super::messages::{
    BY_REGION_NAME, Column, RegionInfo, RegionSpecifier, ScanMessage, ScanRequest, ScanResponse,
};
use super::regions::{Place, Region, Regions};
use super::server::Server;
use crate::hbase::{KerberosPeer, TlsPeer};
use crate::{GatewayFigures, TableName};

/// The region of `hbase:meta`.
const META_REGION: &[u8] = b"hbase:meta,,1";

/// The priority of calls that others wait for.
const HIGH_PRIORITY: u32 = 200;

/// The waits between two attempts; the last one repeats.
const WAITS_MS: [u64; 9] = [10, 50, 100, 200, 300, 500, 1000, 2000, 4000];

/// The factor of the wait if the server is overloaded.
const LONGER: u32 = 5;

/// A cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    config: NativeConfig,
    options: ConnectOptions,
    servers: Mutex<HashMap<(String, Service), Arc<Server>, FxBuildHasher>>,
    regions: Regions,
    meta: Mutex<Option<String>>,
    master: Mutex<Option<String>>,
    /// Held during a lookup in `hbase:meta`: one caller finds a region for all.
    lookup: tokio::sync::Mutex<()>,
    /// Nonces make a repeated increment or append count once.
    nonce_group: u64,
    next_nonce: AtomicU64,
    is_closed: AtomicBool,
}

/// Attempts of a request.
#[derive(Debug)]
pub(super) struct Attempts {
    failed: usize,
    deadline: Instant,
}

impl Attempts {
    pub(super) const fn until(deadline: Instant) -> Self {
        Self { failed: 0, deadline }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    ///
    /// The error of the last attempt, if the deadline comes before the next.
    pub(super) async fn wait(&mut self, remedy: Remedy, error: CallError) -> Result<(), CallError> {
        let wait = WAITS_MS
            .get(self.failed)
            .or(WAITS_MS.last())
            .copied()
            .unwrap_or_default();
        let wait = Duration::from_millis(wait);
        let wait = match remedy {
            Remedy::None => return Err(error),
            Remedy::AtOnce | Remedy::NewScanner => Duration::ZERO,
            Remedy::WaitLonger => wait * LONGER,
            Remedy::Locate | Remedy::Wait | Remedy::OtherServer => wait,
        };
        self.failed += 1;
        if Instant::now() + wait >= self.deadline {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Begins anew: the request made progress.
    pub(super) const fn succeeded(&mut self, deadline: Instant) {
        self.failed = 0;
        self.deadline = deadline;
    }
}

impl Cluster {
    /// A cluster without connections.
    ///
    /// # Errors
    ///
    /// The settings of TLS cannot be used.
    pub(super) fn new(config: NativeConfig) -> Result<Self, String> {
        // HBase negotiates no protocol within TLS.
        let tls = config
            .tls
            .clone()
            .map(|credentials| Connector::new(credentials, &[]));
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), since_epoch);
        Ok(Self {
            options: ConnectOptions {
                user: config.user.clone(),
                tls: tls.transpose()?.map(Arc::new),
                kerberos: config.kerberos.clone().map(Kerberos::new).map(Arc::new),
                time: config.connect_timeout,
                max_reply_bytes: config.max_reply_bytes,
            },
            config,
            servers: Mutex::default(),
            regions: Regions::default(),
            meta: Mutex::default(),
            master: Mutex::default(),
            lookup: tokio::sync::Mutex::default(),
            nonce_group: random | 1,
            next_nonce: AtomicU64::new(1),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(super) const fn config(&self) -> &NativeConfig {
        &self.config
    }

    /// The deadline of a request that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.config.request_timeout
    }

    /// The group of this client's nonces.
    pub(super) const fn nonce_group(&self) -> u64 {
        self.nonce_group
    }

    /// A nonce: no other request of this client has it.
    pub(super) fn nonce(&self) -> u64 {
        self.next_nonce.fetch_add(1, Ordering::Relaxed)
    }

    /// The figures of all region servers that were called.
    pub(super) fn figures(&self) -> Vec<GatewayFigures> {
        let servers = self.servers.lock();
        let of_rows = servers
            .iter()
            .filter(|((_, service), _)| *service == Service::Client);
        let mut figures: Vec<_> = of_rows.map(|(_, server)| server.figures()).collect();
        figures.sort_by(|a, b| a.address.cmp(&b.address));
        figures
    }

    /// The servers of open connections with TLS, in order of their addresses, each once.
    pub(super) fn tls_peers(&self) -> Vec<TlsPeer> {
        let servers = self.servers.lock();
        let mut peers: Vec<_> = servers.values().filter_map(|server| server.tls()).collect();
        peers.sort_by(|a, b| a.address.cmp(&b.address));
        peers.dedup_by(|a, b| a.address == b.address);
        peers
    }

    /// The servers of open connections with Kerberos, in order of their addresses, each once.
    pub(super) fn kerberos_peers(&self) -> Vec<KerberosPeer> {
        let servers = self.servers.lock();
        let mut peers: Vec<_> = servers.values().filter_map(|server| server.kerberos()).collect();
        peers.sort_by(|a, b| a.address.cmp(&b.address));
        peers.dedup_by(|a, b| a.address == b.address);
        peers
    }

    /// Gets a ticket, if HBase has Kerberos.
    ///
    /// # Errors
    ///
    /// The cause, and the setting that it depends on.
    pub(super) async fn log_in(&self) -> Result<(), String> {
        match &self.options.kerberos {
            Some(kerberos) => kerberos.log_in().await,
            None => Ok(()),
        }
    }

    /// Closes all connections; later calls fail.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.servers.lock().clear();
    }

    /// A region server.
    ///
    /// # Errors
    ///
    /// [`CallError::NotSent`] if the store is closed.
    pub(super) fn server(&self, address: &str, service: Service) -> Result<Arc<Server>, CallError> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(CallError::NotSent {
                server: address.to_owned(),
                detail: "the store is closed".to_owned(),
            });
        }
        let mut servers = self.servers.lock();
        let server = servers
            .entry((address.to_owned(), service))
            .or_insert_with(|| Arc::new(Server::new(address, service)));
        Ok(Arc::clone(server))
    }

    /// Calls a method of the region server of a region.
    ///
    /// # Errors
    ///
    /// As [`Server::call`].
    pub(super) async fn call_region<R: Message + Default>(
        &self,
        region: &Region,
        request: Request<'_, impl Message>,
        deadline: Instant,
    ) -> Result<(R, Bytes), CallError> {
        let server = self.server(&region.server, Service::Client)?;
        server.call(&self.options, request, deadline).await
    }

    /// Calls a method for a row, until it succeeds. A request with an unknown outcome is sent again if it may be
    /// repeated.
    ///
    /// # Errors
    ///
    /// The error of the last attempt.
    pub(super) async fn call_row<M: Message, R: Message + Default>(
        &self,
        (table, row): (&TableName, &[u8]),
        method: &'static str,
        may_repeat: bool,
        message: impl Fn(&Region) -> M,
    ) -> Result<(R, Bytes), CallError> {
        let deadline = self.deadline();
        let mut attempts = Attempts::until(deadline);
        loop {
            let region = self.locate(table, Place::Of(row), deadline).await?;
            let message = message(&region);
            let called = self
                .call_region(&region, Request::new(method, &message), deadline)
                .await;
            match called {
                Ok(response) => return Ok(response),
                Err(error) if error.may_have_taken_effect() && !may_repeat => return Err(error),
                Err(error) => {
                    let remedy = self.apply(error.remedy(), &region, &error);
                    attempts.wait(remedy, error).await?;
                }
            }
        }
    }

    /// Applies a remedy to the caches after a call for a region failed, and returns it.
    pub(super) fn apply(&self, remedy: Remedy, region: &Arc<Region>, error: &CallError) -> Remedy {
        match remedy {
            Remedy::Locate => {
                self.regions.remove(region);
                if let CallError::Exception(exception) = error
                    && let Some((host, port)) = &exception.moved_to
                {
                    self.regions.insert(Region {
                        table: region.table.clone(),
                        name: region.name.clone(),
                        start: region.start.clone(),
                        end: region.end.clone(),
                        server: format!("{host}:{port}"),
                    });
                }
            }
            Remedy::OtherServer => self.forget_server(&region.server),
            Remedy::Wait | Remedy::WaitLonger | Remedy::AtOnce | Remedy::NewScanner | Remedy::None => {}
        }
        remedy
    }

    fn forget_server(&self, address: &str) {
        self.regions.remove_server(address);
        let server = self
            .servers
            .lock()
            .get(&(address.to_owned(), Service::Client))
            .cloned();
        if let Some(server) = server {
            server.disconnect();
        }
    }

    /// The region at a place of a table.
    ///
    /// # Errors
    ///
    /// [`CallError::NoTable`], [`CallError::NoRegion`], and the errors of calls.
    pub(super) async fn locate(
        &self,
        table: &TableName,
        place: Place<'_>,
        deadline: Instant,
    ) -> Result<Arc<Region>, CallError> {
        if let Some(region) = self.regions.find(table, place) {
            return Ok(region);
        }
        let _lookup = self.lookup.lock().await;
        let mut attempts = Attempts::until(deadline);
        loop {
            if let Some(region) = self.regions.find(table, place) {
                return Ok(region);
            }
            match self.look_up(table, place, deadline).await {
                Ok(region) => return Ok(self.regions.insert(region)),
                Err(error) => attempts.wait(error.remedy(), error).await?,
            }
        }
    }

    /// Forgets the regions of a table, which may be another one now.
    pub(super) fn forget_table(&self, table: &TableName) {
        self.regions.remove_table(table);
    }

    /// Reads the row of a region in `hbase:meta`.
    async fn look_up(
        &self,
        table: &TableName,
        place: Place<'_>,
        deadline: Instant,
    ) -> Result<Region, CallError> {
        let name = table.to_string();
        let first = match place {
            Place::Of(row) => [name.as_bytes(), b",", row, b",99999999999999"].concat(),
            Place::Before(key) => [name.as_bytes(), b",", key, b","].concat(),
            Place::Last => [name.as_bytes(), b"\0"].concat(),
        };
        let scan = ScanMessage {
            column: vec![Column {
                family: Bytes::from_static(b"info"),
                qualifier: Vec::new(),
            }],
            start_row: Some(first.into()),
            stop_row: Some(format!("{name},,").into()),
            filter: None,
            max_versions: Some(1),
            max_result_size: None,
            reversed: Some(true),
        };
        let message = ScanRequest {
            region: Some(RegionSpecifier {
                kind: BY_REGION_NAME,
                value: Bytes::from_static(META_REGION),
            }),
            scan: Some(scan),
            number_of_rows: Some(1),
            close_scanner: Some(true),
            ..ScanRequest::default()
        };
        let request = Request {
            priority: Some(HIGH_PRIORITY),
            ..Request::new("Scan", &message)
        };
        let (response, cells) = self.call_meta(request, deadline).await?;
        let cell_count = response.cells_per_result.first().copied().unwrap_or_default();
        let row = MetaRow::read(cells, cell_count)?;
        row.into_region(table, place)
    }

    /// Calls a method for a row of `hbase:meta`.
    async fn call_meta(
        &self,
        request: Request<'_, impl Message>,
        deadline: Instant,
    ) -> Result<(ScanResponse, Bytes), CallError> {
        let address = self.meta_server().await?;
        let called = self.server(&address, Service::Client)?;
        let called = called.call(&self.options, request, deadline).await;
        if let Err(error) = &called
            && matches!(error.remedy(), Remedy::Locate | Remedy::OtherServer)
        {
            self.meta.lock().take();
            self.forget_server(&address);
        }
        called
    }

    /// The server of `hbase:meta`.
    async fn meta_server(&self) -> Result<String, CallError> {
        let known = self.meta.lock().clone();
        if let Some(address) = known {
            return Ok(address);
        }
        let address = self.config.registry.meta_server(&self.options).await?;
        *self.meta.lock() = Some(address.clone());
        Ok(address)
    }

    /// Calls a method of the active master, until it succeeds.
    ///
    /// # Errors
    ///
    /// The error of the last attempt.
    pub(super) async fn call_master<R: Message + Default>(
        &self,
        method: &'static str,
        message: &impl Message,
        deadline: Instant,
    ) -> Result<R, CallError> {
        let mut attempts = Attempts::until(deadline);
        loop {
            let error = match self.try_master(Request::new(method, message), deadline).await {
                Ok((response, _)) => return Ok(response),
                Err(error) => error,
            };
            if matches!(error.remedy(), Remedy::Locate | Remedy::OtherServer) {
                self.master.lock().take();
            }
            attempts.wait(error.remedy(), error).await?;
        }
    }

    async fn try_master<R: Message + Default>(
        &self,
        request: Request<'_, impl Message>,
        deadline: Instant,
    ) -> Result<(R, Bytes), CallError> {
        let known = self.master.lock().clone();
        let address = match known {
            Some(address) => address,
            None => {
                let address = self.config.registry.master(&self.options).await?;
                *self.master.lock() = Some(address.clone());
                address
            }
        };
        let server = self.server(&address, Service::Master)?;
        server.call(&self.options, request, deadline).await
    }

    /// Reads `hbase:meta` once, within the time to connect.
    ///
    /// # Errors
    ///
    /// The error of the call.
    pub(super) async fn check_health(&self) -> Result<(), CallError> {
        self.read_meta(Instant::now() + self.config.connect_timeout).await
    }

    /// Waits until `hbase:meta` can be read: a master responds before it has assigned it.
    ///
    /// # Errors
    ///
    /// The error of the last attempt.
    pub(super) async fn wait_for_meta(&self) -> Result<(), CallError> {
        let deadline = self.deadline();
        let mut attempts = Attempts::until(deadline);
        while let Err(error) = self.read_meta(deadline).await {
            attempts.wait(error.remedy(), error).await?;
        }
        Ok(())
    }

    async fn read_meta(&self, deadline: Instant) -> Result<(), CallError> {
        let table: TableName = match "oxtsdb-health".parse() {
            Ok(table) => table,
            Err(_) => return Ok(()),
        };
        match self.look_up(&table, Place::Last, deadline).await {
            Ok(_) | Err(CallError::NoTable) => Ok(()),
            // HBase responded; it merely denies access.
            Err(CallError::Exception(exception)) if exception.names("AccessDeniedException") => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A row of `hbase:meta`.
#[derive(Debug, Default)]
struct MetaRow {
    name: Bytes,
    info: Option<RegionInfo>,
    server: Option<String>,
}

impl MetaRow {
    fn read(cells: Bytes, count: u32) -> Result<Self, CallError> {
        let mut row = Self::default();
        let mut cells = CellReader::new(cells);
        for _ in 0..count {
            let cell = cells.next()?;
            if row.name.is_empty() {
                row.name = Bytes::copy_from_slice(cell.row);
            }
            match cell.qualifier {
                b"regioninfo" => {
                    let message = cell.value.strip_prefix(b"PBUF").unwrap_or_default();
                    let info = RegionInfo::decode(message).map_err(|error| {
                        CallError::malformed(format!("hbase:meta, info:regioninfo: {error}"))
                    })?;
                    row.info = Some(info);
                }
                b"server" => row.server = Some(String::from_utf8_lossy(cell.value).into_owned()),
                _ => {}
            }
        }
        Ok(row)
    }

    /// The region, if it is open and at the place.
    fn into_region(self, table: &TableName, place: Place<'_>) -> Result<Region, CallError> {
        if self.name.is_empty() {
            return Err(CallError::NoTable);
        }
        let in_transition = || CallError::NoRegion {
            detail: format!("a region of table `{table}` is in transition"),
        };
        let info = self.info.ok_or_else(in_transition)?;
        let is_of_table = *info.table_name.namespace == *table.namespace().as_bytes()
            && *info.table_name.qualifier == *table.name().as_bytes();
        if !is_of_table {
            return Err(CallError::NoTable);
        }
        let is_open = !info.offline.unwrap_or_default() && !info.split.unwrap_or_default();
        let server = self.server.filter(|server| is_open && !server.is_empty());
        let region = Region {
            table: table.clone(),
            name: self.name,
            start: info.start_key.unwrap_or_default(),
            end: info.end_key.unwrap_or_default(),
            server: server.ok_or_else(in_transition)?,
        };
        let is_at_place = match place {
            Place::Of(row) => *region.start <= *row && (region.end.is_empty() || *row < *region.end),
            Place::Before(key) => *region.start < *key && (region.end.is_empty() || *key <= *region.end),
            Place::Last => region.end.is_empty(),
        };
        if is_at_place {
            Ok(region)
        } else {
            Err(in_transition())
        }
    }
}
