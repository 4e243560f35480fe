//! The files of a day: parts in the order in which their points were written, and tombstones.
//!
//! A [`DayList`] never changes; each change of a day makes another. A reader that holds one sees the day as it was,
//! and its files stay until the last reader is dropped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::manifest::{PartEntry, TombstoneEntry};
use super::name::{DayFile, DayNumber, Sequences};
use super::policy::Candidate;
use super::tombstone::Deletion;
use crate::parts::part::{MetricSet, Part};
use crate::{SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk;

/// The parts and tombstones of a day at an instant.
#[derive(Clone, Debug)]
pub struct DayList {
    pub(super) day: DayNumber,
    /// Ascending by sequences: of points of the same instant, the last part's is the newest.
    pub(super) parts: Vec<Arc<DayPart>>,
    /// Ascending by sequence.
    pub(super) tombstones: Vec<Arc<Tombstone>>,
}

/// A part of a day.
#[derive(Debug)]
pub struct DayPart {
    pub(super) part: Arc<Part>,
    pub(super) sequences: Sequences,
    /// Its metrics; if it was opened without a manifest, also those between the metrics of a page.
    pub(super) metrics: MetricSet,
    pub(super) file: OwnedFile,
}

/// A tombstone of a day.
#[derive(Debug)]
pub(super) struct Tombstone {
    pub(super) sequence: u64,
    pub(super) deletion: Arc<Deletion>,
    /// The tombstone in the manifest of the day.
    pub(super) entry: TombstoneEntry,
    pub(super) file: OwnedFile,
}

/// A file that is removed, once it is obsolete, when its last reader is dropped.
pub(super) struct OwnedFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    is_obsolete: AtomicBool,
}

impl DayList {
    pub(super) const fn new(day: DayNumber) -> Self {
        Self {
            day,
            parts: Vec::new(),
            tombstones: Vec::new(),
        }
    }

    /// The day.
    pub const fn day(&self) -> DayNumber {
        self.day
    }

    /// The parts, oldest first.
    pub fn parts(&self) -> &[Arc<DayPart>] {
        &self.parts
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes()).sum()
    }

    /// Bytes of memory. Days that a tombstone covers count it each.
    pub(super) fn byte_len(&self) -> usize {
        let parts = self.parts.iter();
        let parts = parts.map(|part| part.part().byte_len() + part.metrics.byte_len());
        let tombstones = self
            .tombstones
            .iter()
            .map(|tombstone| tombstone.deletion.byte_len());
        parts.chain(tombstones).sum()
    }

    /// The instants of a series that were deleted from a part.
    pub fn deleted(&self, part: &DayPart, series: SeriesNumber) -> impl Iterator<Item = TimeRange> {
        self.tombstones_of(part)
            .filter(move |tombstone| tombstone.deletion.covers(series))
            .map(|tombstone| tombstone.deletion.range())
    }

    /// The tombstones that apply to a part.
    pub(super) fn tombstones_of(&self, part: &DayPart) -> impl Iterator<Item = &Arc<Tombstone>> {
        let last = part.sequences.last;
        self.tombstones
            .iter()
            .filter(move |tombstone| tombstone.sequence > last)
    }

    /// Whether a file is one of the day.
    pub(super) fn has(&self, path: &Path) -> bool {
        let mut tombstones = self.tombstones.iter().map(|tombstone| tombstone.file.path());
        self.parts.iter().any(|part| part.path() == path) || tombstones.any(|tombstone| tombstone == path)
    }

    /// Removes and returns the tombstones that apply to no part that is left.
    pub(super) fn take_spent_tombstones(&mut self) -> Vec<Arc<Tombstone>> {
        let oldest = self
            .parts
            .iter()
            .map(|part| part.sequences.last)
            .min()
            .unwrap_or(u64::MAX);
        let spent = self
            .tombstones
            .partition_point(|tombstone| tombstone.sequence <= oldest);
        self.tombstones.drain(..spent).collect()
    }

    /// The place of parts that are neighbours in this list; `None` if one of them is gone.
    pub(super) fn position(&self, parts: &[Arc<DayPart>]) -> Option<usize> {
        let first = parts.first()?;
        let position = self.parts.iter().position(|part| Arc::ptr_eq(part, first))?;
        let pairs = self.parts[position..].iter().zip(parts);
        let all = pairs.filter(|(listed, part)| Arc::ptr_eq(listed, part)).count() == parts.len();
        all.then_some(position)
    }
}

impl DayPart {
    /// The part's file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The part.
    pub const fn part(&self) -> &Arc<Part> {
        &self.part
    }

    pub(super) fn bytes(&self) -> u64 {
        self.part.meta().bytes
    }

    /// First and last instant; `None` if there are no points.
    pub fn range(&self) -> Option<TimeRange> {
        let meta = self.part.meta();
        (meta.points > 0).then_some(meta.range)
    }

    /// The part in the day's manifest.
    pub(super) fn entry(&self) -> PartEntry {
        PartEntry {
            sequences: self.sequences,
            bytes: self.bytes(),
            crc: self.part.crc(),
            range: self.part.meta().range,
            metrics: self.metrics.clone(),
        }
    }

    pub(super) fn candidate(&self, busy: bool) -> Candidate {
        Candidate {
            bytes: self.bytes(),
            busy,
        }
    }
}

/// A tombstone in the manifest of a day, given its bytes and instants.
pub(super) fn tombstone_entry(sequence: u64, bytes: u64, range: TimeRange, day: DayNumber) -> TombstoneEntry {
    let of_day = day.range();
    TombstoneEntry {
        sequence,
        bytes,
        range: TimeRange {
            first_ms: range.first_ms.max(of_day.first_ms),
            last_ms: range.last_ms.min(of_day.last_ms),
        },
    }
}

impl OwnedFile {
    pub(super) fn new(disk: &Arc<dyn Disk>, path: PathBuf) -> Self {
        Self {
            disk: Arc::clone(disk),
            path,
            is_obsolete: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the file be removed when this is dropped. It must be harmless if the file is found again.
    pub(super) fn set_obsolete(&self) {
        self.is_obsolete.store(true, Ordering::Relaxed);
    }
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        if self.is_obsolete.load(Ordering::Relaxed)
            && let Err(error) = self.disk.remove(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.path.display(), %error, "cannot remove an obsolete file; the next start will");
        }
    }
}

impl fmt::Debug for OwnedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// The path of a file of a day.
pub(super) fn path_of(folder: &Path, day: DayNumber, file: DayFile) -> PathBuf {
    folder.join(day.to_string()).join(file.to_string())
}
