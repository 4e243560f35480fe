//! File `CLOCK`: the last time at which the store saw the system's clock and believed it.
//!
//! ```text
//!   "OXTSCLCK" | version (4) | ms since the epoch (8) | CRC32 (4)       big endian
//! ```
//!
//! It is written when the store is opened for the first time, and every 10 minutes while it is open. A file that is
//! damaged or absent costs no points: the newest points of the store take its place.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::PointStoreError;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{read_all, replace};

const MAGIC: [u8; 8] = *b"OXTSCLCK";
const VERSION: u32 = 1;
const BYTES: usize = 24;

fn path(folder: &Path) -> PathBuf {
    folder.join("CLOCK")
}

/// Reads the record in the folder of a store; `None` if it is absent or damaged.
///
/// # Errors
///
/// Errors of the disk.
pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<i64>, PointStoreError> {
    let path = path(folder);
    match read_all(disk, &path, BYTES as u64) {
        Ok(bytes) => {
            let time_ms = decode(&bytes);
            if time_ms.is_none() {
                let path = path.display();
                tracing::warn!(%path, "the file is damaged; the newest points replace it");
            }
            Ok(time_ms)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(PointStoreError::io(path.display(), &error)),
    }
}

/// Replaces the record in the folder of a store, durably.
///
/// # Errors
///
/// Errors of the disk.
pub(super) fn write(disk: &dyn Disk, folder: &Path, time_ms: i64) -> Result<(), PointStoreError> {
    let path = path(folder);
    replace(disk, &path, &encode(time_ms)).map_err(|error| PointStoreError::io(path.display(), &error))
}

fn encode(time_ms: i64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(time_ms.to_be_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<i64> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    let (head, time_ms) = content.split_last_chunk::<8>()?;
    let (magic, version) = head.split_last_chunk::<4>()?;
    let is_valid = magic == MAGIC
        && u32::from_be_bytes(*version) == VERSION
        && crc32fast::hash(content).to_be_bytes() == *crc;
    is_valid.then(|| i64::from_be_bytes(*time_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_documented_bytes_and_each_change_is_noticed() {
        let bytes = encode(0x0102_0304_0506_0708);
        assert_eq!(
            bytes[..20],
            *b"OXTSCLCK\0\0\0\x01\x01\x02\x03\x04\x05\x06\x07\x08"
        );
        assert_eq!(bytes.len(), BYTES);
        assert_eq!(decode(&bytes), Some(0x0102_0304_0506_0708));
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert_eq!(decode(&damaged), None);
            assert_eq!(decode(&bytes[..index]), None);
        }
    }
}
