//! The journal: what was committed since the last flush, in numbered segments.
//!
//! A segment is a header and frames, each of which begins at a multiple of 8 bytes; what lies
//! behind the last frame was written as zeros, ahead of need.
//!
//! ```text
//!   header   "oxtsdbjn" | version (4) | number (8) | first sequence (8) | time (8) | crc (4)
//!   frame    magic (4) | length (4) | sequence (8) | time (8) | payload crc (4) | header crc (4) | payload
//! ```
//!
//! A frame is one group of commits: it was written with one call and one `fdatasync`, and the next
//! frame was written only after that had returned. So of a frame that is damaged and the last, nothing was
//! acknowledged: it is a torn write, and is cut off. A damaged frame with another behind it was
//! whole once: that is an error. A frame has one time, that of its commits.
//!
//! A segment begins when the first frame is to be written to it; its file is there before, empty, so
//! that a process which has run out of descriptors can begin it. Each flush begins a new one and
//! removes those before it, oldest first.
//!
//! # Failures
//!
//! A segment that cannot be made has no frames: the commit fails, and the next one tries again.
//! After a failed write or sync it is unknown whether the frame is on the disk, and repeating the
//! sync does not help: the kernel has marked the pages clean. But that concerns this frame
//! alone, since those before it were synced. So the segment ends there, the frame's commits fail,
//! and the next frame begins another segment with the same sequence number. Recovery leaves out
//! what a segment has from the first sequence number of the next one on.

mod recovery;
mod segment;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub(super) use recovery::recover;
use segment::{Prepared, Segment};

use super::folder::{io_error, sync_folder};
use crate::StoreError;

/// A frame of a segment that is read.
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
    /// The same, open.
    handle: File,
    /// None until something is appended.
    segment: Option<Segment>,
    /// The file of the next segment.
    prepared: Option<Prepared>,
    /// Bytes of segments that ended and are not flushed.
    ended_bytes: u64,
    /// Number of the next segment.
    next_number: u64,
    /// Sequence number of the next frame.
    next_sequence: u64,
    /// A frame under construction; kept for its memory.
    buffer: Vec<u8>,
}

impl Journal {
    /// Appends a frame whose payload `fill` writes, and makes it durable.
    ///
    /// After [`StoreError::Io`] the frame may be there when the store is opened, unless another is
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

    /// Checks after a failure whether frames can be appended again: begins a segment if there is none, else
    /// syncs the one there is. If that fails, no file is left behind. After a full disk (`was_full`) it also
    /// checks that a segment has space to grow.
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

    /// Lets what follows begin in a segment without frames.
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

    /// Bytes of all segments from the last [`Journal::rotate`] on; at first, of those recovered.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.ended_bytes + self.segment.as_ref().map_or(0, Segment::byte_len)
    }

    /// Ends the segment; the next frame begins another. Returns the number of the last one ended:
    /// up to there a flush is about to begin.
    pub(super) fn rotate(&mut self) -> u64 {
        self.end_segment();
        self.ended_bytes = 0;
        self.next_number - 1
    }
}

/// The segments there are, ascending.
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

/// Removes segments up to a number, oldest first, so that those left have no gap.
pub(super) fn remove_through(folder: &Path, number: u64) -> Result<(), StoreError> {
    for (_, path) in segments(folder)?.iter().filter(|(found, _)| *found <= number) {
        fs::remove_file(path).map_err(|error| io_error(path, &error))?;
    }
    sync_folder(folder)
}
