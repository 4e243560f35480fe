//! The files of the series catalogue: the keys of all series, by number, twice.
//!
//! ```text
//!   header   "oxtsdbsr" | version (4) | widths of metric, tagk, tagv UIDs (3) | 0 (1) | crc (4)
//!   frame    length of keys (4) | first number (4) | series (4) | crc of all but itself (4) | keys
//!   key      p (1) | s (1) | m (2) | m bytes
//! ```
//!
//! A key is the first `p` bytes of the key before it in its frame, then its own bytes, then the last `s` bytes of the
//! key before. Series of one host follow each other and differ in their metrics, or series of a metric in a tag.
//!
//! Without its key a series cannot be read, though its points may be in a thousand parts. There are therefore two
//! copies, `series.log` and `series.copy`, and each is written only while the other is complete and durable. So at most
//! one is torn after a crash, and at most one is damaged by a bit that flips. It is cut where it is invalid, and the
//! frames behind come from the other; series that were in one copy only were not acknowledged as saved and are still in
//! the journal. Two invalid copies are an error.

mod frame;
mod read;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxtsdb_schema::uid::UidWidths;

use crate::{PointStoreError, SeriesNumber};
use frame::FrameWriter;
use oxtsdb_storage_file::disk::{Disk, WriteFile};
use oxtsdb_storage_file::folder::parent;
use read::read;

const MAGIC: &[u8; 8] = b"oxtsdbsr";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 20;
/// Bytes at which a frame ends.
const FRAME_BYTES: usize = 1 << 18;

/// Both copies.
#[derive(Debug)]
pub(super) struct SeriesLog {
    disk: Arc<dyn Disk>,
    widths: UidWidths,
    copies: [LogFile; 2],
}

/// A copy.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    /// Bytes up to the end of the last valid frame; 0 without a valid header.
    len: u64,
    series: u32,
    /// Other bytes may follow, which have to be removed.
    has_tail: bool,
    /// Open to append to, unless it was not used yet or failed.
    file: Option<Box<dyn WriteFile>>,
}

/// Receives a series that was read; an error has the reason why it cannot be.
pub(super) type TakeSeries<'a> = dyn FnMut(SeriesNumber, &[u8]) -> Result<(), String> + 'a;

/// Replaces a buffer by the key of a series; `false` if there is no such series.
pub(super) type ReadKey<'a> = dyn Fn(SeriesNumber, &mut Vec<u8>) -> bool + 'a;

impl SeriesLog {
    /// Opens the log of a path and its copy, and calls `take` for all series in order of their numbers; some may be
    /// repeated. No file is created before there are series.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] if both copies are; [`PointStoreError::Format`] for another version;
    /// [`PointStoreError::Invalid`] for other widths; [`PointStoreError::Io`].
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        widths: UidWidths,
        take: &mut TakeSeries<'_>,
    ) -> Result<Self, PointStoreError> {
        let copy_path = path.with_extension("copy");
        let first = read(&*disk, path, &widths, 0, take)?;
        let second = read(&*disk, &copy_path, &widths, first.series, take)?;
        if let (Some(first), Some(second)) = (&first.invalid, &second.invalid) {
            return Err(PointStoreError::Damaged {
                path: path.to_owned(),
                detail: format!("{first}; {}: {second}", copy_path.display()),
            });
        }
        let copies = [(path.to_owned(), first), (copy_path, second)].map(|(path, content)| {
            let has_tail = content.invalid.is_some();
            if let Some(detail) = content.invalid {
                let path = path.display();
                tracing::warn!(%path, detail, offset = content.len, "cut an invalid copy of the series' keys");
            }
            LogFile {
                path,
                len: content.len,
                series: content.series,
                has_tail,
                file: None,
            }
        });
        Ok(Self { disk, widths, copies })
    }

    /// The number of series that both copies have; `None` if one has to be repaired by the next call of
    /// [`SeriesLog::save`].
    pub(super) fn saved(&self) -> Option<u32> {
        let [first, second] = &self.copies;
        let is_whole = first.series == second.series && !first.has_tail && !second.has_tail;
        is_whole.then_some(first.series)
    }

    /// Repairs the copies, then makes the series before number `end` durable in both. `key` replaces its buffer by
    /// the key of a series.
    ///
    /// # Errors
    ///
    /// Errors of the disk; the next call repeats the failed writes.
    pub(super) fn save(&mut self, end: u32, key: &ReadKey<'_>) -> Result<(), PointStoreError> {
        let most = self.copies.iter().map(|copy| copy.series).max().unwrap_or(0);
        for end in [most, end] {
            for copy in &mut self.copies {
                let saved = copy.save(&*self.disk, &self.widths, end, key);
                saved.map_err(|error| PointStoreError::io(copy.path.display(), &error))?;
            }
        }
        Ok(())
    }

    /// Reads both copies and checks each series with `take`.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] for the first copy that is invalid; [`PointStoreError::Io`].
    pub(super) fn verify(&self, take: &mut TakeSeries<'_>) -> Result<(), PointStoreError> {
        for copy in &self.copies {
            let content = read(&*self.disk, &copy.path, &self.widths, 0, take)?;
            let missing = || {
                let (series, saved) = (content.series, copy.series);
                (series < saved).then(|| format!("it has {series} of {saved} series"))
            };
            if let Some(detail) = content.invalid.clone().or_else(missing) {
                let path = copy.path.clone();
                return Err(PointStoreError::Damaged { path, detail });
            }
        }
        Ok(())
    }
}

impl LogFile {
    fn save(&mut self, disk: &dyn Disk, widths: &UidWidths, end: u32, key: &ReadKey<'_>) -> io::Result<()> {
        if self.series >= end && !self.has_tail {
            return Ok(());
        }
        // The bytes that an error leaves behind are unknown, and are removed by the next attempt.
        let mut file = match self.file.take() {
            Some(file) => file,
            None => match disk.append(&self.path, self.len) {
                Err(error) if error.kind() == ErrorKind::NotFound && self.len == 0 => {
                    disk.create(&self.path)?
                }
                opened => opened?,
            },
        };
        self.has_tail = true;
        let (mut len, mut series) = (self.len, self.series);
        if len == 0 {
            file.write(&header(widths))?;
            len += HEADER_BYTES as u64;
        }
        let mut frame = FrameWriter::default();
        while series < end {
            frame.clear(series);
            while series < end && frame.byte_len() < FRAME_BYTES {
                frame.push(|buffer| key(SeriesNumber(series), buffer))?;
                series += 1;
            }
            file.write(frame.finish()?)?;
            len += frame.byte_len() as u64;
        }
        file.sync()?;
        if self.len == 0 {
            disk.sync_dir(parent(&self.path))?;
        }
        (self.len, self.series) = (len, series);
        self.has_tail = false;
        self.file = Some(file);
        Ok(())
    }
}

fn header(widths: &UidWidths) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_be_bytes());
    header.extend(width_bytes(widths));
    header.push(0);
    header.extend(crc32fast::hash(&header).to_be_bytes());
    header
}

/// Widths are 1 to 8.
fn width_bytes(widths: &UidWidths) -> [u8; 3] {
    [widths.metric, widths.tagk, widths.tagv].map(|width| u8::try_from(width.bytes()).unwrap_or(u8::MAX))
}
