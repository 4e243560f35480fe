//! The caller's half of a write stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::batch::Batcher;
use super::driver::{Command, Driver, Shared};
use super::outbox::{Closed, Outbox};
use super::outcome::{Acknowledged, FailedPoint, Observers, WriteReport};
use super::session::Session;
use crate::call::Connection;
use crate::{Error, SeriesName, Timestamp, Value};

/// Batches that may wait for the driver.
const BATCHES_AHEAD: usize = 4;

/// How a [`StreamWriter`] works.
#[derive(Debug)]
pub struct StreamOptions {
    patience: Duration,
    linger: Option<Duration>,
    observers: Observers,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            linger: None,
            observers: Observers::default(),
        }
    }
}

impl StreamOptions {
    /// Reconnects for so long, while points are pending and none is acknowledged, before the writer fails. Default:
    /// 30 s. An idle writer reconnects for its next points only.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a batch that is not full so long after its first point. Default: such a batch waits for
    /// [`StreamWriter::flush`].
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    /// Passes each failed point to this function, in place of collecting them for
    /// [`StreamWriter::flush`]. It runs in the task that drives the stream: it should return soon.
    #[must_use]
    pub fn on_failure(mut self, observer: impl FnMut(FailedPoint) + Send + 'static) -> Self {
        self.observers.failure = Some(Box::new(observer));
        self
    }

    /// Passes each acknowledgement to this function, after the failures of its points.
    #[must_use]
    pub fn on_acknowledged(mut self, observer: impl FnMut(Acknowledged) + Send + 'static) -> Self {
        self.observers.acknowledged = Some(Box::new(observer));
        self
    }
}

/// Writes points continuously, the cheapest way to write a steady flow.
///
/// Points are collected into batches; a batch is sent when it is full, by [`flush`](Self::flush), or after the time of
/// [`StreamOptions::linger`]. A broken connection or a draining server loses nothing: points that are not acknowledged
/// are sent again on a new stream, and storing a point twice changes nothing. `send` waits while the server's window is full.
///
/// Close the writer with [`close`](Self::close): dropping it sends the full batches, discards the points of
/// the last one, and reports nothing.
#[derive(Debug)]
pub struct StreamWriter {
    outbox: Outbox,
    shared: Arc<Shared>,
    driver: Option<JoinHandle<Result<(), Error>>>,
    /// Why the driver ended.
    failure: Option<Error>,
}

impl StreamWriter {
    /// Opens a stream. Must be called within a Tokio runtime.
    pub(crate) async fn open(connection: Connection, options: StreamOptions) -> Result<Self, Error> {
        let session = Session::open(&connection).await?;
        let batcher = Batcher::new(session.max_series(), session.max_frame_points());
        let (commands, receiver) = mpsc::channel(BATCHES_AHEAD);
        let shared = Arc::new(Shared::default());
        let driver = Driver {
            connection,
            commands: receiver,
            shared: Arc::clone(&shared),
            observers: options.observers,
            patience: options.patience,
            dictionary: Vec::new(),
            unacknowledged: VecDeque::new(),
            next: None,
            flush: None,
        };
        Ok(Self {
            outbox: Outbox::new(batcher, commands, options.linger),
            shared,
            driver: Some(tokio::spawn(driver.run(session))),
            failure: None,
        })
    }

    /// Adds a point, and sends the batch if it is full. A point is stored when a later
    /// [`flush`](Self::flush) or [`close`](Self::close) returns without its failure.
    ///
    /// # Errors
    ///
    /// The error that stopped the writer. Points that are not acknowledged have to be written again:
    /// [`acknowledged`](Self::acknowledged) counts those that are.
    pub async fn send(
        &mut self,
        series: &SeriesName,
        timestamp: Timestamp,
        value: impl Into<Value>,
    ) -> Result<(), Error> {
        match self.outbox.add(series, timestamp, value.into()).await {
            Ok(()) => Ok(()),
            Err(Closed) => Err(self.failure().await),
        }
    }

    /// Sends what is collected, and waits until all points so far are acknowledged. Returns what became of
    /// the points since the flush before.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn flush(&mut self) -> Result<WriteReport, Error> {
        let (confirm, confirmed) = oneshot::channel();
        let sent = async {
            self.outbox.send_batch().await.ok()?;
            self.outbox.send(Command::Flush(confirm)).await.ok()?;
            confirmed.await.ok()
        };
        match sent.await {
            Some(()) => Ok(self.shared.take_report()),
            None => Err(self.failure().await),
        }
    }

    /// Flushes, and closes the stream.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn close(mut self) -> Result<WriteReport, Error> {
        let report = self.flush().await?;
        let Self { outbox, driver, .. } = self;
        drop(outbox);
        if let Some(driver) = driver {
            // Everything is acknowledged; an error of the last stream changes nothing.
            let _ = driver.await;
        }
        Ok(report)
    }

    /// Waits until the writer fails; returns why. Safe to cancel.
    pub async fn failed(&mut self) -> Error {
        self.outbox.closed().await;
        self.failure().await
    }

    /// How many points are acknowledged: those with an index below.
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged()
    }

    /// How many points were sent: the index of the next one.
    pub fn sent(&self) -> u64 {
        self.outbox.next_index()
    }

    /// Why the driver ended.
    async fn failure(&mut self) -> Error {
        if let Some(driver) = &mut self.driver {
            let error = match driver.await {
                Ok(Err(error)) => error,
                // An observer panicked, or the runtime is shutting down.
                Ok(Ok(())) | Err(_) => Error::invalid("the task of the writer was stopped"),
            };
            self.driver = None;
            self.failure = Some(error);
        }
        match &self.failure {
            Some(error) => error.clone(),
            None => Error::invalid("the writer is closed"),
        }
    }
}
