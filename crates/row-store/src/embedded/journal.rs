//! The journal: everything committed since the last flush, in numbered segments.
//!
//! A segment is a header followed by frames. Each frame begins at a multiple of 8 bytes; the space after the
//! last frame is preallocated with zeros.
//!
//! ```text
//!   header   "oxtsdbjn" | version (4) | number (8) | first sequence (8) | time (8) | crc (4)
//!   frame    magic (4) | length (4) | sequence (8) | time (8) | payload crc (4) | header crc (4) | payload
//! ```
//!
//! A frame is one group of commits. It is written with a single call and one `fdatasync`, and the next frame is
//! written only after that has returned. A damaged last frame was therefore never acknowledged: it is a torn
//! write and is truncated. A damaged frame followed by another one was complete once, which is an error. The
//! time of a frame is the timestamp of its commits.
//!
//! A segment begins when its first frame is written. Its file is created in advance, empty, so that a process
//! that has run out of descriptors can still begin it. Each flush begins a new segment and removes the earlier
//! ones, oldest first.
//!
//! # Failures
//!
//! If a segment cannot be created, it has no frames: the commit fails and the next one retries. After a failed
//! write or sync it is unknown whether the frame is on disk, and repeating the sync does not help, because the
//! kernel has marked the pages clean. Only this frame is affected, since earlier ones were synced. The segment
//! therefore ends, the commits of the frame fail, and the next frame begins another segment with the same
//! sequence number. Recovery ignores the frames of a segment from the first sequence number of the next segment
//! on.

mod recovery;
mod segment;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub(super) use recovery::recover;
use segment::{Prepared, Segment};

use super::folder::{io_error, sync_folder};
use crate::StoreError;

/// A frame that recovery reads.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Number of its segment.
    pub(super) segment: u64,
    pub(super) time_ms: i64,
    pub(super) payload: &'a [u8],
}

/// The end of the journal, where frames are appended.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    /// The open folder.
    handle: File,
    /// The current segment; none until a frame is appended.
    segment: Option<Segment>,
    /// The file of the next segment.
    prepared: Option<Prepared>,
    /// Bytes of ended segments that are not flushed.
    ended_bytes: u64,
    /// Number of the next segment.
    next_number: u64,
    /// Sequence number of the next frame.
    next_sequence: u64,
    /// Buffer for the frame under construction.
    buffer: Vec<u8>,
}

impl Journal {
    /// Appends a frame whose payload `fill` writes, and makes it durable.
    ///
    /// After [`StoreError::Io`] the frame may be present when the store is reopened, unless another frame is
    /// appended; after any other error it is not.
    pub(super) fn append(&mut self, time_ms: i64, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), StoreError> {
        segment::frame(&mut self.buffer, self.next_sequence, time_ms, fill)?;
        self.ensure_segment(time_ms)?;
        let Some(segment) = &mut self.segment else {
            return Ok(());
        };
        match segment.append(&self.buffer) {
            Ok(()) => self.next_sequence += 1,
            Err(error @ StoreError::Full { .. }) => return Err(error),
            Err(error) => {
                tracing::error!(%error, "cannot write to the journal; the next write begins another segment");
                self.end_segment();
                return Err(error);
            }
        }
        if self.prepared.is_none() {
            // Without it the next segment is made when it is needed.
            self.prepared = Prepared::new(&self.folder, &self.handle, self.next_number).ok();
        }
        Ok(())
    }

    /// Checks after a failure whether frames can be appended again: begins a segment if there is none, otherwise
    /// syncs the current one. A failed check leaves no file behind. After a full disk (`was_full`) it also checks
    /// that a segment has space to grow.
    pub(super) fn probe(&mut self, time_ms: i64, was_full: bool) -> Result<(), StoreError> {
        let failed = |error| io_error(&self.folder, &error);
        if was_full && fs4::available_space(&self.folder).map_err(failed)? < segment::GROWTH {
            return Err(StoreError::Full {
                place: self.folder.display().to_string(),
            });
        }
        match &self.segment {
            Some(segment) => segment.sync(),
            None => self.ensure_segment(time_ms),
        }
    }

    fn ensure_segment(&mut self, time_ms: i64) -> Result<(), StoreError> {
        if self.segment.is_none() {
            self.segment = Some(self.begin(time_ms)?);
            self.next_number += 1;
        }
        Ok(())
    }

    /// Begins the next segment.
    fn begin(&mut self, time_ms: i64) -> Result<Segment, StoreError> {
        let prepared = match self.prepared.take() {
            Some(prepared) if prepared.number() == self.next_number => Ok(prepared),
            _ => Prepared::new(&self.folder, &self.handle, self.next_number),
        };
        prepared
            .and_then(|prepared| prepared.begin(self.next_sequence, time_ms))
            .map_err(|error| match error {
                StoreError::Io { place, detail } => StoreError::Unavailable {
                    detail: format!("cannot begin a segment of the journal: {place}: {detail}"),
                },
                error => error,
            })
    }

    /// Makes the next frame begin a segment, unless the current one has no frames.
    pub(super) fn begin_segment(&mut self) {
        if self.segment.as_ref().is_some_and(|segment| !segment.is_empty()) {
            self.end_segment();
        }
    }

    fn end_segment(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.ended_bytes += segment.byte_len();
            segment.end();
        }
    }

    /// Bytes of all segments since the last [`Journal::rotate`]; initially of those recovered.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.ended_bytes + self.segment.as_ref().map_or(0, Segment::byte_len)
    }

    /// Ends the segment, so that the next frame begins another one. Returns the number of the last ended segment,
    /// up to which the caller is about to flush.
    pub(super) fn rotate(&mut self) -> u64 {
        self.end_segment();
        self.ended_bytes = 0;
        self.next_number - 1
    }
}

/// The existing segments, ascending.
fn segments(folder: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let failed = |error| io_error(folder, &error);
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".journal")?.parse().ok());
        segments.extend(number.map(|number| (number, path)));
    }
    segments.sort();
    Ok(segments)
}

/// Removes segments up to a number, oldest first, so that the remaining ones have no gap.
pub(super) fn remove_through(folder: &Path, number: u64) -> Result<(), StoreError> {
    for (_, path) in segments(folder)?.iter().filter(|(found, _)| *found <= number) {
        fs::remove_file(path).map_err(|error| io_error(path, &error))?;
    }
    sync_folder(folder)
}
