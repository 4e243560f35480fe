//! The telnet door: OpenTSDB's line protocol, as collectd, tcollector and scripts speak it.
//!
//! A `put` that is stored is silent; only what goes wrong is answered. So that a client may send
//! as fast as it likes, all whole lines that one read brings are stored with one write, and the
//! next read happens after it: a slow store slows the client down, through TCP. Answers come in
//! the order of the lines.
//!
//! While the store or the UID service is not to be had, the write is repeated for
//! [`PATIENCE`] before its points are given up, because no client of this protocol sends again.
//!
//! Differences from OpenTSDB: a line over the limit is answered before the connection is closed;
//! a write that failed is answered once with the number of its points, not once for each; half a
//! line at the end of the input is not stored, as there.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.handleTelnetRpc`, `PutDataPointRpc.execute`,
//! `PipelineFactory` (lines of 1024 bytes).

mod lines;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use memchr::memrchr;
use oxtsdb_server::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::front::counters::{Counters, Statistic};
use crate::front::point_text::{self, Refusal};
use crate::front::{idle, write_failure};
use crate::settings::DataSettings;
use crate::telnet::lines::{Asks, Batch};
use crate::write::{NewPoint, WriteError, WriteOutcome, Writer};

/// How long points wait for a store or UID service that is not to be had.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before the first repetition; each following is twice as long, up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// How long a client may leave answers unread.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The smallest and the largest room for one read.
const MIN_READ_BYTES: usize = 4 << 10;
const MAX_READ_BYTES: usize = 256 << 10;

/// What is still read, at most, once stopping has begun.
const MAX_DRAIN_BYTES: usize = 16 << 20;

/// The telnet side of the data service. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Telnet {
    writer: Writer,
    counters: Arc<Counters>,
    max_line_bytes: usize,
    batch_points: usize,
}

/// Whether the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    Open,
    Ended,
}

impl Telnet {
    pub(crate) fn new(writer: Writer, settings: &DataSettings, counters: Arc<Counters>) -> Telnet {
        Telnet {
            writer,
            counters,
            max_line_bytes: settings.telnet_max_line_bytes,
            batch_points: settings.telnet_batch_points,
        }
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(
        &self,
        mut stream: TcpStream,
        shutdown: Shutdown,
        idle_timeout: Option<Duration>,
    ) -> std::io::Result<()> {
        let mut input = BytesMut::with_capacity(MIN_READ_BYTES);
        let mut room = MIN_READ_BYTES;
        loop {
            input.reserve(room.max(self.max_line_bytes + 1));
            let read = tokio::select! {
                biased;
                () = shutdown.stopping() => return self.drain(stream, input).await,
                read = stream.read_buf(&mut input) => read?,
                () = idle(idle_timeout) => return stream.shutdown().await,
            };
            if read == 0 {
                // Half a line may remain. It is not stored: its value may be half a value.
                return Ok(());
            }
            room = read.saturating_mul(2).clamp(MIN_READ_BYTES, MAX_READ_BYTES);
            if self.handle_input(&mut stream, &mut input).await? == Session::Ended {
                return stream.shutdown().await;
            }
            if input.capacity() > 8 * room {
                // After a burst, a quiet connection gives its memory back.
                input = BytesMut::from(&*input);
            }
        }
    }

    /// Takes what has already reached this machine, stores its whole lines, and closes.
    async fn drain(&self, mut stream: TcpStream, mut input: BytesMut) -> std::io::Result<()> {
        let mut drained = 0;
        while drained < MAX_DRAIN_BYTES {
            input.reserve(MAX_READ_BYTES);
            match stream.try_read_buf(&mut input) {
                Ok(0) => break,
                Ok(read) => drained += read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // What came before the failure is stored all the same.
                Err(_) => break,
            }
            if self.handle_input(&mut stream, &mut input).await? == Session::Ended {
                break;
            }
        }
        stream.shutdown().await
    }

    /// Does what the whole lines in `input` ask for, and leaves the rest.
    async fn handle_input(&self, stream: &mut TcpStream, input: &mut BytesMut) -> std::io::Result<Session> {
        let whole = memrchr(b'\n', input).map_or(0, |newline| newline + 1);
        let lines = input.split_to(whole);
        let session = self.handle_lines(stream, &lines).await?;
        drop(lines);
        if session == Session::Open && input.len() > self.max_line_bytes {
            send(stream, self.line_too_long().as_bytes()).await?;
            return Ok(Session::Ended);
        }
        Ok(session)
    }

    /// Does what `lines` ask for, in batches of limited size, each answered before the next is read.
    async fn handle_lines(&self, stream: &mut TcpStream, mut lines: &[u8]) -> std::io::Result<Session> {
        while !lines.is_empty() {
            let text = latin1(lines);
            let batch = lines::read(&text, self.max_line_bytes, self.batch_points);
            Counters::add(&self.counters.telnet_lines, batch.lines);
            let mut answers = Vec::new();
            self.store(&batch, &mut answers).await;
            if batch.too_long {
                answers.extend_from_slice(self.line_too_long().as_bytes());
            }
            send(stream, &answers).await?;
            if batch.too_long || batch.exit {
                return Ok(Session::Ended);
            }
            // One byte of input is one character of text.
            let read = match &text {
                Cow::Borrowed(_) => batch.read,
                Cow::Owned(text) => text.get(..batch.read).unwrap_or_default().chars().count(),
            };
            lines.advance(read);
        }
        Ok(Session::Open)
    }

    /// Stores the points of a batch and answers its lines.
    async fn store(&self, batch: &Batch<'_>, answers: &mut Vec<u8>) {
        let points: Vec<NewPoint<'_>> = batch
            .points
            .iter()
            .map(|point| NewPoint {
                metric: point.metric,
                tags: batch.tags.get(point.tags.clone()).unwrap_or_default(),
                timestamp: point.timestamp,
                value: point.value,
            })
            .collect();
        Counters::add(&self.counters.puts, points.len());
        let mut refused = Vec::new();
        let mut failure = None;
        if !points.is_empty() {
            match self.write(&points).await {
                Ok(outcome) => {
                    Counters::add(&self.counters.points_added, points.len() - outcome.errors.len());
                    refused = outcome.errors;
                    refused.sort_by_key(|error| error.index);
                }
                Err(error) => {
                    Counters::add(&self.counters.storage_errors, points.len());
                    failure = Some(failed_text(&error, points.len()));
                }
            }
        }
        let mut refused = refused.iter().peekable();
        for other in &batch.others {
            while let Some(error) = refused.next_if(|error| error.index < other.points_before) {
                self.answer_refused(answers, points.get(error.index), &error.reason);
            }
            match &other.asks {
                Asks::Version => answers.extend_from_slice(version_text().as_bytes()),
                Asks::Help => answers.extend_from_slice(HELP.as_bytes()),
                Asks::Stats => write_statistics(answers, &self.counters.statistics()),
                Asks::InvalidValue(text) | Asks::IllegalArgument(text) => {
                    Counters::count(&self.counters.puts);
                    let counter = match other.asks {
                        Asks::InvalidValue(_) => &self.counters.invalid_values,
                        _ => &self.counters.illegal_arguments,
                    };
                    Counters::count(counter);
                    answers.extend_from_slice(text.as_bytes());
                }
                Asks::Unknown(command) => {
                    let text = format!("unknown command: {command}.  Try `help'.\n");
                    answers.extend_from_slice(text.as_bytes());
                }
            }
        }
        for error in refused {
            self.answer_refused(answers, points.get(error.index), &error.reason);
        }
        answers.extend_from_slice(failure.unwrap_or_default().as_bytes());
    }

    /// Writes, and writes again while what is missing may come back.
    async fn write(&self, points: &[NewPoint<'_>]) -> Result<WriteOutcome, WriteError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.writer.write(points, Some(deadline.into_std())).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            if !write_failure::may_pass(&error) || Instant::now() + pause >= deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn answer_refused(
        &self,
        answers: &mut Vec<u8>,
        point: Option<&NewPoint<'_>>,
        reason: &crate::write::PointErrorReason,
    ) {
        let (metric, tags) = point.map_or(("", &[][..]), |point| (point.metric, point.tags));
        let (counter, text) = match Refusal::of(reason, tags) {
            Refusal::NoTags => (
                &self.counters.illegal_arguments,
                lines::illegal(point_text::no_tags(metric)),
            ),
            Refusal::Rule(text) => (&self.counters.illegal_arguments, lines::illegal(text)),
            Refusal::UnknownName { kind, name } => (
                &self.counters.unknown_metrics,
                format!("put: unknown metric: No such name for '{kind}': '{name}'\n"),
            ),
            Refusal::Storage(text) => (
                &self.counters.storage_errors,
                format!("put: HBase error: {text}\n"),
            ),
        };
        Counters::count(counter);
        answers.extend_from_slice(text.as_bytes());
    }

    fn line_too_long(&self) -> String {
        let max = self.max_line_bytes;
        format!("error: line is too long, at most {max} bytes are allowed; closing\n")
    }
}

/// Sends answers, if there are any.
async fn send(stream: &mut TcpStream, answers: &[u8]) -> std::io::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    tokio::time::timeout(ANSWER_TIMEOUT, stream.write_all(answers)).await?
}

const HELP: &str = "available commands: stats version exit help put \n";

fn version_text() -> String {
    format!(
        "oxtsdb {} built at revision {}\nSpeaks the protocol of OpenTSDB {}\n",
        crate::http::version::VERSION,
        crate::http::version::REVISION,
        crate::http::version::OPENTSDB_VERSION,
    )
}

/// `tsd.rpc.received 1795250492 1 type=telnet host=vm`.
fn write_statistics(answers: &mut Vec<u8>, statistics: &[Statistic]) {
    let seconds = crate::http::stats::now_seconds();
    let host = crate::http::version::host();
    for Statistic { name, tag, value } in statistics {
        let tag = tag
            .map(|(key, value)| format!(" {key}={value}"))
            .unwrap_or_default();
        let line = format!("{name} {seconds} {value}{tag} host={host}\n");
        answers.extend_from_slice(line.as_bytes());
    }
}

/// The answer to a write that failed as a whole.
fn failed_text(error: &WriteError, points: usize) -> String {
    let words = match error {
        WriteError::Overloaded { .. } => "Please throttle writes",
        WriteError::Store(_) | WriteError::Uids(_) | WriteError::DeadlineExceeded => "HBase error",
    };
    format!("put: {words}: {error} ({points} points are not known to be stored)\n")
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

#[cfg(test)]
mod tests;
