//! The segments of a journal as files, and the list of them.
//!
//! ```text
//!   SEGMENTS   "oxtsdbjs" | version (4) | cut (8) | count (4) | segment ... | crc (4)
//!   segment    number (8) | first sequence (8)
//! ```
//!
//! Segments with the frames up to sequence number `cut` were removed, because other files of the store have them.
//!
//! A segment is listed before its first frame is acknowledged, and no longer listed before it is removed. A listed
//! segment that is absent was therefore lost, and one that is not listed has no frame that counts, or the list is older
//! than the segments.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::frame::SegmentHeader;
use crate::StorageError;
use crate::disk::{Disk, WriteFile};
use crate::folder::{read_all, replace};
use crate::varint::Reader;

const LIST_MAGIC: [u8; 8] = *b"oxtsdbjs";
const LIST_VERSION: u32 = 1;
/// A longer list is not read.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// The segments of a journal.
#[derive(Debug)]
pub struct JournalFiles {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    segments: Mutex<Segments>,
    /// The sequence number of the last durable frame.
    durable: AtomicU64,
}

#[derive(Debug)]
struct Segments {
    files: BTreeMap<u64, SegmentFile>,
    cut: u64,
    /// Segments that are not listed any more and may have a file: their removal failed.
    unlisted: Vec<u64>,
}

/// The content of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub(super) cut: u64,
    /// Number and first sequence number of each segment, ascending.
    pub(super) segments: Vec<(u64, u64)>,
}

/// A segment that is listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFile {
    pub(super) first_sequence: u64,
    pub(super) bytes: u64,
}

impl JournalFiles {
    /// `cut` and `durable` are sequence numbers: of the last frame that was removed, and of the last frame.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        files: BTreeMap<u64, SegmentFile>,
        cut: u64,
        durable: u64,
    ) -> Self {
        Self {
            disk,
            folder,
            segments: Mutex::new(Segments {
                files,
                cut,
                unlisted: Vec::new(),
            }),
            durable: AtomicU64::new(durable),
        }
    }

    /// Sets the sequence number of the last durable frame.
    pub(super) fn set_durable(&self, sequence: u64) {
        self.durable.store(sequence, Ordering::Relaxed);
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        segment_path(&self.folder, number)
    }

    pub(super) fn io_error(&self, number: u64, error: &io::Error) -> StorageError {
        StorageError::io(self.path(number).display(), error)
    }

    /// Creates a segment with its header and lists it, durably. With first frames, which supersede frames of the segment
    /// before, it has its name only once they are durable.
    pub(super) fn begin(
        &self,
        header: SegmentHeader,
        magic: [u8; 8],
        frames: &[u8],
    ) -> Result<Box<dyn WriteFile>, StorageError> {
        let number = header.number;
        let path = self.path(number);
        let new = if frames.is_empty() {
            path.clone()
        } else {
            path.with_extension("journal.tmp")
        };
        let encoded = [&header.encode(magic), frames].concat();
        let mut segments = self.segments.lock();
        let begun = self.disk.create(&new).and_then(|mut file| {
            file.write(&encoded)?;
            file.sync()?;
            if new != path {
                self.disk.rename(&new, &path)?;
            }
            self.disk.sync_dir(&self.folder)?;
            Ok(file)
        });
        let file = begun.map_err(|error| {
            // If it stays, recovery removes it, or it has the same frames as the segment before.
            drop(self.disk.remove(&new));
            self.io_error(number, &error)
        })?;
        let segment = SegmentFile {
            first_sequence: header.first_sequence,
            bytes: encoded.len() as u64,
        };
        segments.files.insert(number, segment);
        if let Err(error) = self.write_list(&segments) {
            // The file stays: the list may have it.
            segments.files.remove(&number);
            return Err(error);
        }
        Ok(file)
    }

    /// Replaces the list of segments.
    fn write_list(&self, segments: &Segments) -> Result<(), StorageError> {
        let path = list_path(&self.folder);
        let listed = segments.files.iter();
        let list = List {
            cut: segments.cut,
            segments: listed
                .map(|(number, file)| (*number, file.first_sequence))
                .collect(),
        };
        replace(&*self.disk, &path, &list.encode()).map_err(|error| StorageError::io(path.display(), &error))
    }

    /// Writes the list of a journal that has none.
    pub(super) fn write_listed(&self) -> Result<(), StorageError> {
        self.write_list(&self.segments.lock())
    }

    pub(super) fn grow(&self, number: u64, bytes: u64) {
        if let Some(segment) = self.segments.lock().files.get_mut(&number) {
            segment.bytes += bytes;
        }
    }

    /// The sequence number of the last frame that was removed.
    pub fn cut(&self) -> u64 {
        self.segments.lock().cut
    }

    /// Bytes of all segments.
    pub fn byte_len(&self) -> u64 {
        let segments = self.segments.lock();
        segments.files.values().map(|segment| segment.bytes).sum()
    }

    /// Removes the segments up to a number, which must have ended, durably. Repeating is safe.
    ///
    /// # Errors
    ///
    /// Errors of the disk; some segments may be removed.
    pub fn remove_through(&self, number: u64) -> Result<(), StorageError> {
        let mut segments = self.segments.lock();
        let mut kept = segments.files.clone();
        let mut removed = segments.unlisted.clone();
        while let Some(first) = kept.first_entry()
            && *first.key() <= number
        {
            removed.push(first.remove_entry().0);
        }
        if removed.is_empty() {
            return Ok(());
        }
        if kept.len() < segments.files.len() {
            let first = kept.values().next().map(|segment| segment.first_sequence - 1);
            let kept = Segments {
                files: kept,
                cut: first.unwrap_or(self.durable.load(Ordering::Relaxed)),
                unlisted: removed,
            };
            self.write_list(&kept)?;
            // From here on a later list must not have them, whether their files can be removed or not.
            *segments = kept;
        }
        let mut failed = None;
        segments
            .unlisted
            .retain(|number| match self.disk.remove(&self.path(*number)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    failed.get_or_insert(self.io_error(*number, &error));
                    true
                }
                _ => false,
            });
        if let Some(error) = failed {
            return Err(error);
        }
        let synced = self.disk.sync_dir(&self.folder);
        synced.map_err(|error| StorageError::io(self.folder.display(), &error))
    }

    /// Bytes of a segment.
    pub(super) fn read(&self, number: u64, start: u64, end: u64) -> Result<Vec<u8>, StorageError> {
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        let read = self.disk.open(&self.path(number));
        read.and_then(|file| file.read_at(&mut bytes, start))
            .map_err(|error| self.io_error(number, &error))?;
        Ok(bytes)
    }

    /// Replaces a segment, unless it was removed, by a durable copy of its first `length` bytes.
    pub(super) fn rewrite(&self, number: u64, length: u64) -> Result<(), StorageError> {
        // Held meanwhile: a removed segment must not return.
        let mut segments = self.segments.lock();
        let Some(segment) = segments.files.get_mut(&number) else {
            return Ok(());
        };
        let path = self.path(number);
        let replaced = read_all(&*self.disk, &path, u64::MAX).and_then(|bytes| {
            let length = usize::try_from(length).map_err(|_| ErrorKind::UnexpectedEof)?;
            let bytes = bytes.get(..length).ok_or(ErrorKind::UnexpectedEof)?;
            replace(&*self.disk, &path, bytes)
        });
        replaced.map_err(|error| self.io_error(number, &error))?;
        segment.bytes = length;
        Ok(())
    }
}

pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}.journal"))
}

pub(super) fn list_path(folder: &Path) -> PathBuf {
    folder.join("SEGMENTS")
}

/// The list; `None` without one.
///
/// # Errors
///
/// [`StorageError::Damaged`]; errors of the disk.
pub(super) fn read_list(disk: &dyn Disk, folder: &Path) -> Result<Option<List>, StorageError> {
    let path = list_path(folder);
    match read_all(disk, &path, MAX_LIST_BYTES) {
        Ok(bytes) => List::decode(&bytes)
            .map(Some)
            .map_err(|detail| StorageError::damaged(&path, detail)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io(path.display(), &error)),
    }
}

impl List {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = LIST_MAGIC.to_vec();
        bytes.extend_from_slice(&LIST_VERSION.to_be_bytes());
        bytes.extend_from_slice(&self.cut.to_be_bytes());
        let count = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&count.to_be_bytes());
        for (number, first_sequence) in &self.segments {
            bytes.extend_from_slice(&number.to_be_bytes());
            bytes.extend_from_slice(&first_sequence.to_be_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        if reader.array() != Some(LIST_MAGIC) {
            return Err("it is no list of segments");
        }
        let content = bytes
            .split_last_chunk::<4>()
            .filter(|(content, crc)| crc32fast::hash(content) == u32::from_be_bytes(**crc));
        if content.is_none() {
            return Err("the checksum does not match");
        }
        if reader.array().map(u32::from_be_bytes) != Some(LIST_VERSION) {
            return Err("the version of the list is unknown");
        }
        let mut list = || {
            let cut = u64::from_be_bytes(reader.array()?);
            let count = u32::from_be_bytes(reader.array()?);
            let mut segment = || {
                let number = u64::from_be_bytes(reader.array()?);
                Some((number, u64::from_be_bytes(reader.array()?)))
            };
            let segments = (0..count).map(|_| segment()).collect::<Option<Vec<_>>>()?;
            Some(Self { cut, segments })
        };
        list()
            .filter(|list| list.segments.is_sorted_by_key(|(number, _)| *number))
            .ok_or("it cannot be decoded")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_documented_bytes() {
        let list = List {
            cut: 257,
            segments: vec![(3, 258)],
        };
        let golden =
            b"oxtsdbjs\0\0\0\x01\0\0\0\0\0\0\x01\x01\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02\x28\xda\x29\x57";
        assert_eq!(list.encode(), golden);
        assert_eq!(List::decode(golden), Ok(list));
        for index in 0..golden.len() {
            let mut damaged = golden.to_vec();
            damaged[index] ^= 1;
            List::decode(&damaged).unwrap_err();
            List::decode(&golden[..index]).unwrap_err();
        }
    }
}
