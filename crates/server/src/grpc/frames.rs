//! The rate of HTTP/2's control frames.
//!
//! A frame without a message costs the server a wake-up and the client a few bytes. h2 bounds resets of streams, but
//! neither WINDOW_UPDATE, PRIORITY, PING and their acknowledgements, nor frames of unknown types or without data.
//! [`WatchedFrames`] reads the heads of received frames and fails when a client has exhausted its budget, which
//! closes the connection.
//!
//! A client earns its budget: window updates follow sent data, and PINGs that measure the bandwidth follow received
//! data, so that no traffic of calls is cut, at any rate.
//!
//! Source: RFC 9113, sections 4.1 and 6.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::head::Head;

/// Control frames that a client may send at once, and in a second without calls.
const BURST: u32 = 2_000;
const PER_SECOND: u32 = 100;

/// Control frames for each frame of a message, for the head of each call, and for bytes of responses. A small
/// response is a frame of about 32 bytes.
const PER_DATA: u32 = 2;
const PER_HEAD: u32 = 4;
const SENT_BYTES: usize = 32;

/// Bytes before the first frame: `PRI * HTTP/2.0…`.
const PREFACE_BYTES: usize = 24;

/// Bytes of a frame's head: length, type, flags, stream.
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The budget of a connection's control frames.
#[derive(Debug)]
struct Budget {
    left: u32,
    /// When `left` was last increased by time.
    refilled: Instant,
    /// Sent bytes that have earned nothing yet.
    sent_bytes: usize,
}

impl Budget {
    fn earn(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(BURST);
    }

    fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
        self.earn(u32::try_from(self.sent_bytes / SENT_BYTES).unwrap_or(BURST));
        self.sent_bytes %= SENT_BYTES;
    }

    /// Takes a control frame; returns whether there was one left.
    fn spend(&mut self) -> bool {
        if self.left == 0 {
            let earned = self.refilled.elapsed().as_secs_f64() * f64::from(PER_SECOND);
            if earned >= 1.0 {
                self.refilled = Instant::now();
                // A float conversion saturates.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                self.earn(earned as u32);
            }
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// The position in received frames.
#[derive(Debug)]
struct Heads {
    head: Head<HEAD_BYTES>,
    /// Bytes to skip until the next head.
    skip: usize,
}

impl Heads {
    const fn new() -> Self {
        Self {
            head: Head::new(),
            skip: PREFACE_BYTES,
        }
    }

    /// Advances to the next head; its type and length, if all of it has arrived.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<(u8, usize)> {
        let skipped = self.skip.min(bytes.len());
        *bytes = bytes.get(skipped..).unwrap_or_default();
        self.skip -= skipped;
        let [high, middle, low, kind, ..] = self.head.take(bytes)?;
        self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some((kind, self.skip))
    }
}

/// A connection, with a watch on the frames that it receives.
#[derive(Debug)]
pub(super) struct WatchedFrames<S, F> {
    stream: S,
    /// Called when the client has sent too many.
    on_flood: F,
    heads: Heads,
    budget: Budget,
}

/// A client has sent too many control frames.
#[derive(Debug, thiserror::Error)]
#[error("more than {BURST} HTTP/2 control frames without calls")]
struct Flood;

impl<S, F: Fn()> WatchedFrames<S, F> {
    pub(super) fn new(stream: S, on_flood: F) -> Self {
        Self {
            stream,
            on_flood,
            heads: Heads::new(),
            budget: Budget {
                left: BURST,
                refilled: Instant::now(),
                sent_bytes: 0,
            },
        }
    }

    fn received(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        while let Some((kind, length)) = self.heads.next(&mut bytes) {
            match kind {
                DATA if length > 0 => self.budget.earn(PER_DATA),
                HEADERS => self.budget.earn(PER_HEAD),
                // h2 bounds them.
                CONTINUATION => {}
                _ if self.budget.spend() => {}
                _ => return Err(Flood),
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin, F: Fn() + Unpin> AsyncRead for WatchedFrames<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        Poll::Ready(this.received(received).map_err(|flood| {
            (this.on_flood)();
            io::Error::other(flood)
        }))
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for WatchedFrames<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.budget.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.budget.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = u32::try_from(length).unwrap().to_be_bytes();
        let mut frame = vec![high, middle, low, kind, 0, 0, 0, 0, 1];
        frame.extend(vec![0xaa; length]);
        frame
    }

    /// A connection that has received the preface.
    fn watched() -> WatchedFrames<(), fn()> {
        let mut frames = WatchedFrames::<_, fn()>::new((), || {});
        frames.received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        frames
    }

    #[test]
    fn heads_may_be_cut_anywhere() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let expected = [(4, 18), (HEADERS, 300), (DATA, 70_000), (PING, 8), (DATA, 0)];
        for (kind, length) in expected {
            bytes.extend(frame(kind, length));
        }
        for piece in [1, 2, 8, 9, 10, 33, 1000, bytes.len()] {
            let mut heads = Heads::new();
            let mut parsed_heads = Vec::new();
            for mut chunk in bytes.chunks(piece) {
                while let Some(head) = heads.next(&mut chunk) {
                    parsed_heads.push(head);
                }
                assert!(chunk.is_empty());
            }
            assert_eq!(parsed_heads, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn floods_of_each_kind_are_cut() {
        for flood in [
            frame(WINDOW_UPDATE, 4),
            frame(2, 5),
            frame(PING, 8),
            frame(0xfe, 3),
            frame(DATA, 0),
        ] {
            let mut frames = watched();
            let taken = (0..100_000)
                .take_while(|_| frames.received(&flood).is_ok())
                .count();
            // Time passes meanwhile, and adds some.
            assert!((2_000..10_000).contains(&taken), "{taken}");
        }
    }

    /// A client that updates both windows and measures the bandwidth for each small message that it receives.
    #[test]
    fn calls_are_not_cut() {
        let mut frames = watched();
        for _ in 0..100_000 {
            frames.received(&frame(DATA, 20)).unwrap();
            frames.budget.sent(64);
            for control in [frame(WINDOW_UPDATE, 4), frame(WINDOW_UPDATE, 4), frame(PING, 8)] {
                frames.received(&control).unwrap();
            }
        }
        for _ in 0..100_000 {
            frames.received(&frame(HEADERS, 30)).unwrap();
            frames.received(&frame(3, 4)).unwrap();
        }
    }
}
