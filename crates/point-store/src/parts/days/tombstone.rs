//! Tombstones: points that were deleted but are still in parts.
//!
//! ```text
//!   magic | version | first ms | last ms | runs | gap, length | gap, length | … | CRC32
//!     8   |    4    |    8     |    8    |  4   |   varints   |   varints   |   |   4     bytes, big endian
//! ```
//!
//! The series are runs of ascending numbers: `gap` is the distance to the end of the previous run (0 only for the
//! first), `length` the number of series after the first of the run. The checksum covers everything before it.
//!
//! A tombstone of sequence *s* (its file's name) deletes points of the parts with a last sequence before *s*. One
//! file serves all days: each has a hard link to it. It is removed from a day when no older part is left there.

use std::io;
use std::path::Path;

use crate::{PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::read_all;
use oxtsdb_storage_file::varint::{Reader, put};

const MAGIC: &[u8; 8] = b"OXTSDELE";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 8 + 4 + 8 + 8 + 4;
const CHECKSUM_BYTES: usize = 4;
/// A larger file is not read: one run for every second series that can exist takes fewer bytes.
const MAX_BYTES: u64 = 1 << 34;

/// Series and instants of deleted points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    range: TimeRange,
    /// First and last number of each run of series; ascending, not adjacent.
    runs: Vec<(u32, u32)>,
}

impl Deletion {
    /// Of series in any order.
    pub fn new(series: &[SeriesNumber], range: TimeRange) -> Self {
        let mut numbers: Vec<u32> = series.iter().map(|series| series.0).collect();
        numbers.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for number in numbers {
            match runs.last_mut() {
                Some((_, last)) if number - *last <= 1 => *last = number,
                _ => runs.push((number, number)),
            }
        }
        Self { range, runs }
    }

    /// The instants.
    pub const fn range(&self) -> TimeRange {
        self.range
    }

    /// Whether points of a series were deleted.
    pub fn covers(&self, series: SeriesNumber) -> bool {
        let run = self.runs.partition_point(|(_, last)| *last < series.0);
        self.runs.get(run).is_some_and(|(first, _)| *first <= series.0)
    }

    /// Bytes of memory.
    pub const fn byte_len(&self) -> usize {
        size_of::<Self>() + self.runs.len() * size_of::<(u32, u32)>()
    }

    /// The file's content.
    pub(super) fn encode(&self) -> Vec<u8> {
        let runs = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + CHECKSUM_BYTES + 2 * self.runs.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(self.range.first_ms.to_be_bytes());
        bytes.extend(self.range.last_ms.to_be_bytes());
        bytes.extend(runs.to_be_bytes());
        let mut end = 0;
        for (first, last) in &self.runs {
            put(&mut bytes, (first - end).into());
            put(&mut bytes, (last - first).into());
            end = *last;
        }
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// Reverses [`Self::encode`]; an error has the reason why the bytes are none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let length = bytes.len().checked_sub(CHECKSUM_BYTES);
        let (content, checksum) = bytes.split_at(length.ok_or(SHORT)?);
        let mut input = Reader(content);
        if input.array() != Some(*MAGIC) {
            return Err("does not begin like a tombstone".to_owned());
        }
        let version = u32::from_be_bytes(input.array().ok_or(SHORT)?);
        if version != VERSION {
            return Err(format!(
                "has version {version}, this version reads version {VERSION}"
            ));
        }
        if crc32fast::hash(content).to_be_bytes() != checksum {
            return Err("checksum differs".to_owned());
        }
        let range = TimeRange {
            first_ms: i64::from_be_bytes(input.array().ok_or(SHORT)?),
            last_ms: i64::from_be_bytes(input.array().ok_or(SHORT)?),
        };
        let count = u32::from_be_bytes(input.array().ok_or(SHORT)?);
        // A run has two bytes or more.
        let mut runs = Vec::with_capacity((count as usize).min(input.0.len() / 2));
        let mut end = 0_u32;
        for index in 0..count {
            let gap = number(&mut input)?;
            let first = end.checked_add(gap).ok_or(BAD_NUMBER)?;
            let last = first.checked_add(number(&mut input)?).ok_or(BAD_NUMBER)?;
            if index > 0 && gap < 2 {
                return Err("series are not ascending runs".to_owned());
            }
            runs.push((first, last));
            end = last;
        }
        if !input.0.is_empty() {
            return Err("has bytes behind its last series".to_owned());
        }
        Ok(Self { range, runs })
    }

    /// Reads a file.
    pub(in crate::parts) fn read(disk: &dyn Disk, path: &Path) -> Result<Self, PointStoreError> {
        let damaged = |detail| PointStoreError::Damaged {
            path: path.to_owned(),
            detail,
        };
        match read_all(disk, path, MAX_BYTES) {
            Ok(bytes) => Self::decode(&bytes).map_err(damaged),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(damaged("is larger than any tombstone".to_owned()))
            }
            Err(error) => Err(PointStoreError::io(path.display(), &error)),
        }
    }
}

const SHORT: &str = "is too short";
const BAD_NUMBER: &str = "has a bad number";

fn number(input: &mut Reader<'_>) -> Result<u32, String> {
    let number = input.number().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| BAD_NUMBER.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RANGE: TimeRange = TimeRange {
        first_ms: 1000,
        last_ms: 2999,
    };

    fn numbers(numbers: &[u32]) -> Vec<SeriesNumber> {
        numbers.iter().copied().map(SeriesNumber).collect()
    }

    /// Bytes with the checksum that they should have.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let content = bytes.len() - CHECKSUM_BYTES;
        bytes.truncate(content);
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    #[test]
    fn writes_the_documented_bytes() {
        let deletion = Deletion::new(&numbers(&[300, 7, 8, 9, 8]), RANGE);
        let mut expected = b"OXTSDELE\0\0\0\x01\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\x0b\xb7\0\0\0\x02".to_vec();
        expected.extend([7, 2, 0xa3, 0x02, 0]);
        expected.extend([0; 4]);
        assert_eq!(deletion.encode(), sealed(expected));
    }

    #[test]
    fn detects_each_flipped_bit() {
        let bytes = Deletion::new(&numbers(&[1, 2, 300, 70_000]), RANGE).encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Deletion::decode(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Deletion::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn round_trips(
            series in prop::collection::vec(prop_oneof![0_u32..100, any::<u32>()], 0..80),
            first_ms in any::<i64>(),
            last_ms in any::<i64>(),
        ) {
            let deletion = Deletion::new(&numbers(&series), TimeRange { first_ms, last_ms });
            let decoded = Deletion::decode(&deletion.encode()).unwrap();
            for number in series.iter().flat_map(|number| [*number, number.wrapping_add(1), number.wrapping_sub(1)]) {
                prop_assert_eq!(decoded.covers(SeriesNumber(number)), series.contains(&number));
            }
            prop_assert_eq!(decoded, deletion);
        }

        #[test]
        fn bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..60), keep in 0..HEAD_BYTES) {
            let mut bytes = bytes;
            let valid = Deletion::new(&numbers(&[1, 5, 9]), RANGE).encode();
            bytes.splice(0..keep.min(bytes.len()), valid[..keep].iter().copied());
            bytes.extend([0; CHECKSUM_BYTES]);
            let bytes = sealed(bytes);
            if let Ok(deletion) = Deletion::decode(&bytes) {
                // Varints may be longer than needed.
                let again = deletion.encode();
                prop_assert!(again.len() <= bytes.len());
                prop_assert_eq!(Deletion::decode(&again), Ok(deletion));
            }
        }
    }
}
