//! Bodies of responses: parts that are released as the client reads them.
//!
//! A large body is never contiguous: it grows without copies, and shrinks while it is sent. Its share of the query
//! memory is released with its parts, also when the client disconnects.
//!
//! A body can end with a stream of bodies that are made while it is sent. If the stream fails, the connection is closed
//! before the end of the body.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use hyper::body::{Body, Frame, SizeHint};
use oxtsdb_query::Budget;
use oxtsdb_query::Held;
use oxtsdb_query::QueryError;
use oxtsdb_resources::ComputePool;
use tracing::warn;

/// Bytes of a part, about.
const PART_BYTES: usize = 256 << 10;

/// Bytes of a result from which on it is sent before it is complete.
const WHOLE_BYTES: u64 = 256 << 10;

/// Items that one job writes.
const JOB_ITEMS: usize = 1024;

/// Error of a body that ended early.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Bodies that follow a body, made while it is sent.
pub(crate) type Rest = BoxStream<'static, Result<ReplyBody, BodyError>>;

/// The body of a response.
#[derive(Default)]
pub(crate) struct ReplyBody {
    parts: VecDeque<Bytes>,
    length: u64,
    held: Option<Held>,
    rest: Option<Rest>,
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyBody")
            .field("length", &self.length)
            .field("has_rest", &self.rest.is_some())
            .finish_non_exhaustive()
    }
}

impl ReplyBody {
    /// A body of parts, and their memory.
    pub(crate) fn from_parts(parts: Vec<Bytes>, held: Held) -> Self {
        Self {
            length: parts.iter().map(|part| part.len() as u64).sum(),
            parts: parts.into(),
            held: Some(held),
            rest: None,
        }
    }

    /// A body of pieces. With up to [`WHOLE_BYTES`], or if `is_whole`, it is complete; a larger one is followed by the
    /// remaining pieces, which are made while the client reads. An error among them closes the connection and is logged;
    /// `result` names the result.
    ///
    /// # Errors
    ///
    /// The first error, before anything is sent.
    pub(crate) async fn from_pieces(
        pieces: impl Stream<Item = Result<Self, QueryError>> + Send + 'static,
        is_whole: bool,
        result: &'static str,
    ) -> Result<Self, QueryError> {
        let mut pieces = pieces.boxed();
        let mut body = Self::default();
        while is_whole || body.len() < WHOLE_BYTES {
            match pieces.try_next().await? {
                Some(piece) => body.extend(piece),
                None => return Ok(body),
            }
        }
        let rest = pieces.map_err(move |error| {
            warn!(%error, "{result} failed after the begin of its result was sent; the connection is closed");
            BodyError::from(error)
        });
        Ok(body.followed_by(rest.boxed()))
    }

    /// The parts, and their memory, of a body that nothing follows.
    pub(crate) fn into_parts(self) -> (Vec<Bytes>, Option<Held>) {
        (self.parts.into(), self.held)
    }

    /// Bytes that remain, without the bodies that follow.
    pub(crate) const fn len(&self) -> u64 {
        self.length
    }

    /// Whether nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0 && self.rest.is_none()
    }

    /// This body, followed by others.
    #[must_use]
    pub(crate) fn followed_by(self, rest: Rest) -> Self {
        Self {
            rest: Some(rest),
            ..self
        }
    }

    /// Takes the bodies that follow this one.
    pub(crate) const fn take_rest(&mut self) -> Option<Rest> {
        self.rest.take()
    }

    /// Appends another body, with the bodies that follow it.
    pub(crate) fn extend(&mut self, mut other: Self) {
        self.length += other.length;
        self.parts.append(&mut other.parts);
        match (&mut self.held, other.held) {
            (Some(held), Some(more)) => held.merge(more),
            (held, more) => *held = held.take().or(more),
        }
        self.rest = self.rest.take().or(other.rest);
    }

    /// Puts bytes in front.
    pub(crate) fn prepend(&mut self, part: Vec<u8>) {
        self.length += part.len() as u64;
        self.parts.push_front(part.into());
    }

    /// Puts bytes behind, and behind what follows.
    pub(crate) fn append(&mut self, part: Vec<u8>) {
        match self.rest.take() {
            Some(rest) => {
                let last = futures::stream::iter([Ok(Self::from(part))]);
                self.rest = Some(rest.chain(last).boxed());
            }
            None => self.push(part.into()),
        }
    }

    fn push(&mut self, part: Bytes) {
        self.length += part.len() as u64;
        self.parts.push_back(part);
    }

    /// The next part; its memory is not held any more.
    pub(crate) fn next_part(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        self.length -= part.len() as u64;
        if let Some(held) = &mut self.held {
            held.shrink_to(self.length);
        }
        Some(part)
    }

    /// All that is left, in one piece.
    #[cfg(test)]
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(part) = self.next_part() {
            all.extend_from_slice(&part);
        }
        all
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        let mut body = Self::default();
        if !bytes.is_empty() {
            body.push(bytes);
        }
        body
    }
}

impl From<Vec<u8>> for ReplyBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(part) = this.next_part() {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            let Some(rest) = &mut this.rest else {
                return Poll::Ready(None);
            };
            match std::task::ready!(rest.as_mut().poll_next(context)) {
                Some(Ok(next)) => this.extend(next),
                Some(Err(error)) => {
                    this.rest = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => this.rest = None,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let mut size = SizeHint::with_exact(self.length);
        if self.rest.is_some() {
            size = SizeHint::new();
            size.set_lower(self.length);
        }
        size
    }
}

/// Makes a body.
#[derive(Debug)]
pub(crate) struct BodyWriter {
    done: ReplyBody,
    current: Vec<u8>,
}

impl BodyWriter {
    /// An empty body that holds its memory of a budget.
    ///
    /// # Errors
    ///
    /// As [`Budget::hold`].
    pub(crate) fn with_budget(budget: &Budget) -> Result<Self, QueryError> {
        let mut writer = Self::new();
        writer.hold_of(budget)?;
        Ok(writer)
    }

    /// An empty body.
    pub(crate) fn new() -> Self {
        Self {
            done: ReplyBody::default(),
            current: Vec::new(),
        }
    }

    /// Holds memory of a budget for all that is written from now on.
    ///
    /// # Errors
    ///
    /// As [`Budget::hold`].
    pub(crate) fn hold_of(&mut self, budget: &Budget) -> Result<(), QueryError> {
        if self.done.held.is_none() {
            self.done.held = Some(budget.hold(self.done.length)?);
        }
        Ok(())
    }

    /// The buffer to write to; call [`BodyWriter::roll`] now and then.
    pub(crate) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.current
    }

    /// Ends a part if it is large enough.
    ///
    /// # Errors
    ///
    /// If the body takes more memory than the query may hold.
    pub(crate) fn roll(&mut self) -> Result<(), QueryError> {
        if self.current.len() < PART_BYTES {
            return Ok(());
        }
        self.end_part()?;
        self.current.reserve(PART_BYTES + PART_BYTES / 8);
        Ok(())
    }

    /// Writes items with commas between them on the computation threads: [`JOB_ITEMS`] in a job, so that a long list
    /// does not delay the jobs of other requests.
    ///
    /// # Errors
    ///
    /// As [`BodyWriter::roll`], and if `write` panics.
    pub(crate) async fn write_items<T: Send + 'static>(
        self,
        compute: &ComputePool,
        items: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
        write: impl FnMut(&mut Vec<u8>, T) + Send + 'static,
    ) -> Result<Self, QueryError> {
        let mut state = (self, items.into_iter().peekable(), write);
        let mut is_first = true;
        while state.1.peek().is_some() {
            let (mut writer, mut items, mut write) = state;
            let written = compute.run(move || {
                for item in items.by_ref().take(JOB_ITEMS) {
                    if !std::mem::take(&mut is_first) {
                        writer.current.push(b',');
                    }
                    write(&mut writer.current, item);
                    writer.roll()?;
                }
                Ok::<_, QueryError>((writer, items, write))
            });
            state = written.await??;
            is_first = false;
        }
        Ok(state.0)
    }

    /// The body.
    ///
    /// # Errors
    ///
    /// As [`BodyWriter::roll`].
    pub(crate) fn finish(mut self) -> Result<ReplyBody, QueryError> {
        self.end_part()?;
        Ok(self.done)
    }

    fn end_part(&mut self) -> Result<(), QueryError> {
        if self.current.is_empty() {
            return Ok(());
        }
        let mut part = std::mem::take(&mut self.current);
        part.shrink_to_fit();
        if let Some(held) = &mut self.done.held {
            held.grow(part.len() as u64)?;
        }
        self.done.push(part.into());
        Ok(())
    }
}

impl std::io::Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.current.extend_from_slice(bytes);
        self.roll().map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Transforms a body with a compression, part by part. The held memory stays the same: the smaller output takes the
/// memory that the input releases.
pub(crate) fn transformed<W: std::io::Write>(
    mut body: ReplyBody,
    begin: impl FnOnce(BodyWriter) -> W,
    end: impl FnOnce(W) -> std::io::Result<BodyWriter>,
) -> std::io::Result<ReplyBody> {
    let held = body.held.take();
    let mut writer = begin(BodyWriter::new());
    while let Some(part) = body.next_part() {
        writer.write_all(&part)?;
    }
    let mut transformed = end(writer)?.finish().map_err(std::io::Error::other)?;
    transformed.held = held;
    if let Some(held) = &mut transformed.held {
        held.shrink_to(transformed.length);
    }
    Ok(transformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxtsdb_query::Limit;
    use oxtsdb_query::Limits;
    use oxtsdb_query::Resource;

    fn budget(bytes: u64) -> Budget {
        Budget::from_limits(Limits {
            memory: Limit::from_setting("--query-max-memory-mib", bytes),
            ..Limits::NONE
        })
    }

    fn writer(budget: &Budget) -> BodyWriter {
        let mut writer = BodyWriter::new();
        writer.hold_of(budget).unwrap();
        writer
    }

    #[test]
    fn memory_is_held_until_the_client_has_taken_the_body() {
        let budget = budget(10 << 20);
        let mut writer = writer(&budget);
        for _ in 0..1000 {
            writer.out().extend_from_slice(&[b'x'; 1000]);
            writer.roll().unwrap();
        }
        let mut body = writer.finish().unwrap();
        let held = || budget.usage().get(Resource::Memory);
        assert_eq!((body.len(), held()), (1_000_000, 1_000_000));
        assert_eq!(body.size_hint().exact(), Some(1_000_000));
        let first = body.next_part().unwrap().len() as u64;
        assert!(first < 500_000, "a body has several parts");
        assert_eq!(held(), 1_000_000 - first);
        drop(body);
        assert_eq!(held(), 0);
    }

    #[test]
    fn rejects_a_body_over_the_budget_while_it_is_written() {
        let budget = budget(1 << 20);
        let mut writer = writer(&budget);
        let refused = (0..).find_map(|_| {
            writer.out().extend_from_slice(&[b'x'; 1000]);
            writer.roll().err()
        });
        assert!(matches!(refused, Some(QueryError::OverBudget { .. })));
        drop(writer);
        assert_eq!(budget.usage().get(Resource::Memory), 0);
    }
}
