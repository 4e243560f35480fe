//! One telnet connection: reads lines, keeps batches in flight, and sends replies.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt as _;
use memchr::memrchr;
use oxtsdb_ingest::rollup::RollupWriter;
use oxtsdb_ingest::{Caller, NewPoint, WriteError, Writer};
use oxtsdb_resources::{MemoryError, Reservation};
use oxtsdb_server::Shutdown;
use oxtsdb_server::connections::{ClientStream, Connection};
use oxtsdb_server::metrics::Protocol;
use oxtsdb_server::telemetry::transferred;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::batch;
use super::datum::{DatumKind, Histograms};
use super::in_flight::{BatchResult, InFlight};
use super::lines::{self, Batch, Command, OtherLine};
use super::patient_write::{self, PATIENCE};
use super::puts::{self, Puts};
use super::replies::{
    OK, count_failed, method_and_code, reply_to_failed_write, reply_to_lines, reply_to_long_line,
    reply_to_rejected,
};
use super::served::{RefusedLine, Served};
use crate::front::counters::Counters;

/// The smallest and the largest read.
const MIN_READ_BYTES: usize = 4 << 10;
const MAX_READ_BYTES: usize = 256 << 10;

/// Memory that a byte of input takes: itself, its line once parsed, and its copy while it is in flight.
const MEMORY_PER_BYTE: usize = 5;

/// How long a reservation waits before the session handles batches that have completed.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// The most that a session reads during a shutdown.
const MAX_DRAIN_BYTES: usize = 16 << 20;

/// Limits of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionOptions {
    /// Characters of a line, at most.
    pub(super) max_line_bytes: usize,
    /// Points of a batch, at most.
    pub(super) batch_points: usize,
    /// Bytes of lines in flight; the last batch may go over it.
    pub(super) window_bytes: usize,
}

/// The writers of a session.
#[derive(Debug)]
pub(super) struct Writers {
    pub(super) points: Writer,
    pub(super) histograms: Histograms,
    pub(super) rollups: RollupWriter,
}

/// A connection that is being served.
pub(super) struct Session<'a> {
    /// Of points.
    writer: &'a Writer,
    histograms: &'a Histograms,
    rollups: &'a RollupWriter,
    counters: &'a Counters,
    caller: Caller,
    options: SessionOptions,
    served: Served,
    stream: ClientStream,
    in_flight: InFlight,
    /// Replies that are not sent yet. They are sent while nothing is in flight.
    replies: Vec<u8>,
    /// The error of the first reply that could not be sent.
    sent: std::io::Result<()>,
    /// Memory of the last read and of its batches that are not in flight yet.
    memory: Reservation,
}

/// Whether a session continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Ended,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        writers: &'a Writers,
        counters: &'a Counters,
        caller: Caller,
        options: SessionOptions,
        served: Served,
        stream: ClientStream,
    ) -> Self {
        let writer = &writers.points;
        let memory = writer.memory_of(caller.client).empty_reservation();
        Session {
            writer,
            histograms: &writers.histograms,
            rollups: &writers.rollups,
            counters,
            caller,
            options,
            served,
            stream,
            in_flight: InFlight::default(),
            replies: Vec::new(),
            sent: Ok(()),
            memory,
        }
    }

    /// Serves the connection until it closes, and stores all whole lines that were read, however it closes.
    pub(super) async fn run(mut self, shutdown: &Shutdown, connection: &Connection) -> std::io::Result<()> {
        let read = self.read(shutdown, connection).await;
        self.settle().await;
        read.and(self.sent)?;
        self.stream.shutdown().await
    }

    /// Reads lines until the input ends, a line ends the session, or the connection has to close.
    ///
    /// Memory for a read is reserved when the socket is readable: an idle connection holds none. While the pool is
    /// exhausted nothing is read, and TCP slows the client down.
    async fn read(&mut self, shutdown: &Shutdown, connection: &Connection) -> std::io::Result<()> {
        let mut input = BytesMut::new();
        // Held while lines are being handled or are in flight.
        let mut request = None;
        let mut read_bytes = MIN_READ_BYTES;
        loop {
            if self.has_failed() {
                self.settle().await;
            }
            if self.in_flight.is_empty() {
                request = None;
            }
            tokio::select! {
                biased;
                Some(result) = self.in_flight.next() => {
                    self.batch_completed(result);
                    continue;
                }
                () = shutdown.stopping() => return self.drain(input).await,
                ready = self.stream.readable() => ready?,
                () = connection.closing() => return Ok(()),
            }
            request.get_or_insert_with(|| connection.request());
            let reserved = tokio::select! {
                biased;
                reserved = self.reserve(read_bytes) => reserved,
                () = shutdown.stopping() => return self.drain(input).await,
                () = connection.closing() => return Ok(()),
            };
            if reserved < read_bytes {
                input = BytesMut::from(&*input);
            }
            read_bytes = reserved;
            input.reserve(read_bytes.max(self.options.max_line_bytes + 1));
            let read = match self.stream.try_read_buf(&mut input) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // The connection keeps only the beginning of a line until the socket is readable.
                    input = BytesMut::from(&*input);
                    self.memory.shrink_to(0);
                    continue;
                }
                Err(error) => return Err(error),
            };
            transferred(read, 0);
            if read == 0 {
                // Half a line may remain. It is not stored: its value may be half a value.
                return Ok(());
            }
            read_bytes = read.saturating_mul(2).clamp(MIN_READ_BYTES, MAX_READ_BYTES);
            if self.handle_input(&mut input).await == Progress::Ended {
                return Ok(());
            }
        }
    }

    /// Reserves memory for a read of `read_bytes`, or for the smallest read if that is not free. Waits until memory is
    /// free, and drives the batches in flight meanwhile. Returns how many bytes may be read.
    async fn reserve(&mut self, read_bytes: usize) -> usize {
        if self.reserve_up_to(read_bytes).is_ok() {
            return read_bytes;
        }
        // Releases the reservation of the last read: at most the beginning of a line remains of the bytes that it read.
        self.memory.shrink_to(0);
        let pool = self.memory.pool().clone();
        loop {
            tokio::select! {
                biased;
                Some(result) = self.in_flight.next() => self.batch_completed(result),
                memory = pool.reserve(memory_of(MIN_READ_BYTES), MEMORY_WAIT) => {
                    if let Ok(memory) = memory {
                        self.memory = memory;
                        return MIN_READ_BYTES;
                    }
                }
            }
        }
    }

    fn reserve_up_to(&mut self, read_bytes: usize) -> Result<(), MemoryError> {
        let missing = memory_of(read_bytes).saturating_sub(self.memory.bytes());
        self.memory.try_grow(missing)
    }

    /// Reads bytes that have already reached this machine, as long as memory is free.
    async fn drain(&mut self, mut input: BytesMut) -> std::io::Result<()> {
        let mut drained = 0;
        while drained < MAX_DRAIN_BYTES {
            // The shutdown must not wait for an exhausted pool.
            let Ok(read_bytes) = timeout(MEMORY_WAIT, self.reserve(MAX_READ_BYTES)).await else {
                let wait = MEMORY_WAIT;
                warn!(
                    ?wait,
                    "a telnet client's last lines are not read: no ingest memory while stopping"
                );
                break;
            };
            input.reserve(read_bytes);
            match self.stream.try_read_buf(&mut input) {
                Ok(0) => break,
                Ok(read) => {
                    transferred(read, 0);
                    drained += read;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // The lines before the failure are stored.
                Err(_) => break,
            }
            if self.handle_input(&mut input).await == Progress::Ended {
                break;
            }
        }
        Ok(())
    }

    /// Handles the whole lines of `input`, and leaves the rest.
    async fn handle_input(&mut self, input: &mut BytesMut) -> Progress {
        let whole = memrchr(b'\n', input).map_or(0, |newline| newline + 1);
        let lines = input.split_to(whole);
        if self.handle_lines(&latin1(&lines)).await == Progress::Ended {
            return Progress::Ended;
        }
        if input.len() > self.options.max_line_bytes {
            self.settle().await;
            let (max, line) = (self.options.max_line_bytes, latin1(input));
            reply_to_long_line(&mut self.replies, (self.counters, &self.caller), max, &line);
            return Progress::Ended;
        }
        match self.sent {
            Ok(()) => Progress::Open,
            Err(_) => Progress::Ended,
        }
    }

    /// Handles lines in batches of limited size, and replies to lines with commands that are not served.
    async fn handle_lines(&mut self, mut text: &str) -> Progress {
        let (writer, counters) = (self.writer, self.counters);
        let SessionOptions {
            max_line_bytes,
            batch_points,
            ..
        } = self.options;
        while !text.is_empty() {
            if self.served.serves("put") {
                let puts = puts::parse(text, max_line_bytes, batch_points, |series| writer.known(series));
                if !puts.points.is_empty() {
                    Counters::add(&counters.telnet_lines, puts.points.len());
                    Counters::add(&counters.puts, puts.points.len());
                    let (read, rest) = text.split_at(puts.read);
                    if !self.begin(puts, read).await {
                        self.settle().await;
                        self.store_again(read).await;
                        self.send().await;
                    }
                    text = rest;
                    continue;
                }
            }
            let (served, refused) = self.served.divide(text, batch_points);
            if let Some(RefusedLine { reply, length }) = refused.filter(|_| served == 0) {
                Counters::add(&counters.telnet_lines, 1);
                self.settle().await;
                self.replies.extend_from_slice(reply.as_bytes());
                self.send().await;
                text = text.get(length..).unwrap_or_default();
                continue;
            }
            let lines = text.get(..served).unwrap_or(text);
            let batch = batch::parse(lines, max_line_bytes, batch_points, writer.histograms().as_ref());
            Counters::add(&counters.telnet_lines, batch.lines);
            Counters::add(&counters.puts, batch.points.len());
            self.settle().await;
            self.store(&points_of(&batch), &batch.others).await;
            if batch.too_long {
                let line = text.get(batch.read..).and_then(|rest| rest.lines().next());
                let line = line.unwrap_or_default();
                reply_to_long_line(&mut self.replies, (counters, &self.caller), max_line_bytes, line);
            }
            self.send().await;
            if batch.too_long || batch.exit {
                return Progress::Ended;
            }
            text = text.get(batch.read..).unwrap_or_default();
        }
        Progress::Open
    }

    /// Brings points in flight, and drives those before them meanwhile. Returns false if they need a reply, if they
    /// cannot begin, or if an earlier batch fails before.
    async fn begin(&mut self, mut puts: Puts<'_>, text: &str) -> bool {
        let writer = self.writer;
        let count = puts.points.len();
        let points = std::mem::take(&mut puts.points);
        let begun = async {
            let deadline = (Instant::now() + PATIENCE).into_std();
            let series = writer.resolve_points(puts.take_series(), Some(deadline)).await?;
            if series.iter().any(Result::is_err) {
                return Ok(None);
            }
            let permit = writer.permit(count).await;
            let (encoded, errors) = writer.encode(&series, |index| points[index], permit);
            Ok::<_, WriteError>(errors.is_empty().then_some(encoded))
        };
        let mut begun = pin!(begun);
        let begun = loop {
            if self.has_failed() {
                return false;
            }
            let is_window_open = self.in_flight.bytes() < self.options.window_bytes;
            tokio::select! {
                biased;
                Some(result) = self.in_flight.next() => self.batch_completed(result),
                begun = &mut begun, if is_window_open => break begun,
            }
        };
        // The failure recurs when the batch is stored alone, with retries.
        let Ok(Some(encoded)) = begun else {
            return false;
        };
        let begun_at = std::time::Instant::now();
        let stored = self.writer.begin_store(encoded);
        let memory = self.memory.split(InFlight::bytes_of(text) as u64);
        self.in_flight.push((text, count), memory, begun_at, stored);
        // The write begins with its first poll: now, not after the next lines are parsed.
        while let Some(Some(result)) = self.in_flight.next().now_or_never() {
            self.batch_completed(result);
        }
        true
    }

    fn batch_completed(&mut self, result: BatchResult) {
        let counters = self.counters;
        match result {
            BatchResult::Stored(points, begun) => {
                counters.ingest(Protocol::Telnet).add_batch(points as u64);
                counters
                    .requests()
                    .count(Protocol::Telnet, "put", OK, points as u64);
                counters.requests().observe(Protocol::Telnet, "put", begun);
            }
            BatchResult::Failed(points, error) => {
                reply_to_failed_write(&mut self.replies, counters, points, &error)
            }
            BatchResult::StoreAgain => {}
        }
    }

    /// Whether a batch in flight has failed since the last [`Session::settle`].
    fn has_failed(&self) -> bool {
        self.in_flight.has_again() || !self.replies.is_empty()
    }

    /// Waits for all batches in flight, stores those again that have to be, and sends the replies.
    async fn settle(&mut self) {
        while let Some(result) = self.in_flight.next().await {
            self.batch_completed(result);
        }
        let (again, _memory) = self.in_flight.take_again();
        self.store_again(&again).await;
        self.send().await;
    }

    /// Stores lines that are all points, with retries, while nothing is in flight.
    async fn store_again(&mut self, mut text: &str) {
        while !text.is_empty() {
            let SessionOptions {
                max_line_bytes,
                batch_points,
                ..
            } = self.options;
            let histograms = self.writer.histograms();
            let batch = batch::parse(text, max_line_bytes, batch_points, histograms.as_ref());
            self.store(&points_of(&batch), &batch.others).await;
            text = text.get(batch.read..).unwrap_or_default();
        }
    }

    /// Stores points with retries while nothing is in flight, and replies to their lines and to `others`.
    async fn store(&mut self, points: &[NewPoint<'_>], others: &[OtherLine<'_>]) {
        let begun = std::time::Instant::now();
        let mut others_rejected = self.store_data(self.histograms, others).await;
        others_rejected.append(&mut self.store_data(self.rollups, others).await);
        let (replies, counters) = (&mut self.replies, self.counters);
        let (rejected, failure) = match patient_write::write(self.writer, points).await {
            Ok(outcome) => (outcome.errors, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if failure.is_none() && !points.is_empty() {
            let stored = (points.len() - rejected.len()) as u64;
            counters.ingest(Protocol::Telnet).add_batch(stored);
            counters.requests().count(Protocol::Telnet, "put", OK, stored);
            counters.requests().observe(Protocol::Telnet, "put", begun);
        }
        if others.iter().any(|other| other.command == Command::DropCaches) {
            self.writer.drop_caches().await;
        }
        let of = (counters, &self.caller);
        reply_to_lines(replies, of, points, rejected, others, &others_rejected);
        for other in others {
            let (method, _) = method_and_code(&other.command);
            counters.requests().observe(Protocol::Telnet, method, begun);
        }
        if let Some(error) = failure {
            reply_to_failed_write(replies, counters, points.len(), &error);
        }
    }

    /// Stores the data of lines of a kind with retries; returns the replies to those that are not stored, by their places.
    async fn store_data<K: DatumKind>(
        &mut self,
        kind: &K,
        others: &[OtherLine<'_>],
    ) -> BTreeMap<usize, String> {
        let lines = others.iter().enumerate();
        let lines = lines.filter_map(|(place, other)| Some((place, K::line(&other.command)?)));
        let (places, lines): (Vec<usize>, Vec<&K::Line<'_>>) = lines.unzip();
        if lines.is_empty() {
            return BTreeMap::new();
        }
        Counters::add(&self.counters.puts, lines.len());
        let outcome = match patient_write::write_data(kind, &lines).await {
            Ok(outcome) => outcome,
            Err(error) => {
                count_failed(self.counters, K::COMMAND, lines.len());
                let reply = format!("{}: HBase error: {error}\n", K::COMMAND);
                return places.into_iter().map(|place| (place, reply.clone())).collect();
            }
        };
        self.counters.ingest(Protocol::Telnet).add_batch(outcome.written);
        let of = (self.counters, &self.caller);
        let rejected = outcome.errors.iter().filter_map(|error| {
            let (place, line) = (*places.get(error.index)?, lines.get(error.index)?);
            let text = || others.get(place).map_or("", |other| other.line).to_owned();
            let reply = reply_to_rejected(of, K::COMMAND, K::series(line), &error.reason, text);
            Some((place, reply))
        });
        rejected.collect()
    }

    /// Sends the replies. Nothing may be in flight: a client that does not read its replies must not hold a permit.
    async fn send(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        if replies.is_empty() || self.sent.is_err() {
            return;
        }
        transferred(0, replies.len());
        // The stream times out if the client does not read.
        self.sent = async {
            self.stream.write_all(&replies).await?;
            self.stream.flush().await
        }
        .await;
    }
}

/// Memory of a read until its lines are stored, in bytes.
fn memory_of(read_bytes: usize) -> u64 {
    (read_bytes * MEMORY_PER_BYTE) as u64
}

fn points_of<'b>(batch: &'b Batch<'_>) -> Vec<NewPoint<'b>> {
    let point = |point: &'b lines::PutLine<'_>| NewPoint {
        metric: point.metric,
        tags: batch.tags.get(point.tags.clone()).unwrap_or_default(),
        timestamp: point.timestamp,
        value: point.value,
    };
    batch.points.iter().map(point).collect()
}

/// Decodes ISO-8859-1: each byte is a character. Plain ASCII, which nearly all input is, is not
/// copied.
fn latin1(bytes: &[u8]) -> Cow<'_, str> {
    if bytes.is_ascii()
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Cow::Borrowed(text);
    }
    Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect())
}
