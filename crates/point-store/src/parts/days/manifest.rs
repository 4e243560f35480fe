//! File `MANIFEST`, of a day and of the store: the files that must be there.
//!
//! ```text
//!   day         "OXTSDAYM" | version (4) | parts | part | … | tombstones | tombstone | … | CRC32 (4)
//!   part        first sequence | last - first | bytes | index CRC32 (4) | first ms | last ms | metrics
//!   tombstone   sequence | bytes | first ms | last ms
//!
//!   store       "OXTSPART" | version (4) | cut | series | next sequence | days | day | … | CRC32 (4)
//!   day         number | metrics | parts | first sequence, last - first | …
//! ```
//!
//! Numbers without a size are varints, instants are zigzag varints; numbers of a size are big endian. The checksum covers
//! everything before it. `metrics` are drawn in `part::metric_set`.
//!
//! The names of files decide the content of a store; the manifests are witnesses. A manifest is replaced after the
//! files that it adds are durable, and before the files that it no longer has are removed. A part or tombstone that is
//! not listed counts: the process ended in between. A listed part must be there, or another one that contains its
//! sequences. An absent or damaged part costs its metrics in its range, and no others.
//!
//! While a damaged part is replaced by its intact blocks, it is listed twice, as it was and as it will be.
//!
//! The store's manifest has the days, with their metrics and the sequences of their parts, so that a whole folder that
//! is absent is noticed, and a part that is absent together with its manifest. It is written by flushes only: the
//! result of a merge contains the sequences that it has. Frames of the journal up to sequence number `cut` have their
//! points in parts: the flush writes it before it removes them from the journal. A journal that ends before is an older
//! copy, and frames of one that begins before are not replayed over newer parts. The catalogue must have `series`
//! series: numbers that it has lost would be given again. The store's manifest is replaced before a day is dropped, and
//! after the manifest of a new day.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::name::{DayNumber, MANIFEST, Sequences};
use crate::parts::part::{Lost, MetricSet};
use crate::{PointStoreError, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{read_all, replace};
use oxtsdb_storage_file::varint::{Reader, put, zigzag};

const DAY_MAGIC: [u8; 8] = *b"OXTSDAYM";
const STORE_MAGIC: [u8; 8] = *b"OXTSPART";
const VERSION: u32 = 1;
/// A larger file is not read.
const MAX_BYTES: u64 = 1 << 30;
/// Runs of a day's metrics in the manifest of the store, which is written with every flush.
const DAY_RUNS: usize = 16;

/// The files of a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DayManifest {
    /// Ascending by sequences.
    pub(super) parts: Vec<PartEntry>,
    /// Ascending by sequence.
    pub(super) tombstones: Vec<TombstoneEntry>,
}

/// A part of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartEntry {
    pub(super) sequences: Sequences,
    pub(super) bytes: u64,
    /// The checksum of its index.
    pub(super) crc: u32,
    /// First and last instant; of a part without points, the last is before the first.
    pub(super) range: TimeRange,
    pub(super) metrics: MetricSet,
}

/// A tombstone of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TombstoneEntry {
    pub(super) sequence: u64,
    pub(super) bytes: u64,
    /// The instants of the points that it deletes, within the day.
    pub(super) range: TimeRange,
}

/// The days of a store, and how far its journal is in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreManifest {
    /// The sequence number of the last frame of the journal with all its points in parts.
    pub(super) cut: u64,
    /// The number of series that were saved.
    pub(super) series: u32,
    /// The sequence of the next file is not before this one.
    pub(super) next_sequence: u64,
    pub(super) days: BTreeMap<DayNumber, DayEntry>,
}

/// A day of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DayEntry {
    /// The metrics of its parts.
    pub(super) metrics: MetricSet,
    /// Its parts, ascending.
    pub(super) parts: Vec<Sequences>,
}

impl PartEntry {
    /// The series and ranges that are lost with the part.
    pub(super) fn lost(&self) -> Vec<Lost> {
        self.metrics.lost(self.range)
    }
}

impl DayManifest {
    /// Reads the manifest in the folder of a day; `None` without one.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`]; errors of the disk.
    pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>, PointStoreError> {
        read(disk, &folder.join(MANIFEST), Self::decode)
    }

    /// Replaces the manifest in the folder of a day, durably. A day that was dropped has no folder, and gets none.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub(super) fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<(), PointStoreError> {
        let path = folder.join(MANIFEST);
        match replace(disk, &path, &self.encode()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            replaced => replaced.map_err(|error| PointStoreError::io(path.display(), &error)),
        }
    }

    /// The parts of a name.
    pub(super) fn parts_of(&self, sequences: Sequences) -> impl Iterator<Item = &PartEntry> {
        self.parts.iter().filter(move |part| part.sequences == sequences)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = head(DAY_MAGIC);
        put(&mut bytes, self.parts.len() as u64);
        for part in &self.parts {
            put_sequences(&mut bytes, part.sequences);
            put(&mut bytes, part.bytes);
            bytes.extend(part.crc.to_be_bytes());
            put_range(&mut bytes, part.range);
            part.metrics.encode(&mut bytes);
        }
        put(&mut bytes, self.tombstones.len() as u64);
        for tombstone in &self.tombstones {
            put(&mut bytes, tombstone.sequence);
            put(&mut bytes, tombstone.bytes);
            put_range(&mut bytes, tombstone.range);
        }
        sealed(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = opened(bytes, DAY_MAGIC)?;
        let mut manifest = || {
            let part = |reader: &mut Reader<'_>| {
                Some(PartEntry {
                    sequences: sequences(reader)?,
                    bytes: reader.number()?,
                    crc: u32::from_be_bytes(reader.array()?),
                    range: range(reader)?,
                    metrics: MetricSet::decode(reader)?,
                })
            };
            let tombstone = |reader: &mut Reader<'_>| {
                Some(TombstoneEntry {
                    sequence: reader.number()?,
                    bytes: reader.number()?,
                    range: range(reader)?,
                })
            };
            let count = reader.number()?;
            let parts = (0..count).map(|_| part(&mut reader)).collect::<Option<_>>()?;
            let count = reader.number()?;
            let tombstones = (0..count)
                .map(|_| tombstone(&mut reader))
                .collect::<Option<_>>()?;
            Some(Self { parts, tombstones })
        };
        manifest().filter(|_| reader.0.is_empty()).ok_or(INVALID)
    }
}

impl StoreManifest {
    /// Reads the manifest in the folder of a store; `None` without one.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`]; errors of the disk.
    pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>, PointStoreError> {
        read(disk, &folder.join(MANIFEST), Self::decode)
    }

    /// Replaces the manifest in the folder of a store, durably.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub(super) fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<(), PointStoreError> {
        let path = path(folder);
        replace(disk, &path, &self.encode()).map_err(|error| PointStoreError::io(path.display(), &error))
    }

    /// Adds a day with the sequences and metrics of its parts.
    pub(super) fn add_day<'a>(
        &mut self,
        day: DayNumber,
        parts: impl Iterator<Item = (Sequences, &'a MetricSet)>,
    ) {
        let mut entry = DayEntry::default();
        for (sequences, metrics) in parts {
            entry.parts.push(sequences);
            entry.metrics.extend(metrics);
        }
        entry.metrics.bound(DAY_RUNS);
        self.days.insert(day, entry);
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = head(STORE_MAGIC);
        put(&mut bytes, self.cut);
        put(&mut bytes, self.series.into());
        put(&mut bytes, self.next_sequence);
        put(&mut bytes, self.days.len() as u64);
        for (day, entry) in &self.days {
            put(&mut bytes, day.number().into());
            entry.metrics.encode(&mut bytes);
            put(&mut bytes, entry.parts.len() as u64);
            for sequences in &entry.parts {
                put_sequences(&mut bytes, *sequences);
            }
        }
        sealed(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = opened(bytes, STORE_MAGIC)?;
        let mut manifest = || {
            let cut = reader.number()?;
            let series = u32::try_from(reader.number()?).ok()?;
            let next_sequence = reader.number()?;
            let count = reader.number()?;
            let mut day = || {
                let day = DayNumber::from_number(u32::try_from(reader.number()?).ok()?);
                let metrics = MetricSet::decode(&mut reader)?;
                let parts = reader.number()?;
                let parts = (0..parts)
                    .map(|_| sequences(&mut reader))
                    .collect::<Option<_>>()?;
                Some((day, DayEntry { metrics, parts }))
            };
            let days = (0..count).map(|_| day()).collect::<Option<_>>()?;
            Some(Self {
                cut,
                series,
                next_sequence,
                days,
            })
        };
        manifest().filter(|_| reader.0.is_empty()).ok_or(INVALID)
    }
}

/// The path of the manifest in the folder of a store.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(MANIFEST)
}

const INVALID: &str = "it cannot be decoded";

fn read<T>(
    disk: &dyn Disk,
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, &'static str>,
) -> Result<Option<T>, PointStoreError> {
    let damaged = |detail: &str| PointStoreError::Damaged {
        path: path.to_owned(),
        detail: detail.to_owned(),
    };
    match read_all(disk, path, MAX_BYTES) {
        Ok(bytes) => decode(&bytes).map(Some).map_err(damaged),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(damaged("it is too large")),
        Err(error) => Err(PointStoreError::io(path.display(), &error)),
    }
}

fn head(magic: [u8; 8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    bytes
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes);
    bytes.extend(crc.to_be_bytes());
    bytes
}

/// Returns the content after the head of a manifest, without the checksum.
fn opened(bytes: &[u8], magic: [u8; 8]) -> Result<Reader<'_>, &'static str> {
    let content = bytes
        .split_last_chunk::<4>()
        .filter(|(content, crc)| crc32fast::hash(content).to_be_bytes() == **crc);
    let (content, _) = content.ok_or("the checksum does not match, or it is cut")?;
    let mut reader = Reader(content);
    if reader.array() != Some(magic) {
        return Err("it is no manifest of this kind");
    }
    match reader.array().map(u32::from_be_bytes) {
        Some(VERSION) => Ok(reader),
        _ => Err("the version of the manifest is unknown"),
    }
}

fn put_sequences(bytes: &mut Vec<u8>, sequences: Sequences) {
    put(bytes, sequences.first);
    put(bytes, sequences.last - sequences.first);
}

fn sequences(reader: &mut Reader<'_>) -> Option<Sequences> {
    let first = reader.number()?;
    let last = first.checked_add(reader.number()?)?;
    Some(Sequences { first, last })
}

fn put_range(bytes: &mut Vec<u8>, range: TimeRange) {
    put(bytes, zigzag(range.first_ms));
    put(bytes, zigzag(range.last_ms));
}

fn range(reader: &mut Reader<'_>) -> Option<TimeRange> {
    Some(TimeRange {
        first_ms: reader.signed()?,
        last_ms: reader.signed()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::part::MetricNumber;

    fn metrics(numbers: &[u32]) -> MetricSet {
        let mut metrics = MetricSet::default();
        numbers
            .iter()
            .for_each(|number| metrics.push(MetricNumber(*number)));
        metrics
    }

    fn day() -> DayManifest {
        DayManifest {
            parts: vec![PartEntry {
                sequences: Sequences { first: 3, last: 300 },
                bytes: 110,
                crc: 0x0102_0304,
                range: TimeRange {
                    first_ms: 1000,
                    last_ms: 2000,
                },
                metrics: metrics(&[0, 1, 7]),
            }],
            tombstones: vec![TombstoneEntry {
                sequence: 301,
                bytes: 38,
                range: TimeRange {
                    first_ms: 0,
                    last_ms: 5,
                },
            }],
        }
    }

    fn store() -> StoreManifest {
        let mut store = StoreManifest {
            cut: 258,
            series: 9,
            next_sequence: 302,
            ..StoreManifest::default()
        };
        let sequences = Sequences { first: 3, last: 300 };
        store.add_day(
            DayNumber::from_number(20_000),
            [(sequences, &metrics(&[5]))].into_iter(),
        );
        store
    }

    /// Bytes of version 1, which every later version reads or rejects by its number.
    #[test]
    fn manifests_have_the_documented_bytes() {
        let content = b"OXTSDAYM\0\0\0\x01\x01\x03\xa9\x02\x6e\x01\x02\x03\x04\xd0\x0f\xa0\x1f\x02\0\x01\x06\0\x01\xad\x02\x26\0\x0a";
        assert_eq!(day().encode(), sealed(content.to_vec()));
        let content = b"OXTSPART\0\0\0\x01\x82\x02\x09\xae\x02\x01\xa0\x9c\x01\x01\x05\0\x01\x03\xa9\x02";
        assert_eq!(store().encode(), sealed(content.to_vec()));
    }

    #[test]
    fn manifests_round_trip_and_each_change_is_noticed() {
        let (of_day, of_store) = (day().encode(), store().encode());
        assert_eq!(DayManifest::decode(&of_day), Ok(day()));
        assert_eq!(StoreManifest::decode(&of_store), Ok(store()));
        assert!(StoreManifest::decode(&of_day).is_err() && DayManifest::decode(&of_store).is_err());
        for bytes in [of_day, of_store] {
            for index in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[index] ^= 1;
                assert!(DayManifest::decode(&damaged).is_err() && StoreManifest::decode(&damaged).is_err());
                let cut = &bytes[..index];
                assert!(DayManifest::decode(cut).is_err() && StoreManifest::decode(cut).is_err());
            }
        }
    }

    #[test]
    fn unknown_versions_are_named() {
        let mut bytes = DAY_MAGIC.to_vec();
        bytes.extend(2_u32.to_be_bytes());
        let error = DayManifest::decode(&sealed(bytes)).unwrap_err();
        assert!(error.contains("version"), "{error}");
    }
}
