//! Reads table files of the engine block by block, without the engine.
//!
//! ```text
//!   data block ... | index blocks | filter blocks | table version (1) | meta block | contents | trailer
//!   block          magic (4) | type (1) | checksum (16) | length (4) | unpacked length (4) | header checksum (4) | data
//!   contents       "TOC!" | number of entries (4) | entries
//!   trailer        "SFA!" | version (1) | checksum type (1) | checksum (16) | place of contents (8) | length (8)
//! ```
//!
//! Each block has its own checksums and can be decoded on its own. A damaged data block therefore loses only
//! its own rows, and damage to index, filters, meta block or trailer loses none: all intact data blocks are
//! copied to a new file that replaces the damaged one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::coding::Decode;
use lsm_tree::table::block::decoder::ParsedItem;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, DataBlock, Writer};
use lsm_tree::{Cache, Checksum, CompressionType, InternalValue, SeqNo, Table, ValueType};

use super::folder::io_error;
use super::table_file::{KeyRange, TableFile};
use crate::StoreError;

/// First bytes of a block.
const MAGIC: [u8; 4] = *b"LSM\x03";
const TRAILER: usize = 38;
/// The shortest entry of the contents.
const ENTRY: usize = 18;
/// The unit in which reading continues after a read error.
const PAGE: usize = 4 << 10;

/// The key of a file without any known key: sorts before the rows of all tables.
const PLACEHOLDER: [u8; 3] = [0; 3];

/// Keys that a damaged part of a file may have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// First key, inclusive; empty: unbounded.
    pub(super) start: Vec<u8>,
    /// Last key, exclusive; empty: unbounded.
    pub(super) stop: Vec<u8>,
    pub(super) detail: String,
    /// Keys within the gap, ascending, that are intact because a newer file has them.
    pub(super) intact: Vec<Vec<u8>>,
}

/// The damage of a table file.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) gaps: Vec<Gap>,
    /// Damage that loses no row.
    pub(super) structure: Option<String>,
    /// The first key that the file may have; empty: unknown.
    first: Vec<u8>,
}

/// Reads a file, replacing unreadable pages by zeros.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let error = match fs::read(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => error,
        read => return read,
    };
    tracing::warn!(file = %path.display(), %error, "the disk cannot read all of the file");
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut offset = 0_u64;
    for page in bytes.chunks_mut(PAGE) {
        if file.read_exact_at(page, offset).is_err() {
            page.fill(0);
        }
        offset += page.len() as u64;
    }
    Ok(bytes)
}

/// A part of a file.
enum Chunk {
    Block(Block),
    Damaged { offset: usize, detail: String },
}

/// Iterates over the blocks of a file from an offset on, and the damage between them.
struct Chunks<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Whether to stop at the first block that is not a data block.
    data: bool,
}

fn header(bytes: &[u8]) -> Option<(Header, usize)> {
    let header = Header::decode_from(&mut &*bytes).ok()?;
    let length = usize::try_from(header.data_length).ok()?;
    Some((header, Header::serialized_len() + length))
}

fn compression(header: &Header) -> CompressionType {
    // Data blocks of rows are always compressed; other blocks are if their lengths differ.
    if header.block_type == BlockType::Data || header.data_length != header.uncompressed_length {
        CompressionType::Lz4
    } else {
        CompressionType::None
    }
}

impl Iterator for Chunks<'_> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let offset = self.offset;
        if let Some((header, length)) = header(rest) {
            if self.data && header.block_type != BlockType::Data {
                return None;
            }
            self.offset += length.min(rest.len());
            let block = match rest.get(..length) {
                Some(mut block) => {
                    Block::from_reader(&mut block, compression(&header)).map_err(|error| error.to_string())
                }
                None => Err("the block is cut off".to_owned()),
            };
            return Some(match block {
                Ok(block) => Chunk::Block(block),
                Err(detail) => Chunk::Damaged { offset, detail },
            });
        }
        // Continues at the next intact header.
        let next = (1..rest.len()).find(|next| {
            let rest = &rest[*next..];
            rest.starts_with(&MAGIC) && self::header(rest).is_some()
        });
        self.offset += next.unwrap_or(rest.len());
        Some(Chunk::Damaged {
            offset,
            detail: "the header of a block is damaged".to_owned(),
        })
    }
}

fn chunks(bytes: &[u8]) -> Chunks<'_> {
    Chunks {
        bytes,
        offset: 0,
        data: true,
    }
}

/// The items of a data block.
fn items(block: Block) -> Vec<InternalValue> {
    let data = block.data.clone();
    let block = DataBlock::new(block);
    block.iter().map(|item| item.materialize(&data)).collect()
}

/// First and last key and the lowest sequence number, from the meta block.
fn meta(bytes: &[u8]) -> Option<(KeyRange, SeqNo)> {
    let data_end = {
        let mut chunks = chunks(bytes);
        while chunks.next().is_some() {}
        chunks.offset
    };
    let blocks = Chunks {
        bytes,
        offset: data_end,
        data: false,
    };
    let block = blocks.into_iter().find_map(|chunk| match chunk {
        Chunk::Block(block) if block.header.block_type == BlockType::Meta => Some(DataBlock::new(block)),
        _ => None,
    })?;
    let value = |name: &[u8]| Some(block.point_read(name, SeqNo::MAX)?.value.to_vec());
    let lowest = value(b"seqno#min")?.first_chunk().copied();
    #[expect(clippy::little_endian_bytes, reason = "the engine's format")]
    let lowest = u64::from_le_bytes(lowest?);
    Some(((value(b"key#min")?, value(b"key#max")?), lowest))
}

/// Checks that the engine can safely read the end of a file: it reserves memory for the announced number of
/// table of contents entries before it verifies checksums.
///
/// # Errors
///
/// A description of the damage.
pub(super) fn check_end(path: &Path) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let trailer_at = length
        .checked_sub(TRAILER as u64)
        .ok_or("the file is cut off before its trailer")?;
    let mut trailer = [0; TRAILER];
    file.read_exact_at(&mut trailer, trailer_at).map_err(failed)?;
    let place = trailer.get(22..30).and_then(|bytes| bytes.try_into().ok());
    let contents_at = place.map_or(u64::MAX, u64::from_le_bytes);
    let mut contents = [0; 8];
    let has_contents = trailer.starts_with(b"SFA!")
        && contents_at.saturating_add(8) <= trailer_at
        && file.read_exact_at(&mut contents, contents_at).is_ok()
        && contents.starts_with(b"TOC!");
    if !has_contents {
        return Err("the trailer is damaged".to_owned());
    }
    let count = contents.last_chunk().copied().unwrap_or([0xff; 4]);
    #[expect(clippy::little_endian_bytes, reason = "the engine's format")]
    let count = u64::from(u32::from_le_bytes(count));
    if count.saturating_mul(ENTRY as u64) > trailer_at - contents_at {
        return Err("the table of contents is damaged".to_owned());
    }
    Ok(())
}

/// Checks that the engine can open a file.
///
/// # Errors
///
/// A description of the damage.
pub(super) fn check_open(path: &Path) -> Result<(), String> {
    check_end(path)?;
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    let opened = Table::recover(
        path.to_owned(),
        Checksum::from_raw(0),
        0,
        0,
        cache,
        None,
        true,
        true,
    );
    opened.map(drop).map_err(|error| error.to_string())
}

/// Damage after the data blocks.
fn structure(path: &Path, bytes: &[u8], data_end: usize) -> Option<String> {
    if let Err(detail) = check_open(path) {
        return Some(detail);
    }
    let mut blocks = Chunks {
        bytes,
        offset: data_end,
        data: false,
    };
    while let Some(chunk) = blocks.next() {
        match chunk {
            Chunk::Block(block) if block.header.block_type == BlockType::Meta => return None,
            Chunk::Block(_) => {}
            // The table version is a single byte outside any block.
            Chunk::Damaged { offset, .. } if blocks.offset == offset + 1 => {}
            Chunk::Damaged { offset, detail } => return Some(format!("offset {offset}: {detail}")),
        }
    }
    Some("there is no meta block".to_owned())
}

/// The first key that a file may have, and the first key after all of its keys (empty: unbounded): from its own
/// first and last key if known, otherwise from its neighbours in the run.
fn bounds(file: &TableFile, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    if let Some((first, last)) = file.keys.clone().or_else(|| Some(meta(bytes)?.0)) {
        return (first, next_key(&last));
    }
    let keys = |path: &PathBuf| Some(meta(&read(path).ok()?)?.0);
    let index = file.run.iter().position(|path| *path == file.path).unwrap_or(0);
    let (before, behind) = file.run.split_at(index);
    let start = before.iter().rev().find_map(keys);
    let stop = behind.iter().skip(1).find_map(keys);
    (
        start.map_or_else(Vec::new, |(_, last)| next_key(&last)),
        stop.map_or_else(Vec::new, |(first, _)| first),
    )
}

/// Looks for damage in a table file. A missing file is damaged.
///
/// # Errors
///
/// If the file cannot be read.
pub(super) fn inspect(file: &TableFile) -> Result<Option<Damage>, StoreError> {
    let path = &file.path;
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error(path, &error)),
    };
    let (first, after_last) = bounds(file, &bytes);
    let mut found = Damage {
        gaps: Vec::new(),
        structure: None,
        first: first.clone(),
    };
    let mut start = first;
    let mut open: Option<String> = bytes
        .is_empty()
        .then(|| "the file is missing or empty".to_owned());
    let mut chunks = chunks(&bytes);
    for chunk in chunks.by_ref() {
        match chunk {
            Chunk::Damaged { offset, detail } => {
                open.get_or_insert_with(|| format!("offset {offset}: {detail}"));
            }
            Chunk::Block(block) => {
                let items = items(block);
                let (Some(first), Some(last)) = (items.first(), items.last()) else {
                    continue;
                };
                if let Some(detail) = open.take() {
                    found.gaps.push(Gap {
                        start: std::mem::take(&mut start),
                        stop: first.key.user_key.to_vec(),
                        detail,
                        intact: Vec::new(),
                    });
                }
                start = next_key(&last.key.user_key);
            }
        }
    }
    if open.is_none() && chunks.offset >= bytes.len() {
        // Every file has an index; without it, data blocks may be missing as well.
        open = Some(format!("offset {}: the file is cut off", bytes.len()));
    }
    match open {
        // All keys of the file were found, so the damage is in the block after them.
        Some(detail) if !after_last.is_empty() && start >= after_last => found.structure = Some(detail),
        Some(detail) => found.gaps.push(Gap {
            start,
            stop: after_last,
            detail,
            intact: Vec::new(),
        }),
        None => found.structure = structure(path, &bytes, chunks.offset),
    }
    Ok((!found.gaps.is_empty() || found.structure.is_some()).then_some(found))
}

/// The successor of a key.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Writes the intact blocks of a table file to `target`, and syncs it.
///
/// # Errors
///
/// If the file cannot be read or `target` cannot be written.
pub(super) fn rewrite(
    path: &Path,
    damage: &Damage,
    target: &Path,
    id: u64,
    block_bytes: u32,
) -> Result<(), StoreError> {
    let failed = |error: lsm_tree::Error| match error {
        lsm_tree::Error::Io(error) => io_error(target, &error),
        error => StoreError::Io {
            place: target.display().to_string(),
            detail: error.to_string(),
        },
    };
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error(path, &error)),
    };
    let mut writer = Writer::new(target.to_owned(), id, 0)
        .map_err(failed)?
        .use_data_block_size(block_bytes)
        .use_data_block_compression(CompressionType::Lz4);
    let mut is_empty = true;
    for chunk in chunks(&bytes) {
        let Chunk::Block(block) = chunk else { continue };
        for item in items(block) {
            writer.write(item).map_err(failed)?;
            is_empty = false;
        }
    }
    if is_empty {
        // The engine does not allow empty tables. This key is within the damage anyway.
        let first = match damage.first.as_slice() {
            [] => &PLACEHOLDER,
            first => first,
        };
        let lowest = meta(&bytes).map_or(0, |(_, lowest)| lowest);
        let tombstone = InternalValue::from_components(first, [], lowest, ValueType::Tombstone);
        writer.write(tombstone).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests;
