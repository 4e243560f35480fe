//! The state that a server reports.

use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_server::admin::deployment::{self, Deployment};

use crate::admin::{AdminError, AdminListener, Metrics, Rejections};

/// A server that responds.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) facts: Deployment,
    pub(super) metrics: Metrics,
    /// Why it is not ready.
    pub(super) not_ready: Vec<String>,
    pub(super) rejections: Rejections,
    pub(super) clock: Clock,
}

/// The clock of a server, compared with this machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// How far it is ahead, milliseconds.
    pub(super) ahead_ms: i64,
    /// By how much that may be wrong: half of the time of the request.
    pub(super) error_ms: i64,
}

impl Clock {
    /// Of a response with the server's time, which was requested and received at these times of this machine.
    fn new(requested_ms: i64, server_ms: i64, received_ms: i64) -> Self {
        let error_ms = (received_ms - requested_ms).max(0) / 2 + 1;
        Self {
            ahead_ms: server_ms - (requested_ms + received_ms) / 2,
            error_ms,
        }
    }

    /// The least difference that explains the measurement, milliseconds.
    pub(super) fn least_difference_ms(self) -> i64 {
        (self.ahead_ms.abs() - self.error_ms).max(0)
    }
}

impl Server {
    /// A metric without labels; 0 if the server does not have it.
    pub(super) fn value(&self, name: &str) -> f64 {
        self.metrics.value(name, &[]).unwrap_or_default()
    }

    /// The sum of a metric over all labels; 0 if the server does not have it.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.metrics.sum(name, &[]).unwrap_or_default()
    }

    /// Whether it is or contains a data service that has started.
    pub(super) fn has_data_service(&self) -> bool {
        self.facts.program != "uid-service"
    }

    /// Whether it is or contains a UID service.
    pub(super) fn has_uid_service(&self) -> bool {
        self.facts.program != "data-service"
    }
}

/// Reads a server.
///
/// # Errors
///
/// It does not respond, or is no server of this version or a later one.
pub(super) async fn read(listener: &AdminListener) -> Result<Server, AdminError> {
    let not_ready = listener.readiness().await?;
    let metrics = listener.metrics().await?;
    let rejections = listener.rejections().await?;
    // The connection is open, so that the times enclose one round trip.
    let requested_ms = now_ms();
    let facts: Deployment = listener.json(deployment::PATH).await?;
    let server_ms = i64::try_from(facts.clock_ms).unwrap_or(i64::MAX);
    Ok(Server {
        url: listener.url().to_string(),
        clock: Clock::new(requested_ms, server_ms, now_ms()),
        facts,
        metrics,
        not_ready,
        rejections,
    })
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A `tsdb serve` on the embedded store with these metrics, in OpenMetrics text without its end.
    pub(in crate::doctor) fn server(metrics: &str) -> Server {
        Server {
            url: "http://a:4245".to_owned(),
            facts: Deployment {
                program: "tsdb".to_owned(),
                version: "0.1.0".to_owned(),
                mode: "rw".to_owned(),
                store: "embedded".to_owned(),
                machine_memory_bytes: 16 << 30,
                ..Deployment::default()
            },
            metrics: Metrics::parse(&format!("{metrics}# EOF\n")).unwrap(),
            not_ready: Vec::new(),
            rejections: Rejections::default(),
            clock: Clock::default(),
        }
    }

    #[test]
    fn clocks_are_compared_within_the_time_of_the_request() {
        let clock = Clock::new(1000, 5100, 1200);
        assert_eq!(
            clock,
            Clock {
                ahead_ms: 4000,
                error_ms: 101
            }
        );
        assert_eq!(clock.least_difference_ms(), 3899);
        assert_eq!(Clock::new(1000, 1000, 3000).least_difference_ms(), 0);
        assert_eq!(Clock::new(5000, 1000, 5000).ahead_ms, -4000);
    }
}
