//! Client-side load balancing: requests take the endpoints in turn and pass over those that just failed.
//!
//! tonic's balanced channel ranks all endpoints equal, so half of the requests to a pair go to the dead one
//! for as long as it is dead. Here an endpoint that fails, or that responds with UNAVAILABLE, is skipped for
//! [`PAUSE`] while another one is left, and the retry of a failed call reaches the next endpoint.
//!
//! A host name with several addresses is an endpoint for each of them. Addresses that accept no connection when they
//! are resolved are left out; if none does, the endpoint is the name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::{Service, ServiceExt as _};

use super::endpoint::Replicas;

/// How long an endpoint is skipped after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause between two resolutions of host names.
const RESOLVE: Duration = Duration::from_secs(10);

/// Channels that take requests in turn. Clones share the state of the endpoints.
#[derive(Clone, Debug)]
pub(super) struct Balanced(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    urls: Vec<Replicas>,
    endpoints: RwLock<Arc<Endpoints>>,
    /// When the host names were resolved last. Locked while they are.
    resolved_at: tokio::sync::Mutex<Option<Instant>>,
}

/// An endpoint: the URL by its index, and the address if its host name has been resolved.
type Key = (usize, Option<SocketAddr>);

#[derive(Debug)]
struct Endpoints {
    channels: Vec<(Key, Channel)>,
    health: Health,
}

impl Endpoints {
    fn new(channels: Vec<(Key, Channel)>) -> Self {
        let health = Health::new(channels.len());
        Self { channels, health }
    }
}

impl Balanced {
    /// Balances over the replicas behind `urls`; at least one.
    pub(super) fn new(urls: Vec<Replicas>) -> Self {
        let channels = urls.iter().enumerate();
        let channels = channels.map(|(index, url)| ((index, None), url.channel()));
        Self(Arc::new(Shared {
            endpoints: RwLock::new(Arc::new(Endpoints::new(channels.collect()))),
            urls,
            resolved_at: tokio::sync::Mutex::default(),
        }))
    }
}

impl Shared {
    /// The endpoints. The first call resolves the host names, later ones do so in the background.
    async fn endpoints(self: &Arc<Self>) -> Arc<Endpoints> {
        if self.urls.iter().any(Replicas::has_name) {
            // While they are being resolved, the known ones are used; at first, they are waited for.
            let is_first = match self.resolved_at.try_lock() {
                Ok(resolved_at) if resolved_at.is_none_or(|at| at.elapsed() > RESOLVE) => {
                    resolved_at.is_none()
                }
                Ok(_) => return self.current(),
                Err(_) => false,
            };
            let resolution = {
                let shared = Arc::clone(self);
                async move { shared.resolve().await }
            };
            if is_first {
                resolution.await;
            } else {
                tokio::spawn(resolution);
            }
        }
        self.current()
    }

    fn current(&self) -> Arc<Endpoints> {
        Arc::clone(&self.endpoints.read())
    }

    /// Resolves the host names, unless another call does.
    async fn resolve(&self) {
        let Ok(mut resolved_at) = self.resolved_at.try_lock() else {
            return;
        };
        let addresses = futures::future::join_all(self.urls.iter().map(Replicas::addresses)).await;
        let keys = addresses.into_iter().enumerate().flat_map(|(index, addresses)| {
            let keys: Vec<Key> = addresses
                .into_iter()
                .map(|address| (index, Some(address)))
                .collect();
            if keys.is_empty() {
                vec![(index, None)]
            } else {
                keys
            }
        });
        let keys: Vec<Key> = keys.collect();
        let current = self.current();
        if !current.channels.iter().map(|(key, _)| key).eq(&keys) {
            // Connections to known addresses are kept.
            let channel = |key: Key| {
                let known = current.channels.iter().find(|(known, _)| *known == key);
                let channel = match (known, self.urls.get(key.0)?, key.1) {
                    (Some((_, channel)), _, _) => channel.clone(),
                    (None, url, Some(address)) => url.channel_to(address),
                    (None, url, None) => url.channel(),
                };
                Some((key, channel))
            };
            let channels = keys.into_iter().filter_map(channel).collect();
            *self.endpoints.write() = Arc::new(Endpoints::new(channels));
        }
        *resolved_at = Some(Instant::now());
    }
}

impl Service<http::Request<Body>> for Balanced {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Self::Response, StdError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        // The chosen channel is awaited in the call.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        async move {
            let endpoints = shared.endpoints().await;
            let index = endpoints.health.next();
            let ((url, _), channel) = endpoints.channels.get(index).ok_or("no endpoints")?.clone();
            let result = channel.oneshot(request).await;
            let failed = result.as_ref().map_or(true, is_unavailable);
            endpoints.health.record(index, failed);
            result.map_err(|error| match shared.urls.get(url).and_then(Replicas::alert) {
                Some(alert) => Box::new(Alert { alert, error }),
                None => StdError::from(error),
            })
        }
        .boxed()
    }
}

/// A connection that the server ended by an alert of TLS.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {alert}")]
struct Alert {
    alert: String,
    #[source]
    error: tonic::transport::Error,
}

/// Whether a response without a message says that its server cannot serve now.
fn is_unavailable(response: &http::Response<Body>) -> bool {
    Status::from_header_map(response.headers()).is_some_and(|status| status.code() == Code::Unavailable)
}

/// The endpoints that failed recently, and the next one in turn.
#[derive(Debug)]
struct Health {
    start: Instant,
    /// Milliseconds after `start` until which each endpoint is skipped.
    skip_until: Vec<AtomicU64>,
    turn: AtomicUsize,
}

impl Health {
    fn new(endpoints: usize) -> Self {
        Self {
            start: Instant::now(),
            skip_until: (0..endpoints).map(|_| AtomicU64::new(0)).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The next endpoint that is not skipped; if all are, the one with the pause that ends first.
    fn next(&self) -> usize {
        let count = self.skip_until.len().max(1);
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let now = self.now_ms();
        let in_turn = (0..count).map(|offset| first.wrapping_add(offset) % count);
        in_turn
            .min_by_key(|index| self.skip_until(*index).saturating_sub(now))
            .unwrap_or(0)
    }

    fn record(&self, index: usize, failed: bool) {
        let Some(skip_until) = self.skip_until.get(index) else {
            return;
        };
        let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
        let until = if failed { self.now_ms() + pause } else { 0 };
        skip_until.store(until, Ordering::Relaxed);
    }

    fn skip_until(&self, index: usize) -> u64 {
        self.skip_until
            .get(index)
            .map_or(u64::MAX, |until| until.load(Ordering::Relaxed))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_take_turns() {
        let health = Health::new(3);
        let turns: Vec<usize> = (0..6).map(|_| health.next()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn failed_endpoints_are_skipped_until_they_succeed() {
        let health = Health::new(2);
        health.record(0, true);
        assert!((0..4).all(|_| health.next() == 1));
        health.record(0, false);
        let turns: Vec<usize> = (0..2).map(|_| health.next()).collect();
        assert!(turns.contains(&0), "{turns:?}");
    }

    #[test]
    fn the_endpoint_that_failed_first_is_used_when_all_fail() {
        let health = Health::new(2);
        health.skip_until[0].store(60_000, Ordering::Relaxed);
        health.skip_until[1].store(50_000, Ordering::Relaxed);
        assert_eq!((health.next(), health.next()), (1, 1));
    }
}
