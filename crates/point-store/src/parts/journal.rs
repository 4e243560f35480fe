//! The journal: everything committed that is not in parts yet, in numbered segments `<number:010>.journal`.
//!
//! ```text
//!   segment   header (32) | frame | frame | ...
//!   header    "oxtsdbpj" | version (4) | number (8) | first sequence (8) | crc (4)
//!   frame     "oxpf" | content length (4) | sequence (8) | unsynced (8) | content crc (4) | header crc (4) | content
//!   content   count | new series, each: number | key length | key
//!             count | batches, each: points | length | encoded points, see `batch`
//! ```
//!
//! A CRC is that of zlib, of the bytes before it in its header. Counts and lengths in the content are varints, numbers of
//! series zigzag varints of the difference to the previous one.
//!
//! A frame is a group of commits: the series that they use for the first time, then their points. Frames are numbered
//! without gaps; `unsynced` is the first one that was not durable when the frame was written.
//!
//! Segments are not preallocated: on ext4 a sync within a file of zeros took as long as one that extends it, for groups
//! of 4 to 600 KiB, and the zeros would double the bytes that are written.
//!
//! # Recovery
//!
//! Bytes that are not synced may survive a crash in any combination. A damaged frame at the end of the last segment is
//! therefore cut off, together with all that follows, unless a later frame says that the damaged one was durable: that
//! is an error, as is any other damage.
//!
//! The process may have been killed before it synced the last frames, which count from now on. Before another segment
//! begins, the last one is therefore replaced by a synced copy; a sync of the file would not suffice after a sync that
//! failed. Opening a journal writes nothing, so that a store on a full disk opens.
//!
//! # Failures
//!
//! After a failed write or sync it is unknown whether the frames since the last sync are on disk, and repeating the sync
//! does not help, because the kernel considers their pages clean. The segment ends, and the next one begins with the
//! sequence number of the first of these frames: recovery ignores the frames of a segment from the first sequence
//! number of the next segment on.
//!
//! A segment is created, durably, for its first frame; a failure there has no further effect. Flushes remove segments
//! oldest first, each removal durable before the next, so that the remaining ones have no gap.

mod batch;
mod files;
mod frame;
mod recovery;

use std::path::Path;
use std::sync::Arc;

pub use batch::EncodedBatch;
pub use files::JournalFiles;
pub use recovery::{Recovered, Replayed};

use super::disk::{Disk, WriteFile};
use crate::{PointStoreError, SeriesNumber};
use frame::SegmentHeader;

/// A segment ends after the sync that finds it so large: recovery reads a segment at once.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The end of the journal, where frames are appended.
#[derive(Debug)]
pub struct Journal {
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
    /// The last segment that was recovered and the length of its frames, until it is durable.
    recovered: Option<(u64, usize)>,
    /// Memory of a frame.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    file: Box<dyn WriteFile>,
    bytes: u64,
}

impl Journal {
    /// Opens the journal in a folder, which is created if it is absent, and passes what its frames have to `apply`, in
    /// order. It is durable as soon as a later frame is.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] for damage other than an interrupted write at the end;
    /// [`PointStoreError::Io`] and [`PointStoreError::Full`]; any error of `apply`.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), PointStoreError>,
    ) -> Result<(Self, Recovered), PointStoreError> {
        recovery::recover(disk, folder, apply)
    }

    /// Writes a frame with new series, by number, and the points of batches. It is durable after [`Journal::sync`].
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if the frame would have 4 GiB, without effect. [`PointStoreError::Io`] and
    /// [`PointStoreError::Full`]: this frame and all others since the last sync are lost. They may be present when
    /// the journal is opened again, unless another frame is appended.
    pub fn append(
        &mut self,
        new_series: &[(SeriesNumber, impl AsRef<[u8]>)],
        batches: &[EncodedBatch],
    ) -> Result<(), PointStoreError> {
        frame::encode(
            &mut self.buffer,
            self.next_sequence,
            self.unsynced,
            new_series,
            batches,
        )?;
        self.write().inspect_err(|_| self.fail())?;
        self.next_sequence += 1;
        Ok(())
    }

    /// Writes the frame in the buffer.
    fn write(&mut self) -> Result<(), PointStoreError> {
        let segment = match self.segment.take() {
            Some(segment) => segment,
            None => self.begin()?,
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

    fn begin(&mut self) -> Result<Segment, PointStoreError> {
        if let Some((number, length)) = self.recovered {
            self.files.rewrite(number, length)?;
            self.recovered = None;
        }
        let number = self.next_number;
        // A file that a failed attempt could not remove keeps its number.
        self.next_number += 1;
        let header = SegmentHeader {
            number,
            first_sequence: self.next_sequence,
        }
        .encode();
        let file = self.files.begin(number, &header)?;
        let bytes = header.len() as u64;
        self.bytes += bytes;
        Ok(Segment { number, file, bytes })
    }

    /// Makes all frames durable.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Io`] and [`PointStoreError::Full`], as those of [`Journal::append`].
    pub fn sync(&mut self) -> Result<(), PointStoreError> {
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
        self.unsynced = self.next_sequence;
        if segment.bytes >= self.segment_bytes {
            self.segment = None;
        }
        Ok(())
    }

    /// Ends the segment, of which the frames since the last sync are lost.
    fn fail(&mut self) {
        self.segment = None;
        self.next_sequence = self.unsynced;
    }

    /// Makes all frames durable and ends the segment, so that the next frame begins another one. Returns the number of
    /// the last ended segment.
    ///
    /// # Errors
    ///
    /// Those of [`Journal::sync`].
    pub fn rotate(&mut self) -> Result<u64, PointStoreError> {
        self.sync()?;
        self.segment = None;
        self.bytes = 0;
        Ok(self.next_number - 1)
    }

    /// Bytes since the last [`Journal::rotate`]; before, also those that were recovered.
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
    /// Those of [`JournalFiles::remove_through`].
    pub fn remove_through(&self, number: u64) -> Result<(), PointStoreError> {
        self.files.remove_through(number)
    }
}

#[cfg(test)]
mod tests;
