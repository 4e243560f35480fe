//! A gRPC server with health and reflection.

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;
use tracing::{info, warn};

use crate::message_size::MessageSizeLayer;
use crate::{DeadlineLayer, Shutdown, StoreProbe};

/// How a [`GrpcServer`] treats its connections.
#[derive(Clone, Debug)]
pub struct GrpcOptions {
    /// For calls that bring no deadline; `None`: no limit. Of a stream, until its answer begins.
    pub default_deadline: Option<Duration>,
    /// Calls under way on one connection, at most.
    pub max_concurrent_streams: u32,
    /// A connection is asked to end after so long, so that balancers spread clients anew; `None`:
    /// never.
    pub max_connection_age: Option<Duration>,
    /// How long calls under way may take to end once stopping has begun; then they are cut off.
    pub drain_limit: Duration,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            default_deadline: Some(Duration::from_secs(60)),
            max_concurrent_streams: 1024,
            max_connection_age: None,
            drain_limit: Duration::from_secs(30),
        }
    }
}

/// A gRPC server: services, with health (per name, and "" for all) and reflection (v1, v1alpha).
#[derive(Debug)]
pub struct GrpcServer {
    routes: RoutesBuilder,
    names: Vec<&'static str>,
    health: HealthReporter,
    probe: Option<StoreProbe>,
}

impl Default for GrpcServer {
    fn default() -> Self {
        Self::new()
    }
}

impl GrpcServer {
    /// A server that has health and reflection and no other service yet.
    pub fn new() -> Self {
        let (health, health_service) = tonic_health::server::health_reporter();
        let mut routes = RoutesBuilder::default();
        routes.add_service(health_service);
        Self {
            routes,
            names: Vec::new(),
            health,
            probe: None,
        }
    }

    /// Adds a service; it is NOT_SERVING until [`GrpcServer::health`] says otherwise or the server
    /// runs with it ready.
    #[must_use]
    pub fn service<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.names.push(S::NAME);
        self
    }

    /// Makes the services NOT_SERVING while this store cannot serve.
    #[must_use]
    pub fn depends_on(mut self, probe: StoreProbe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Tells the health of the services while the server runs.
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Answers calls on `listener` until `shutdown`, then finishes what is under way.
    ///
    /// All services are SERVING from now on, except while the store that they depend on cannot serve;
    /// when draining begins they are NOT_SERVING.
    ///
    /// # Errors
    ///
    /// If the server fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        options: GrpcOptions,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let Self {
            mut routes,
            names,
            health,
            probe,
        } = self;
        add_reflection(&mut routes)?;
        let address = listener.local_addr().context("address of the gRPC listener")?;
        set_all(&health, &names, ServingStatus::Serving).await;
        info!(%address, services = ?names, "gRPC is served");

        let draining = {
            let (shutdown, mut health, names) = (shutdown.clone(), health.clone(), names.clone());
            async move {
                tokio::select! {
                    () = shutdown.draining() => {}
                    () = follow(probe, &health, &names) => {}
                }
                set_all(&health, &names, ServingStatus::NotServing).await;
                shutdown.stopping().await;
                // Ends the watches of health, which would be under way for ever.
                for name in names {
                    health.clear_service_status(name).await;
                }
                health.clear_service_status("").await;
            }
        };
        let mut server = Server::builder()
            .layer(DeadlineLayer::new(options.default_deadline))
            .layer(MessageSizeLayer)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .max_concurrent_streams(options.max_concurrent_streams)
            // Larger than HTTP/2's 64 KiB, which is below one message of a thousand points.
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        if let Some(age) = options.max_connection_age {
            server = server.max_connection_age(age);
        }
        let stopping = {
            let shutdown = shutdown.clone();
            async move { shutdown.stopping().await }
        };
        // A small frame waits for nothing: without this an answer's last frame takes 40 ms.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let routes: Routes = routes.routes();
        let serving = server
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, stopping);
        let too_late = async {
            shutdown.stopping().await;
            tokio::time::sleep(options.drain_limit).await;
        };
        tokio::select! {
            result = async { tokio::join!(serving, draining).0 } => result.with_context(|| format!("serve gRPC on {address}")),
            () = too_late => {
                let seconds = options.drain_limit.as_secs();
                warn!(%address, seconds, "calls that were still under way are cut off");
                Ok(())
            }
        }
    }
}

/// Tells what the probe finds, for ever.
async fn follow(probe: Option<StoreProbe>, health: &HealthReporter, names: &[&'static str]) {
    let Some(probe) = probe else {
        return std::future::pending().await;
    };
    let mut watch = probe.watch();
    loop {
        let status = if watch.change().await {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
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

fn add_reflection(routes: &mut RoutesBuilder) -> anyhow::Result<()> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(oxtsdb_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // For tools that show the details of errors.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    routes.add_service(builder().build_v1().context("reflection v1")?);
    // Older tools, grpcio's among them, know only this one.
    routes.add_service(builder().build_v1alpha().context("reflection v1alpha")?);
    Ok(())
}
