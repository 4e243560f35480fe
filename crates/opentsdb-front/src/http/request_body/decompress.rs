//! Decompression in steps; each step's output is charged to a memory pool before it is written.

use std::fmt;
use std::io::Read;

use bytes::{Buf as _, Bytes};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use oxtsdb_resources::Reservation;

/// Bytes that are decompressed inline, in a millisecond or less, before the computation pool takes over.
const INLINE_BYTES: usize = 256 << 10;

/// Output of one call of the decoder, at most.
const PIECE_BYTES: usize = 16 << 10;

/// The first capacity of the decompressed body.
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

/// The state of a decompression.
#[derive(Debug)]
pub(super) enum Progress {
    /// Complete.
    Done,
    /// Too large to continue inline.
    Large,
    /// This number of bytes has to be charged first.
    NeedsMemory(usize),
    /// The output exceeds the limit.
    TooLarge,
    /// The data are invalid, with the decoder's error.
    Invalid(String),
}

/// A body that is being decompressed.
pub(super) struct Decompression {
    decoder: Box<dyn Read + Send>,
    plain: Vec<u8>,
    piece: Box<[u8]>,
    /// Covers the compressed and the decompressed body.
    memory: Reservation,
    /// The part of `memory` for the compressed body.
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

    /// Decompresses the beginning.
    pub(super) fn begin(&mut self) -> Progress {
        self.decompress(INLINE_BYTES)
    }

    /// Decompresses the rest.
    pub(super) fn resume(&mut self) -> Progress {
        self.decompress(usize::MAX)
    }

    /// The reservation, to grow it.
    pub(super) fn memory(&mut self) -> &mut Reservation {
        &mut self.memory
    }

    fn decompress(&mut self, limit: usize) -> Progress {
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

    /// Grows the output for another piece; returns how many bytes have to be charged before, if the pool has not
    /// enough free.
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

    /// The decompressed body with its memory. The compressed body is released.
    pub(super) fn finish(mut self) -> (Bytes, Reservation) {
        drop(self.decoder);
        self.memory.shrink_to(self.plain.capacity() as u64);
        (self.plain.into(), self.memory)
    }
}
