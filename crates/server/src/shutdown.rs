//! An orderly end, in two steps.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Tells every part of a program that it is about to end. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Shutdown {
    draining: CancellationToken,
    stopping: CancellationToken,
}

/// Starts the end that a [`Shutdown`] tells of.
#[derive(Debug)]
pub struct ShutdownTrigger {
    shutdown: Shutdown,
    lame_duck: Duration,
}

impl Shutdown {
    /// A shutdown and what starts it. Between draining and stopping it waits for `lame_duck`, so
    /// that balancers notice; zero for programs that no balancer watches.
    pub fn new(lame_duck: Duration) -> (Self, ShutdownTrigger) {
        let shutdown = Self {
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
        };
        (shutdown.clone(), ShutdownTrigger { shutdown, lame_duck })
    }

    /// Completes when the program begins to drain: say so to clients, and accept no new streams.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Completes when what is under way is to be finished and nothing new begun.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Whether draining has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether stopping has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}

impl ShutdownTrigger {
    /// Drains, waits for the lame duck, and stops.
    pub async fn shut_down(self) {
        self.shutdown.draining.cancel();
        tokio::time::sleep(self.lame_duck).await;
        self.shutdown.stopping.cancel();
    }

    /// Waits for SIGTERM or SIGINT, then shuts down. A second signal skips the lame duck.
    ///
    /// # Errors
    ///
    /// If the signals cannot be watched.
    pub async fn on_signal(self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "draining");
        let stopping = self.shutdown.stopping.clone();
        tokio::select! {
            () = self.shut_down() => {}
            _ = terminate.recv() => stopping.cancel(),
            _ = interrupt.recv() => stopping.cancel(),
        }
        info!("stopping");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn draining_comes_before_stopping() {
        let (shutdown, trigger) = Shutdown::new(Duration::from_secs(3600));
        let ending = tokio::spawn(trigger.shut_down());
        shutdown.draining().await;
        assert!(shutdown.is_draining() && !shutdown.is_stopping());
        ending.abort();
    }

    #[tokio::test]
    async fn without_a_lame_duck_it_stops_at_once() {
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        trigger.shut_down().await;
        shutdown.stopping().await;
        assert!(shutdown.is_stopping());
    }
}
