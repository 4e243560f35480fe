//! One connection: what is read from it, what is in flight, what is answered.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt as _;
use memchr::memrchr;
use oxtsdb_resources::{MemoryError, Reservation};
use oxtsdb_server::Shutdown;
use oxtsdb_server::connections::{ClientStream, Connection};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::answers::{answer_failed, answer_lines, answer_too_long};
use super::in_flight::{Ended, InFlight};
use super::lines::{self, Batch, Other};
use super::{PATIENCE, Telnet};
use crate::front::counters::Counters;
use crate::write::{NewPoint, PointRef, WriteError};

/// The smallest and the largest read.
const MIN_READ_BYTES: usize = 4 << 10;
const MAX_READ_BYTES: usize = 256 << 10;

/// Memory that a byte of input takes: itself, its line once parsed, and its copy while it is in flight.
const MEMORY_PER_BYTE: usize = 5;

/// How long a reservation waits before the connection looks at what is in flight again.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// What is still read, at most, once stopping has begun.
const MAX_DRAIN_BYTES: usize = 16 << 20;

/// A connection that is being served.
pub(super) struct Session<'a> {
    telnet: &'a Telnet,
    stream: ClientStream,
    in_flight: InFlight,
    /// What was not sent yet. It is sent when nothing is in flight.
    answers: Vec<u8>,
    /// Whether the client takes answers.
    sent: std::io::Result<()>,
    /// For what was read last, and what is made of it.
    memory: Reservation,
}

/// Whether a session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Ended,
}

impl<'a> Session<'a> {
    pub(super) fn new(telnet: &'a Telnet, stream: ClientStream) -> Self {
        Session {
            telnet,
            stream,
            in_flight: InFlight::default(),
            answers: Vec::new(),
            sent: Ok(()),
            memory: telnet.writer.memory().empty_reservation(),
        }
    }

    /// Serves to the end. However it comes, the whole lines that were read are stored before.
    pub(super) async fn run(mut self, shutdown: &Shutdown, connection: &Connection) -> std::io::Result<()> {
        let read = self.read(shutdown, connection).await;
        self.settle().await;
        read.and(self.sent)?;
        self.stream.shutdown().await
    }

    /// Reads lines until there are no more, or are to be no more.
    ///
    /// Memory for a read is reserved when there is something to read: a connection that waits has none. While
    /// the pool is exhausted nothing is read, and TCP slows the client down.
    async fn read(&mut self, shutdown: &Shutdown, connection: &Connection) -> std::io::Result<()> {
        let mut input = BytesMut::new();
        // While lines are being handled or are in flight.
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
                Some(ended) = self.in_flight.next() => {
                    self.ended(ended);
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
            input.reserve(read_bytes.max(self.telnet.max_line_bytes + 1));
            let read = match self.stream.try_read_buf(&mut input) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // Until more comes the connection holds what is left of a line.
                    input = BytesMut::from(&*input);
                    self.memory.shrink_to(0);
                    continue;
                }
                Err(error) => return Err(error),
            };
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

    /// Reserves memory for a read of so many bytes, or of fewer if there is little. Waits until there is some,
    /// while what is in flight goes on. Returns how many bytes may be read.
    async fn reserve(&mut self, read_bytes: usize) -> usize {
        if self.reserve_up_to(read_bytes).is_ok() {
            return read_bytes;
        }
        // What it holds is the reserve of the last read, of which nothing is left but a piece of a line.
        self.memory.shrink_to(0);
        let pool = self.telnet.writer.memory().clone();
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.in_flight.next() => self.ended(ended),
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

    /// Takes what has already reached this machine, as long as there is memory for it.
    async fn drain(&mut self, mut input: BytesMut) -> std::io::Result<()> {
        let mut drained = 0;
        while drained < MAX_DRAIN_BYTES {
            // While the pool is exhausted the program still has to end.
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
                Ok(read) => drained += read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // What came before the failure is stored all the same.
                Err(_) => break,
            }
            if self.handle_input(&mut input).await == Progress::Ended {
                break;
            }
        }
        Ok(())
    }

    /// Does what the whole lines in `input` ask for, and leaves the rest.
    async fn handle_input(&mut self, input: &mut BytesMut) -> Progress {
        let whole = memrchr(b'\n', input).map_or(0, |newline| newline + 1);
        let lines = input.split_to(whole);
        if self.handle_lines(&latin1(&lines)).await == Progress::Ended {
            return Progress::Ended;
        }
        if input.len() > self.telnet.max_line_bytes {
            self.settle().await;
            answer_too_long(&mut self.answers, self.telnet.max_line_bytes);
            return Progress::Ended;
        }
        match self.sent {
            Ok(()) => Progress::Open,
            Err(_) => Progress::Ended,
        }
    }

    /// Does what `text` asks for, in batches of limited size.
    async fn handle_lines(&mut self, mut text: &str) -> Progress {
        while !text.is_empty() {
            let batch = lines::read(text, self.telnet.max_line_bytes, self.telnet.batch_points);
            Counters::add(&self.telnet.counters.telnet_lines, batch.lines);
            Counters::add(&self.telnet.counters.puts, batch.points.len());
            let (read, rest) = text.split_at(batch.read);
            if !self.begin(&batch, read).await {
                self.settle().await;
                self.store(&points_of(&batch), &batch.others).await;
                if batch.too_long {
                    answer_too_long(&mut self.answers, self.telnet.max_line_bytes);
                }
                self.send().await;
            }
            if batch.too_long || batch.exit {
                return Progress::Ended;
            }
            text = rest;
        }
        Progress::Open
    }

    /// Brings a batch in flight, if it has nothing to answer, can be begun, and no failure comes to
    /// light before. Meanwhile those before it go on.
    async fn begin(&mut self, batch: &Batch<'_>, text: &str) -> bool {
        if batch.has_answers() {
            return false;
        }
        let telnet = self.telnet;
        let points = points_of(batch);
        let begun = async {
            let deadline = (Instant::now() + PATIENCE).into_std();
            let point = |index: usize| PointRef::from(&points[index]);
            let series = telnet
                .writer
                .resolve_points(points.len(), point, Some(deadline))
                .await?;
            if series.iter().any(Result::is_err) {
                return Ok(None);
            }
            let permit = telnet.writer.permit(points.len()).await;
            let (encoded, _) = telnet.writer.encode(&series, point, permit);
            Ok::<_, WriteError>(Some(encoded))
        };
        let mut begun = pin!(begun);
        let begun = loop {
            if self.has_failed() {
                return false;
            }
            let is_window_open = self.in_flight.bytes() < telnet.window_bytes;
            tokio::select! {
                biased;
                Some(ended) = self.in_flight.next() => self.ended(ended),
                begun = &mut begun, if is_window_open => break begun,
            }
        };
        // A failure comes again when the batch is stored alone, with patience.
        let Ok(Some(encoded)) = begun else {
            return false;
        };
        let stored = telnet.writer.begin_store(encoded);
        let memory = self.memory.split(InFlight::bytes_of(text) as u64);
        self.in_flight.push(text, points.len(), memory, stored);
        // The store begins when it is polled: not after the next lines are parsed, but beside that.
        while let Some(Some(ended)) = self.in_flight.next().now_or_never() {
            self.ended(ended);
        }
        true
    }

    fn ended(&mut self, ended: Ended) {
        let counters = &self.telnet.counters;
        match ended {
            Ended::Stored(points) => Counters::add(&counters.points_added, points),
            Ended::Failed(points, error) => answer_failed(&mut self.answers, counters, points, &error),
            Ended::Again => {}
        }
    }

    /// Whether something that was in flight has failed, and was not settled since.
    fn has_failed(&self) -> bool {
        self.in_flight.has_again() || !self.answers.is_empty()
    }

    /// Waits for all that is in flight, stores again what has to be, and sends what there is to
    /// answer.
    async fn settle(&mut self) {
        while let Some(ended) = self.in_flight.next().await {
            self.ended(ended);
        }
        let (again, _memory) = self.in_flight.take_again();
        let mut text = &*again;
        while !text.is_empty() {
            let batch = lines::read(text, self.telnet.max_line_bytes, self.telnet.batch_points);
            self.store(&points_of(&batch), &batch.others).await;
            text = text.get(batch.read..).unwrap_or_default();
        }
        self.send().await;
    }

    /// Stores points while nothing is in flight, with patience, and answers their lines and `others`.
    async fn store(&mut self, points: &[NewPoint<'_>], others: &[Other<'_>]) {
        let (answers, counters) = (&mut self.answers, &self.telnet.counters);
        let (refused, failure) = match self.telnet.write(points).await {
            Ok(outcome) => (outcome.errors, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if failure.is_none() {
            Counters::add(&counters.points_added, points.len() - refused.len());
        }
        answer_lines(answers, counters, points, refused, others);
        if let Some(error) = failure {
            answer_failed(answers, counters, points.len(), &error);
        }
    }

    /// Sends what there is to answer. Nothing is in flight then: a client that leaves its answers
    /// unread must hold no permit.
    async fn send(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        if answers.is_empty() || self.sent.is_err() {
            return;
        }
        // A client that does not read is cut off by the stream.
        self.sent = async {
            self.stream.write_all(&answers).await?;
            self.stream.flush().await
        }
        .await;
    }
}

/// What a read of so many bytes takes until its lines are stored.
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
