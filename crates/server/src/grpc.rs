//! The gRPC server, with health and reflection.

mod calls;
mod connection;
mod frames;
mod metrics;
mod options;
mod reflection;
mod response;
mod settings;

use std::sync::Arc;

use anyhow::Context as _;
use oxtsdb_proto::serve::{Methods, Server};
use tokio::net::TcpListener;
use tonic::service::RoutesBuilder;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::info;

pub use options::GrpcOptions;
pub use reflection::descriptor_set;
pub use settings::GrpcSettings;

use crate::admin::Readiness;
use crate::connections::{ConnectionCounts, ListenerOptions};
use crate::probe::StoreHealth;
use crate::request_memory::MessageLimits;
use crate::tls::Alpn;
use crate::{Shutdown, StoreProbe};

/// A gRPC server: services, with health (per name, and "" for all) and reflection (v1, v1alpha).
#[derive(Debug)]
pub struct GrpcServer {
    routes: RoutesBuilder,
    /// The services, with the most bytes of a message to each.
    services: Vec<(&'static str, usize)>,
    health: HealthReporter,
    probe: Option<StoreProbe>,
}

impl Default for GrpcServer {
    fn default() -> Self {
        Self::new()
    }
}

impl GrpcServer {
    /// A server with health and reflection only.
    pub fn new() -> Self {
        let (health, health_service) = tonic_health::server::health_reporter();
        let mut routes = RoutesBuilder::default();
        routes.add_service(health_service);
        Self {
            routes,
            services: Vec::new(),
            health,
            probe: None,
        }
    }

    /// Adds a service. It is NOT_SERVING until the server runs, or [`GrpcServer::health`] reports it. A message
    /// larger than the service reads is rejected when it is announced.
    #[must_use]
    pub fn service<M: Methods>(mut self, service: Server<M>) -> Self {
        self.services.push((M::SERVICE, service.max_request_bytes()));
        self.routes.add_service(service);
        self
    }

    /// Reports the services as NOT_SERVING while this store cannot serve.
    #[must_use]
    pub fn depends_on(mut self, probe: StoreProbe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Reports the health of the services while the server runs.
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves calls on `listener` until `shutdown`, then completes calls in progress.
    ///
    /// The services are SERVING while the store that they depend on can serve, and NOT_SERVING once draining
    /// has begun.
    ///
    /// # Errors
    ///
    /// The server fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        options: GrpcOptions,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let Self {
            mut routes,
            services,
            health,
            probe,
        } = self;
        let names: Vec<_> = services.iter().map(|(name, _)| *name).collect();
        reflection::add(&mut routes, &names)?;
        let address = listener.local_addr().context("address of the gRPC listener")?;
        set_all(&health, &names, ServingStatus::Serving).await;
        info!(%address, services = ?names, "gRPC is served");

        let readiness = options.admin.readiness.clone();
        let draining = {
            let (shutdown, mut health, names) = (shutdown.clone(), health.clone(), names.clone());
            async move {
                tokio::select! {
                    () = shutdown.draining() => {}
                    () = follow(probe, &readiness, &health, &names) => {}
                }
                set_all(&health, &names, ServingStatus::NotServing).await;
                shutdown.stopping().await;
                // Ends health watches, which would otherwise be in progress forever.
                for name in names {
                    health.clear_service_status(name).await;
                }
                health.clear_service_status("").await;
            }
        };
        let counts = Arc::<ConnectionCounts>::default();
        let metrics = &options.admin.metrics;
        metrics.add_connections(options.name, Arc::clone(&counts));
        let connections = options.connections.listener(
            ListenerOptions {
                name: "grpc",
                alpn: Alpn::Http2,
                limit: options.max_connections,
                limit_setting: "--grpc-max-connections",
                // Clients keep channels open for days; keepalive detects dead ones.
                idle_timeout: None,
                client_timeout: options.client_timeout,
                drain_limit: options.drain_limit,
            },
            counts,
        );
        let server = Arc::new(connection::Server::new(
            routes.routes(),
            MessageLimits::new(services),
            &names,
            options,
            shutdown.clone(),
        ));
        let serving = connections.serve(listener, shutdown, move |stream, connection| {
            Arc::clone(&server).serve(stream, connection)
        });
        tokio::join!(serving, draining);
        Ok(())
    }
}

/// Reports changes of the probe, without end.
async fn follow(
    probe: Option<StoreProbe>,
    readiness: &Readiness,
    health: &HealthReporter,
    names: &[&'static str],
) {
    let Some(probe) = probe else {
        return std::future::pending().await;
    };
    let table = probe.table().to_string();
    readiness.set_store(&table, StoreHealth::Serves);
    let mut watch = probe.watch();
    loop {
        let changed = watch.change().await;
        readiness.set_store(&table, changed.clone());
        let status = match changed {
            StoreHealth::Serves | StoreHealth::RejectsWrites(_) => ServingStatus::Serving,
            StoreHealth::Fails(_) => ServingStatus::NotServing,
        };
        set_all(health, names, status).await;
    }
}

async fn set_all(health: &HealthReporter, names: &[&'static str], status: ServingStatus) {
    for name in names {
        health.set_service_status(*name, status).await;
    }
    health.set_service_status("", status).await;
}

#[cfg(test)]
mod tests;
