//! Checks the engine's journal before the engine replays it, and cuts off an interrupted write.
//!
//! ```text
//!   <number>.jnl   batch ..., zeros: the file is preallocated
//!   batch          1 | number of items (4) | sequence number (8) | item ... | 3 | checksum (8) | F J L 03
//!   item           2 | type (1) | compression (1) | tree (8) | key length (2) | length of the value (4) |
//!                  its stored length (4) | key | stored value
//! ```
//!
//! Numbers are little endian; the checksum is the XXH3 of the items. Sequence numbers ascend.
//!
//! A batch is synced before the next one is written, and a file before the next one is begun. Power loss therefore
//! leaves the last batch of the last file incomplete, wherever the disk had not yet written it, and nothing after it:
//! that batch was never acknowledged. The engine refuses it if it is complete but for its checksum. Conversely the engine
//! takes any item that it cannot read for the end of the journal, which would lose the acknowledged batches behind it.
//! Here only a last batch is cut off; anything else is damage.
//!
//! Source: fjall 3.1, `journal::entry`, `journal::writer` and `journal::batch_reader`.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::folder::{io_error, missing};
use super::varint::Reader;
use crate::StoreError;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: [u8; 4] = *b"FJL\x03";
/// The engine panics at greater sequence numbers.
const MAX_SEQUENCE: u64 = u64::MAX >> 1;

/// Checks all files of the journal in a folder, and cuts off an interrupted write at the end of the last one.
///
/// # Errors
///
/// [`StoreError::Corrupt`] with file and offset of a damaged batch that was acknowledged, and if there is no journal:
/// the engine would begin a new one and number writes from the beginning again.
pub(super) fn check(folder: &Path) -> Result<(), StoreError> {
    let files = files(folder)?;
    let Some(last) = files.last() else {
        return Err(missing(&folder.join("0.jnl")));
    };
    let mut sequence = None;
    for path in &files {
        let bytes = fs::read(path).map_err(|error| io_error(path, &error))?;
        let torn =
            torn_at(&bytes, &mut sequence, path == last).map_err(|(offset, detail)| StoreError::Corrupt {
                place: format!("{} offset {offset}", path.display()),
                detail: detail.to_owned(),
            })?;
        if let Some(offset) = torn {
            tracing::warn!(file = %path.display(), offset, "cut off an interrupted write to the journal");
            cut(path, offset)?;
        }
    }
    Ok(())
}

/// Where an interrupted write to a file begins; `sequence` is the last sequence number before the file, and then of the
/// file. Fails with offset and kind of damage.
fn torn_at(
    bytes: &[u8],
    sequence: &mut Option<u64>,
    is_last: bool,
) -> Result<Option<usize>, (usize, &'static str)> {
    let bytes = without_zeros(bytes);
    let mut offset = 0;
    while let Some(batch) = bytes.get(offset..).and_then(Batch::decode) {
        if !batch.follows(*sequence) {
            return Err((offset, "the sequence number of the batch is not ascending"));
        }
        *sequence = Some(batch.sequence);
        offset += batch.length;
    }
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if !is_last || has_batch(rest, *sequence) {
        return Err((offset, "the batch is damaged"));
    }
    Ok(Some(offset))
}

/// The files of the journal, oldest first.
fn files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |error| io_error(folder, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() != Some("jnl".as_ref()) {
            continue;
        }
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        let Some(number) = number else {
            return Err(StoreError::Corrupt {
                place: path.display().to_string(),
                detail: "the name is not that of a journal".to_owned(),
            });
        };
        files.push((number, path));
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Without most of the zeros at the end, in which no batch ends.
fn without_zeros(mut bytes: &[u8]) -> &[u8] {
    const PAGE: [u8; 4_096] = [0; 4_096];
    while let Some(rest) = bytes.strip_suffix(&PAGE) {
        bytes = rest;
    }
    bytes
}

/// Whether a later batch begins anywhere in these bytes.
fn has_batch(bytes: &[u8], sequence: Option<u64>) -> bool {
    (1..bytes.len()).any(|offset| {
        let batch = bytes.get(offset..).and_then(Batch::decode);
        batch.is_some_and(|batch| batch.follows(sequence))
    })
}

fn cut(path: &Path, length: usize) -> Result<(), StoreError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| {
            file.set_len(length as u64)?;
            file.sync_all()
        })
        .map_err(|error| io_error(path, &error))
}

/// A complete batch.
struct Batch {
    sequence: u64,
    length: usize,
}

impl Batch {
    /// The batch at the beginning of these bytes, if it is complete and its checksum matches.
    #[expect(clippy::little_endian_bytes, reason = "the engine's format")]
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let expect = |reader: &mut Reader<'_>, tag| (reader.byte()? == tag).then_some(());
        expect(&mut reader, START)?;
        let count = u32::from_le_bytes(reader.array()?);
        let sequence = u64::from_le_bytes(reader.array()?);
        let items = reader.0;
        for _ in 0..count {
            expect(&mut reader, ITEM)?;
            let _type_compression_tree = reader.array::<10>()?;
            let key = u16::from_le_bytes(reader.array()?);
            let _length = reader.array::<4>()?;
            let stored = u32::from_le_bytes(reader.array()?);
            reader.bytes(usize::from(key))?;
            reader.bytes(usize::try_from(stored).ok()?)?;
        }
        let items = items.get(..items.len() - reader.0.len())?;
        expect(&mut reader, END)?;
        let checksum = u64::from_le_bytes(reader.array()?);
        (reader.array()? == TRAILER && checksum == xxh3_64(items)).then(|| Self {
            sequence,
            length: bytes.len() - reader.0.len(),
        })
    }

    fn follows(&self, sequence: Option<u64>) -> bool {
        self.sequence < MAX_SEQUENCE && sequence.is_none_or(|last| self.sequence > last)
    }
}

#[cfg(test)]
mod tests;
