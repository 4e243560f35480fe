//! A program with listeners: stores, memory, ports and shutdown around its services.
//!
//! `tsdb serve`, `uid-service` and `data-service` differ in their stores and listeners only:
//!
//! ```text
//!   Program::run   check settings ─► divide memory ─► watch signals ─► open stores ─► bind ports
//!     assemble     stores ─► services ─► one front end for each port
//!                  listen ─► `ready NAME=ADDRESS …` ─► serve until SIGTERM ─► close stores
//! ```
//!
//! Ports are bound before the services are assembled, so that a port in use ends the start early, and
//! listen afterwards: until then clients get "connection refused", and a probe of the port says whether
//! the server is ready. Stores are closed however the program ends; acknowledged points are durable
//! before that, closing flushes memory so that the next start is quick.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{BoxFuture, FutureExt as _};
use oxtsdb_access::AccessControl;
use oxtsdb_resources::{FixedShare, MemoryAccount};
use oxtsdb_row_store::cells::CellStore;
use oxtsdb_row_store::{RowStore, StoreControl};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use crate::admin::deployment::{Deployment, ListenerFacts};
use crate::admin::{self, Admin, AdminListen};
use crate::args::ServerArgs;
use crate::connections::Connections;
use crate::listen::{BoundAddress, ListenError, bind, start_error};
use crate::store::{OpenStores, StorePart};
use crate::{GrpcOptions, GrpcServer, Shutdown};

/// A program that [`Program::run`] runs, with `S` stores and `L` listeners.
#[derive(Debug)]
pub struct Program<'a, const S: usize, const L: usize> {
    /// Its name.
    pub name: &'static str,
    /// Settings that all programs have.
    pub args: &'a ServerArgs,
    /// Its stores.
    pub stores: [&'a StorePart; S],
    /// Its ports.
    pub listeners: [ListenAddress; L],
    /// Where the admin listener is.
    pub admin: AdminListen,
    /// Memory of the services' caches and buffers, in bytes.
    pub fixed_bytes: u64,
    /// How long a client may leave pending data unread.
    pub client_timeout: Duration,
}

/// A port of a program.
#[derive(Clone, Copy, Debug)]
pub struct ListenAddress {
    /// The name of its service in the line that reports readiness.
    pub name: &'static str,
    /// The flag that sets the address, for errors.
    pub flag: &'static str,
    /// The address; port 0 selects a free port.
    pub address: SocketAddr,
}

/// The parts that services are assembled from.
#[derive(Debug)]
pub struct Host {
    /// The memory of the process.
    pub memory: MemoryAccount,
    /// The share of their memory that caches get.
    pub share: FixedShare,
    /// The connections of the process.
    pub connections: Connections,
    /// Announces the end of the program.
    pub shutdown: Shutdown,
    /// The state that the admin listener shows.
    pub admin: Admin,
    /// Checks the rights of callers.
    pub access: AccessControl,
    /// How long requests in progress may take after stopping has begun.
    pub drain_limit: Duration,
    /// The embedded stores by their folders; none on HBase.
    pub embedded: Vec<(&'static str, Arc<CellStore>)>,
    grpc: GrpcOptions,
    /// Stores that services opened, closed when they have ended.
    stores: Mutex<Vec<Arc<dyn StoreControl>>>,
}

/// Serves the connections of one listener until shutdown.
pub struct FrontEnd(Box<dyn FnOnce(TcpListener, Shutdown) -> BoxFuture<'static, anyhow::Result<()>>>);

impl std::fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrontEnd")
    }
}

impl FrontEnd {
    /// A front end that is served by `serve`.
    pub fn new<F>(serve: impl FnOnce(TcpListener, Shutdown) -> F + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self(Box::new(|listener, shutdown| serve(listener, shutdown).boxed()))
    }
}

impl Host {
    /// Has a store closed when the program ends, before the stores that it is made of.
    pub fn close_at_end(&self, store: Arc<dyn StoreControl>) {
        self.stores.lock().push(store);
    }

    /// A front end for gRPC, with the options of the program; `name` is its listener's name.
    pub fn grpc(&self, name: &'static str, server: GrpcServer) -> FrontEnd {
        let options = GrpcOptions {
            name,
            ..self.grpc.clone()
        };
        FrontEnd::new(move |listener, shutdown| server.serve(listener, options, shutdown))
    }
}

impl<const S: usize, const L: usize> Program<'_, S, L> {
    /// Runs the program until SIGTERM or SIGINT. `assemble` gets the stores in the order of
    /// [`Program::stores`] and returns a front end for each listener, in their order.
    ///
    /// Logs have been initialized.
    ///
    /// # Errors
    ///
    /// A setting, a store or a port cannot be used, or `assemble` or a front end fails.
    pub async fn run<A>(self, assemble: A) -> anyhow::Result<()>
    where
        A: AsyncFnOnce(&Host, [Arc<dyn RowStore>; S]) -> anyhow::Result<[FrontEnd; L]>,
    {
        let args = self.args;
        args.store.check()?;
        args.program.check()?;
        args.grpc.check()?;
        args.tls.check()?;
        let access = args.access.open().await?;
        let store_bytes = args.store.memory_bytes(&self.stores);
        let (memory, share) = args.memory.divide(store_bytes + self.fixed_bytes)?;
        let (shutdown, trigger) = args.program.shutdown();
        let admin = Admin::default();
        admin.readiness.observe(&shutdown);
        admin.readiness.set_data_dir(&args.store.data_dir);
        admin.metrics.collect_memory(&memory);
        admin.metrics.requests().observe_by(&args.telemetry);
        admin.describe(|facts| self.describe(&share, facts));
        admin.show_deployment();
        // Before the stores are opened, which may take long.
        let admin_listener = AdminListener::start(self.admin, admin.clone())?;
        let signals = tokio::spawn(trigger.on_signal());
        let watch = tokio::spawn(access.clone().watch());
        // Raises the limit of descriptors, before stores open files.
        let tls = args.tls.open()?;
        admin.metrics.collect_tls(tls.clone());
        let connections = Connections::for_process(tls);
        let mut host = Host {
            grpc: GrpcOptions {
                client_timeout: self.client_timeout,
                memory: memory.clone(),
                admin: admin.clone(),
                access: access.clone(),
                drain_limit: args.program.drain_limit(),
                ..args.grpc.options(connections.clone())
            },
            memory,
            share,
            connections,
            shutdown,
            admin,
            access,
            drain_limit: args.program.drain_limit(),
            embedded: Vec::new(),
            stores: Mutex::default(),
        };
        let OpenStores {
            stores,
            embedded,
            hbase,
        } = args.store.open(self.stores, &host.share).await?;
        host.embedded = embedded;
        if let Some(hbase) = hbase {
            host.admin.metrics.collect_gateways(hbase);
        }
        host.admin.metrics.collect_refusals(host.access.refusals());
        let served = self
            .serve(&host, stores.clone(), admin_listener.address, assemble)
            .await;
        signals.abort();
        watch.abort();
        let mut closed = Ok(());
        let opened = std::mem::take(&mut *host.stores.lock());
        let stores = stores.into_iter().map(|store| store as Arc<dyn StoreControl>);
        for store in stores.chain(opened).rev() {
            closed = closed.and(store.close().await);
        }
        served?;
        drop(admin_listener);
        closed.context("close the store")?;
        info!("stopped");
        Ok(())
    }

    /// Adds the facts of the settings.
    fn describe(&self, share: &FixedShare, facts: &mut Deployment) {
        let args = self.args;
        facts.program = self.name.to_owned();
        facts.version = env!("CARGO_PKG_VERSION").to_owned();
        facts.mode = args.access.mode.to_string();
        facts.has_policy = args.access.access_policy.is_some();
        facts.store = args.store.kind_name().to_owned();
        facts.gateways = args.store.gateways().to_vec();
        let tables = self.stores.iter().flat_map(|part| part.tables());
        // Rollup tables share a setting.
        facts.tables = tables
            .filter(|table| !table.default_name.is_empty())
            .map(|table| (table.setting.to_owned(), table.def.name.to_string()))
            .collect();
        facts.machine_memory_bytes = MemoryAccount::machine_bytes();
        facts.has_reduced_caches = share.is_reduced();
    }

    async fn serve<A>(
        &self,
        host: &Host,
        stores: [Arc<dyn RowStore>; S],
        admin: Option<SocketAddr>,
        assemble: A,
    ) -> anyhow::Result<()>
    where
        A: AsyncFnOnce(&Host, [Arc<dyn RowStore>; S]) -> anyhow::Result<[FrontEnd; L]>,
    {
        let (mut bound, mut failed) = (Vec::with_capacity(L), Vec::new());
        for listener in &self.listeners {
            match bind(listener.flag, listener.address) {
                Ok(address) => bound.push(address),
                Err(error) => failed.push(error),
            }
        }
        if !failed.is_empty() {
            return Err(start_error(&failed));
        }
        let front_ends = match assemble(host, stores).await {
            // Stopped while it waited for another service.
            Err(error) if host.shutdown.is_draining() => {
                info!(reason = %format_args!("{error:#}"), "stopped before it was ready");
                return Ok(());
            }
            assembled => assembled?,
        };
        let mut ready = "ready".to_owned();
        let mut listening = Vec::with_capacity(L);
        for (bound, listener) in bound.into_iter().zip(&self.listeners) {
            ready += &format!(" {}={}", listener.name, bound.address());
            let facts = ListenerFacts {
                name: listener.name.to_owned(),
                address: bound.address(),
                has_tls: self.args.tls.tls_certificate.is_some(),
                requires_certificates: self.args.tls.requires_certificates(),
            };
            host.admin.describe(|deployment| deployment.listeners.push(facts));
            listening.push(BoundAddress::listen(bound)?);
        }
        if let Some(address) = admin {
            ready += &format!(" admin={address}");
            host.admin.describe(|deployment| deployment.admin = Some(address));
        }
        host.admin.readiness.started();
        info!(store = %self.args.store, "{ready}");
        println!("{ready}");
        // As tasks: this future has a thread of its own, which each connection would wake.
        let mut serving = JoinSet::new();
        for (front_end, listener) in front_ends.into_iter().zip(listening) {
            serving.spawn(front_end.0(listener, host.shutdown.clone()));
        }
        while let Some(ended) = serving.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// The admin listener; it ends when this is dropped.
struct AdminListener {
    address: Option<SocketAddr>,
    task: Option<JoinHandle<()>>,
}

impl AdminListener {
    /// Starts to listen.
    fn start(listen: AdminListen, admin: Admin) -> Result<Self, ListenError> {
        let at = |address| {
            let bound = bind("--admin-listen", address)?;
            Ok((bound.address(), bound.listen()?))
        };
        let (address, listener) = match listen {
            AdminListen::None => {
                return Ok(Self {
                    address: None,
                    task: None,
                });
            }
            AdminListen::At(address) => at(address)?,
            AdminListen::AtOrFree(address) => match at(address) {
                Err(error) if error.is_in_use() => {
                    let (free, listener) = at(SocketAddr::new(address.ip(), 0))?;
                    warn!("--admin-listen {address}: the port is in use, the admin listener is at {free}");
                    (free, listener)
                }
                started => started?,
            },
        };
        Ok(Self {
            address: Some(address),
            task: Some(tokio::spawn(admin::serve(listener, admin))),
        })
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
