//! The journal: committed frames that are in no other file yet, in numbered segments `<number:010>.journal`.
//!
//! ```text
//!   segment   header (32) | frame | frame | ...
//!   header    magic of the store (8) | version (4) | number (8) | first sequence (8) | crc (4)
//!   frame     "oxpf" | content length (4) | sequence (8) | unsynced (8) | content crc (4) | header crc (4) | content
//! ```
//!
//! A CRC is the CRC-32 of zlib, of the bytes before it in its header. A store defines the content of its frames.
//!
//! A frame is a group of changes that are committed together. Frames are numbered without gaps; `unsynced` is the first
//! frame that was not durable when the frame was written. File `SEGMENTS` lists the segments; see `files`.
//!
//! Segments are not preallocated: on ext4 a sync within a file of zeros took as long as one that extends it, for groups
//! of 4 to 600 KiB, and the zeros would double the bytes that are written.
//!
//! # Recovery
//!
//! Bytes that are not synced may survive a crash in any combination. A damaged frame at the end of the last segment is
//! therefore cut off, together with all that follows, unless a later frame says that the damaged one was durable: that
//! is an error, as is any other damage, a listed segment that is absent, and a frame that is in no segment although
//! no other file of the store has it.
//!
//! The process may have been killed before it synced the last frames, or after a sync failed, and the system may hold
//! bytes in memory that are not on disk and that no later sync writes. [`Journal::make_durable`] therefore copies the frames
//! that no later frame calls durable to a new segment and syncs it; a store calls it before it serves the first read.
//!
//! # Failures
//!
//! After a failed write or sync it is unknown whether the frames since the last sync are on disk, and repeating the sync
//! does not help, because the kernel considers their pages clean. The segment ends, is replaced by a synced copy of its
//! durable frames, and the next one begins with the sequence number of the first of the failed frames: recovery ignores
//! the frames of a segment from the first sequence number of the next segment on. Once [`Journal::make_durable`]
//! succeeds, the failed frames are certainly absent.
//!
//! A segment is created and listed, durably, before its first frame; a failure there has no further effect.

mod files;
mod frame;
mod recovery;

use std::path::Path;
use std::sync::Arc;

pub use files::JournalFiles;
pub use recovery::{Apply, Recovered, Rejected};

use crate::StorageError;
use crate::disk::{Disk, WriteFile};
use frame::SegmentHeader;

/// A segment ends after the sync that finds it so large: recovery reads a segment at once.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The options for opening a journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// The first bytes of a segment: the kind of store.
    pub magic: [u8; 8],
    /// Other files of the store have the frames up to this sequence number; they are not applied. 0: no frame. `None`: the
    /// store does not know it, and frames may be applied that other files have, too.
    pub cut: Option<u64>,
    /// Whether the folder must have a list of segments: `false` for a new store, and for one of a version without.
    pub has_list: bool,
    /// Whether lost frames are reported in [`Recovered::losses`] instead of as an error. All other frames are applied.
    pub accept_losses: bool,
}

/// The end of the journal, where frames are appended.
#[derive(Debug)]
pub struct Journal {
    magic: [u8; 8],
    files: Arc<JournalFiles>,
    /// None until a frame is appended.
    segment: Option<Segment>,
    segment_bytes: u64,
    /// Bytes since the last [`Journal::rotate`].
    bytes: u64,
    /// Number of the next segment.
    next_number: u64,
    /// Sequence number of the next frame.
    next_sequence: u64,
    /// Sequence number of the first frame that is not durable.
    unsynced: u64,
    undurable: Option<Undurable>,
    /// Memory of a frame.
    buffer: Vec<u8>,
}

/// Frames that may be in the system's memory only.
#[derive(Clone, Copy, Debug)]
enum Undurable {
    /// The recovered frames from a sequence number on, at these bytes of a segment.
    Recovered {
        number: u64,
        sequence: u64,
        start: u64,
        end: u64,
    },
    /// A segment that failed to sync, and the bytes of its durable frames.
    Failed { number: u64, bytes: u64 },
}

#[derive(Debug)]
struct Segment {
    number: u64,
    file: Box<dyn WriteFile>,
    bytes: u64,
    /// Bytes up to the last durable frame.
    synced_bytes: u64,
}

impl Journal {
    /// Opens the journal in a folder, which is created if it is absent, and passes the content of its frames to `apply`,
    /// in order.
    ///
    /// # Errors
    ///
    /// [`StorageError::Damaged`] for damage other than an interrupted write at the end, and for lost frames; errors of
    /// the disk; any error of `apply`.
    pub fn open<E: From<StorageError>>(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
        apply: &mut Apply<'_, E>,
    ) -> Result<(Self, Recovered), E> {
        recovery::recover(disk, folder, options, apply)
    }

    /// Writes a frame and returns its sequence number; `content` appends the frame's content to a buffer. The frame is
    /// durable after [`Journal::sync`].
    ///
    /// # Errors
    ///
    /// [`StorageError::Invalid`] if the frame would have 4 GiB, without effect. Errors of the disk: this frame and all
    /// others since the last sync are lost. They may be present when the journal is opened again, unless
    /// [`Journal::make_durable`] succeeds, or another frame is appended.
    pub fn append(&mut self, content: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StorageError> {
        let sequence = self.next_sequence;
        frame::encode(&mut self.buffer, sequence, self.unsynced, content)?;
        self.write().inspect_err(|_| self.fail())?;
        self.next_sequence += 1;
        Ok(sequence)
    }

    /// Writes the frame in the buffer.
    fn write(&mut self) -> Result<(), StorageError> {
        self.make_durable()?;
        let segment = match self.segment.take() {
            Some(segment) => segment,
            None => self.begin(self.next_sequence, &[])?,
        };
        let segment = self.segment.insert(segment);
        let written = segment.file.write(&self.buffer);
        written.map_err(|error| self.files.io_error(segment.number, &error))?;
        let length = self.buffer.len() as u64;
        segment.bytes += length;
        self.bytes += length;
        self.files.grow(segment.number, length);
        Ok(())
    }

    fn begin(&mut self, first_sequence: u64, frames: &[u8]) -> Result<Segment, StorageError> {
        let number = self.next_number;
        // A file that a failed attempt could not remove keeps its number.
        self.next_number += 1;
        let header = SegmentHeader {
            number,
            first_sequence,
        };
        let file = self.files.begin(header, self.magic, frames)?;
        let bytes = (frame::SEGMENT_HEADER + frames.len()) as u64;
        self.bytes += bytes;
        Ok(Segment {
            number,
            file,
            bytes,
            synced_bytes: bytes,
        })
    }

    /// Makes recovered frames durable and failed frames certainly absent; does nothing if there are neither. After an
    /// error it is to be repeated, and [`Journal::append`] repeats it.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn make_durable(&mut self) -> Result<(), StorageError> {
        match self.undurable {
            None => {}
            Some(Undurable::Failed { number, bytes }) => self.files.rewrite(number, bytes)?,
            Some(Undurable::Recovered {
                number,
                sequence,
                start,
                end,
            }) => {
                let frames = self.files.read(number, start, end)?;
                // From its first frame on, the new segment supersedes the recovered one.
                let segment = self.begin(sequence, &frames)?;
                self.segment = Some(segment);
            }
        }
        self.undurable = None;
        Ok(())
    }

    /// Whether [`Journal::make_durable`] has something to do.
    pub const fn is_undurable(&self) -> bool {
        self.undurable.is_some()
    }

    /// Makes all frames durable.
    ///
    /// # Errors
    ///
    /// Errors of the disk, with the same effect as in [`Journal::append`].
    pub fn sync(&mut self) -> Result<(), StorageError> {
        let Some(segment) = &mut self.segment else {
            return Ok(());
        };
        if self.unsynced == self.next_sequence {
            return Ok(());
        }
        if let Err(error) = segment.file.sync() {
            let error = self.files.io_error(segment.number, &error);
            self.fail();
            return Err(error);
        }
        segment.synced_bytes = segment.bytes;
        self.unsynced = self.next_sequence;
        self.files.set_durable(self.unsynced - 1);
        if segment.bytes >= self.segment_bytes {
            self.segment = None;
        }
        Ok(())
    }

    /// Ends the segment; its frames since the last sync are lost.
    fn fail(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.undurable = Some(Undurable::Failed {
                number: segment.number,
                bytes: segment.synced_bytes,
            });
        }
        self.next_sequence = self.unsynced;
    }

    /// Makes all frames durable and ends the segment, so that the next frame begins another one. Returns the number of
    /// the last ended segment.
    ///
    /// # Errors
    ///
    /// As [`Journal::sync`].
    pub fn rotate(&mut self) -> Result<u64, StorageError> {
        self.make_durable()?;
        self.sync()?;
        self.segment = None;
        self.bytes = 0;
        Ok(self.next_number - 1)
    }

    /// The sequence number of the last durable frame; 0 if there is none.
    pub const fn durable(&self) -> u64 {
        self.unsynced - 1
    }

    /// Bytes since the last [`Journal::rotate`]; before the first one, including recovered bytes.
    pub const fn byte_len(&self) -> u64 {
        self.bytes
    }

    /// The files, which another thread may remove.
    pub fn files(&self) -> Arc<JournalFiles> {
        Arc::clone(&self.files)
    }

    /// See [`JournalFiles::remove_through`].
    ///
    /// # Errors
    ///
    /// As [`JournalFiles::remove_through`].
    pub fn remove_through(&self, number: u64) -> Result<(), StorageError> {
        self.files.remove_through(number)
    }
}

#[cfg(test)]
mod tests;
