//! Decompression in steps, charged as it unfolds.

use std::fmt;
use std::io::Read;

use bytes::{Buf as _, Bytes};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use oxtsdb_resources::Reservation;

use super::RequestBody;

/// So much is unfolded before the rest is left to other threads: a millisecond or less.
const INLINE_BYTES: usize = 256 << 10;

/// Unfolded with one call of the decoder, at most.
const PIECE_BYTES: usize = 16 << 10;

/// The first piece of memory for the unfolded body.
const FIRST_BYTES: usize = 32 << 10;

/// A format of compressed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Zlib,
    Deflate,
}

impl Format {
    /// As the content encoding names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib | Self::Deflate => "deflate",
        }
    }
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Progress {
    /// All is unfolded.
    Done,
    /// It is too much to go on inline.
    Large,
    /// So many bytes have to be charged first.
    NeedsMemory(usize),
    /// It unfolds to more than is allowed.
    TooLarge,
    /// What the decoder says is wrong with the data.
    Invalid(String),
}

/// A body that is being unfolded.
pub(super) struct Decompression {
    decoder: Box<dyn Read + Send>,
    plain: Vec<u8>,
    piece: Box<[u8]>,
    /// Of both the compressed and the plain body.
    memory: Reservation,
    /// Bytes of `memory` that are the compressed body's.
    compressed_bytes: u64,
    max_bytes: usize,
}

impl fmt::Debug for Decompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompression")
            .field("plain_bytes", &self.plain.len())
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

impl Decompression {
    pub(super) fn new(compressed: Bytes, memory: Reservation, format: Format, max_bytes: usize) -> Self {
        let compressed_bytes = memory.bytes();
        let compressed = compressed.reader();
        Self {
            decoder: match format {
                Format::Gzip => Box::new(MultiGzDecoder::new(compressed)),
                Format::Zlib => Box::new(ZlibDecoder::new(compressed)),
                Format::Deflate => Box::new(DeflateDecoder::new(compressed)),
            },
            plain: Vec::new(),
            piece: vec![0; PIECE_BYTES].into(),
            memory,
            compressed_bytes,
            max_bytes,
        }
    }

    /// Unfolds the beginning.
    pub(super) fn begin(&mut self) -> Progress {
        self.unfold(INLINE_BYTES)
    }

    /// Unfolds all that is left.
    pub(super) fn go_on(&mut self) -> Progress {
        self.unfold(usize::MAX)
    }

    /// The memory, to grow.
    pub(super) fn memory(&mut self) -> &mut Reservation {
        &mut self.memory
    }

    fn unfold(&mut self, limit: usize) -> Progress {
        while self.plain.len() < limit {
            if self.plain.capacity() - self.plain.len() < PIECE_BYTES
                && let Some(missing) = self.grow()
            {
                return Progress::NeedsMemory(missing);
            }
            let read = match self.decoder.read(&mut self.piece) {
                Ok(0) => return Progress::Done,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Progress::Invalid(error.to_string()),
            };
            if self.plain.len() + read > self.max_bytes {
                return Progress::TooLarge;
            }
            self.plain
                .extend_from_slice(self.piece.get(..read).unwrap_or_default());
        }
        Progress::Large
    }

    /// Makes space for another piece; returns how many bytes have to be charged before, if they are not
    /// free.
    fn grow(&mut self) -> Option<usize> {
        let most = self.max_bytes.saturating_add(PIECE_BYTES);
        let capacity = (2 * self.plain.capacity()).max(FIRST_BYTES).min(most);
        let missing = (self.compressed_bytes + capacity as u64).saturating_sub(self.memory.bytes());
        if missing > 0 && self.memory.try_grow(missing).is_err() {
            return Some(usize::try_from(missing).unwrap_or(usize::MAX));
        }
        self.plain
            .reserve_exact(capacity.saturating_sub(self.plain.len()));
        None
    }

    /// The plain body; the compressed one is released.
    pub(super) fn finish(mut self) -> RequestBody {
        drop(self.decoder);
        self.memory.shrink_to(self.plain.capacity() as u64);
        RequestBody {
            bytes: self.plain.into(),
            memory: self.memory,
        }
    }
}
