//! Graceful shutdown in two steps, draining and stopping.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Announces the shutdown of a program to all its parts. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Shutdown {
    draining: CancellationToken,
    stopping: CancellationToken,
}

/// Starts the shutdown that a [`Shutdown`] announces.
#[derive(Debug)]
pub struct ShutdownTrigger {
    shutdown: Shutdown,
    lame_duck: Duration,
}

impl Shutdown {
    /// A shutdown and its trigger. `lame_duck` is the time between draining and stopping, in which load
    /// balancers remove the server; zero without load balancers.
    pub fn new(lame_duck: Duration) -> (Self, ShutdownTrigger) {
        let shutdown = Self {
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
        };
        (shutdown.clone(), ShutdownTrigger { shutdown, lame_duck })
    }

    /// The shutdown that one connection sees: it drains when the program does, or by [`Shutdown::drain`].
    pub(crate) fn for_connection(&self) -> Self {
        Self {
            draining: self.draining.child_token(),
            stopping: self.stopping.clone(),
        }
    }

    /// Begins the drain of a connection.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }

    /// The shutdown of the connection that a request came over; for a request within the process, `program`.
    pub fn from_extensions(extensions: &http::Extensions, program: &Self) -> Self {
        extensions.get().unwrap_or(program).clone()
    }

    /// Completes when draining begins: announce it to clients, and accept no new streams.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Completes when stopping begins: complete requests in progress, and start no new ones.
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

    /// Waits for SIGTERM or SIGINT, then shuts down. SIGINT and a second signal skip the lame duck: somebody waits at
    /// the terminal.
    ///
    /// # Errors
    ///
    /// The signal handlers cannot be installed.
    pub async fn on_signal(self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Files of TLS are read again at SIGHUP; without TLS it must not end the process, as it does by default.
        let _hangup = signal(SignalKind::hangup())?;
        let (name, lame_duck) = tokio::select! {
            _ = terminate.recv() => ("SIGTERM", self.lame_duck),
            _ = interrupt.recv() => ("SIGINT", Duration::ZERO),
        };
        info!(signal = name, lame_duck_seconds = lame_duck.as_secs(), "draining");
        let stopping = self.shutdown.stopping.clone();
        let trigger = Self { lame_duck, ..self };
        tokio::select! {
            () = trigger.shut_down() => {}
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
    async fn drains_before_it_stops() {
        let (shutdown, trigger) = Shutdown::new(Duration::from_secs(3600));
        let ending = tokio::spawn(trigger.shut_down());
        shutdown.draining().await;
        assert!(shutdown.is_draining() && !shutdown.is_stopping());
        ending.abort();
    }

    #[tokio::test]
    async fn stops_at_once_without_lame_duck() {
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        trigger.shut_down().await;
        shutdown.stopping().await;
        assert!(shutdown.is_stopping());
    }
}
