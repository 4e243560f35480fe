//! The segments of a journal as files.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::disk::{Disk, WriteFile};
use super::super::folder::{read_all, replace};
use crate::PointStoreError;

/// The segments of a journal.
#[derive(Debug)]
pub struct JournalFiles {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// The length of each segment by its number.
    lengths: Mutex<BTreeMap<u64, u64>>,
}

impl JournalFiles {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: PathBuf, lengths: BTreeMap<u64, u64>) -> Self {
        Self {
            disk,
            folder,
            lengths: Mutex::new(lengths),
        }
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:010}.journal"))
    }

    pub(super) fn io_error(&self, number: u64, error: &io::Error) -> PointStoreError {
        PointStoreError::io(self.path(number).display(), error)
    }

    /// Creates a segment with its header, durably.
    pub(super) fn begin(&self, number: u64, header: &[u8]) -> Result<Box<dyn WriteFile>, PointStoreError> {
        let path = self.path(number);
        let begun = self.disk.create(&path).and_then(|mut file| {
            file.write(header)?;
            file.sync()?;
            self.disk.sync_dir(&self.folder)?;
            Ok(file)
        });
        match begun {
            Ok(file) => {
                self.grow(number, header.len() as u64);
                Ok(file)
            }
            Err(error) => {
                // If it stays, recovery removes it: it has no frames.
                drop(self.disk.remove(&path));
                Err(self.io_error(number, &error))
            }
        }
    }

    pub(super) fn grow(&self, number: u64, bytes: u64) {
        *self.lengths.lock().entry(number).or_default() += bytes;
    }

    /// Bytes of all segments.
    pub fn byte_len(&self) -> u64 {
        self.lengths.lock().values().sum()
    }

    /// Removes the segments up to a number, which must have ended, durably. Repeating is safe.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Io`]; the oldest segments may be removed.
    pub fn remove_through(&self, number: u64) -> Result<(), PointStoreError> {
        let mut lengths = self.lengths.lock();
        while let Some((&first, _)) = lengths.first_key_value()
            && first <= number
        {
            let removed = match self.disk.remove(&self.path(first)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => self.disk.sync_dir(&self.folder),
            };
            removed.map_err(|error| self.io_error(first, &error))?;
            lengths.remove(&first);
        }
        Ok(())
    }

    /// Replaces a segment, unless it was removed, by a durable copy of its first `length` bytes.
    pub(super) fn rewrite(&self, number: u64, length: usize) -> Result<(), PointStoreError> {
        // Held meanwhile: a removed segment must not return.
        let mut lengths = self.lengths.lock();
        let Some(known) = lengths.get_mut(&number) else {
            return Ok(());
        };
        let path = self.path(number);
        let replaced = read_all(&*self.disk, &path, u64::MAX).and_then(|bytes| {
            let bytes = bytes.get(..length).ok_or(ErrorKind::UnexpectedEof)?;
            replace(&*self.disk, &path, bytes)
        });
        replaced.map_err(|error| self.io_error(number, &error))?;
        *known = length as u64;
        Ok(())
    }
}
