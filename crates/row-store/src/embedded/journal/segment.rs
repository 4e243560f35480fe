//! A segment: one file of the journal.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::folder::{create_private, io_error};
use super::super::varint::Reader;
use crate::StoreError;

const MAGIC: [u8; 8] = *b"oxtsdbjn";
const VERSION: u32 = 1;
/// Bytes of a segment's header.
pub(super) const HEADER: usize = 40;
/// First bytes of a frame.
pub(super) const FRAME_MAGIC: [u8; 4] = *b"oxfr";
/// Bytes of a frame's header.
pub(super) const FRAME_HEADER: usize = 32;
/// Frames begin at multiples of this.
pub(super) const ALIGN: usize = 8;
/// The increment by which a segment grows. Syncing bytes within the file takes half the time of a sync that
/// extends it.
pub(super) const GROWTH: u64 = 4 << 20;

/// The path of a segment.
pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}.journal"))
}

/// The header of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentHeader {
    pub(super) number: u64,
    pub(super) first_sequence: u64,
    pub(super) time_ms: i64,
}

impl SegmentHeader {
    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.first_sequence.to_be_bytes());
        bytes.extend_from_slice(&self.time_ms.to_be_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// Decodes the header of a segment; the error describes what is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        let mut read = || {
            let magic = reader.array::<8>()?;
            let version = u32::from_be_bytes(reader.array()?);
            let header = Self {
                number: u64::from_be_bytes(reader.array()?),
                first_sequence: u64::from_be_bytes(reader.array()?),
                time_ms: i64::from_be_bytes(reader.array()?),
            };
            Some((magic, version, header, u32::from_be_bytes(reader.array()?)))
        };
        let (magic, version, header, crc) = read().ok_or("the header is cut off")?;
        if magic != MAGIC {
            return Err("not a segment of the journal");
        }
        if bytes.get(..HEADER - 4).map(crc32fast::hash) != Some(crc) {
            return Err("the header's checksum does not match");
        }
        if version != VERSION {
            return Err("unknown version of the journal");
        }
        Ok(header)
    }
}

/// Encodes a frame into `buffer`, replacing its content.
pub(super) fn frame(
    buffer: &mut Vec<u8>,
    sequence: u64,
    time_ms: i64,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Result<(), StoreError> {
    buffer.clear();
    buffer.resize(FRAME_HEADER, 0);
    fill(buffer);
    let payload = &buffer[FRAME_HEADER..];
    let length = u32::try_from(payload.len()).map_err(|_| StoreError::Invalid {
        detail: format!(
            "a commit of {} bytes, at most {} are allowed",
            payload.len(),
            u32::MAX
        ),
    })?;
    let mut header = Vec::with_capacity(FRAME_HEADER);
    header.extend_from_slice(&FRAME_MAGIC);
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&sequence.to_be_bytes());
    header.extend_from_slice(&time_ms.to_be_bytes());
    header.extend_from_slice(&crc32fast::hash(payload).to_be_bytes());
    header.extend_from_slice(&crc32fast::hash(&header).to_be_bytes());
    buffer[..FRAME_HEADER].copy_from_slice(&header);
    buffer.resize(buffer.len().next_multiple_of(ALIGN), 0);
    Ok(())
}

/// The file of a segment that has not begun. Dropping it removes the file; recovery removes one left by a
/// crash.
#[derive(Debug)]
pub(super) struct Prepared {
    path: PathBuf,
    number: u64,
    file: Option<File>,
}

impl Prepared {
    /// Creates the file durably. `handle` is the open folder.
    pub(super) fn new(folder: &Path, handle: &File, number: u64) -> Result<Self, StoreError> {
        let path = segment_path(folder, number);
        let file = create_private(&path).map_err(|error| io_error(&path, &error))?;
        let prepared = Self {
            path,
            number,
            file: Some(file),
        };
        handle.sync_all().map_err(|error| io_error(folder, &error))?;
        Ok(prepared)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Writes the header and begins the segment.
    pub(super) fn begin(mut self, first_sequence: u64, time_ms: i64) -> Result<Segment, StoreError> {
        let header = SegmentHeader {
            number: self.number,
            first_sequence,
            time_ms,
        }
        .encode();
        let begun = match &self.file {
            Some(file) => file.write_all_at(&header, 0).and_then(|()| file.sync_all()),
            None => Err(ErrorKind::NotFound.into()),
        };
        begun.map_err(|error| io_error(&self.path, &error))?;
        let file = self
            .file
            .take()
            .ok_or_else(|| io_error(&self.path, &ErrorKind::NotFound.into()))?;
        Ok(Segment {
            path: self.path.clone(),
            file,
            end: HEADER as u64,
            length: HEADER as u64,
        })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.file.is_some() {
            // A failure is harmless: the file has no frames, and recovery removes it.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// A segment being appended to.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    /// Where the next frame begins.
    end: u64,
    /// Length of the file.
    length: u64,
}

impl Segment {
    pub(super) fn byte_len(&self) -> u64 {
        self.end
    }

    /// Whether it has no frames.
    pub(super) fn is_empty(&self) -> bool {
        self.end == HEADER as u64
    }

    /// Writes a frame and syncs it.
    pub(super) fn append(&mut self, frame: &[u8]) -> Result<(), StoreError> {
        let failed = |path: &Path, error: std::io::Error| io_error(path, &error);
        let end = self.end + frame.len() as u64;
        if end > self.length {
            self.grow(end);
        }
        if let Err(error) = self.file.write_all_at(frame, self.end) {
            let error = failed(&self.path, error);
            if matches!(error, StoreError::Full { .. }) {
                // A partial frame must not be present when the store is opened, not even after a power
                // failure, because another segment may follow.
                self.file
                    .set_len(self.end)
                    .and_then(|()| self.file.sync_all())
                    .map_err(|error| io_error(&self.path, &error))?;
                self.length = self.end;
            }
            return Err(error);
        }
        self.length = self.length.max(end);
        self.sync()?;
        self.end = end;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| StoreError::Io {
            place: self.path.display().to_string(),
            detail: format!("sync failed: {error}"),
        })
    }

    /// Preallocates zeros. If that fails, the frame itself may still fit.
    fn grow(&mut self, end: u64) {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let target = end.next_multiple_of(GROWTH);
        while self.length < target {
            let count = ZEROS
                .len()
                .min(usize::try_from(target - self.length).unwrap_or(usize::MAX));
            if self.file.write_all_at(&ZEROS[..count], self.length).is_err() {
                drop(self.file.set_len(self.length));
                return;
            }
            self.length += count as u64;
        }
    }

    /// Releases the preallocated space. A failure is harmless: zeros may follow the last frame.
    pub(super) fn end(self) {
        drop(self.file.set_len(self.end));
    }
}
