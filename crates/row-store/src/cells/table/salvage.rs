//! Finds the intact data blocks of a damaged table, without its index.
//!
//! Blocks follow each other, and each has its own checksum. Behind damage the search continues at the next valid block.
//! The keys between the last key before the damage and the first key behind it are a gap.

use std::io;

use bytes::Bytes;

use super::HEADER_BYTES;
use super::block::Block;
use super::file::{TableFile, is_damage};
use super::frame::{self, FRAME_BYTES, FrameHeader, Kind, MAGIC};
use super::place::{BlockRef, Place};
use crate::StoreError;
use crate::cells::folder::io_error;
use crate::cells::set_aside::Gap;

/// Bytes in which the next block is searched at a time.
const WINDOW: usize = 64 << 10;
/// The unit in which reading continues after a read error.
const PAGE: usize = 4 << 10;

/// Facts about a table that do not need its data blocks.
pub(super) struct Known<'a> {
    /// First and last key.
    pub(super) keys: Option<(&'a [u8], &'a [u8])>,
    /// Places of blocks that have no cells.
    pub(super) structure: &'a [Place],
}

/// The intact data blocks of a table, and the gaps between them. `detail` describes the damage that was found first.
///
/// # Errors
///
/// Errors of the disk that are no damage.
pub(super) fn blocks(
    file: &TableFile,
    known: &Known<'_>,
    detail: &str,
) -> Result<(Vec<BlockRef>, Vec<Gap>), StoreError> {
    let mut salvaged = Found {
        blocks: Vec::new(),
        gaps: Vec::new(),
        start: known.keys.map_or_else(Vec::new, |(first, _)| first.to_vec()),
        damage: None,
    };
    let mut offset = HEADER_BYTES as u64;
    let mut ended = false;
    while offset < file.bytes {
        match block_at(file, offset)? {
            Some((kind, content, bytes)) => {
                match kind {
                    Kind::Data => salvaged.add(Place { offset, bytes }, content),
                    Kind::SectionIndex => {
                        ended = true;
                        break;
                    }
                    Kind::BlockIndex | Kind::Filter | Kind::Properties => {}
                }
                offset += bytes as u64;
            }
            None => {
                let structure = known.structure.iter().find(|place| place.offset == offset);
                if let Some(place) = structure {
                    // It has no cells.
                    offset += place.bytes as u64;
                    continue;
                }
                salvaged.damaged(offset);
                offset = next_block(file, offset + 1)?;
            }
        }
    }
    if !ended {
        salvaged.damaged(file.bytes.min(offset));
    }
    let stop = known.keys.map_or_else(Vec::new, |(_, last)| next_key(last));
    Ok(salvaged.finish(stop, detail))
}

struct Found {
    blocks: Vec<BlockRef>,
    gaps: Vec<Gap>,
    /// The first key that may follow.
    start: Vec<u8>,
    /// Offset of damage that no intact data block follows yet.
    damage: Option<u64>,
}

impl Found {
    fn damaged(&mut self, offset: u64) {
        self.damage.get_or_insert(offset);
    }

    fn add(&mut self, place: Place, content: Bytes) {
        let entries = Block::decode(content).and_then(|block| block.entries());
        let Ok(entries) = entries else {
            self.damaged(place.offset);
            return;
        };
        let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
            return;
        };
        if let Some(offset) = self.damage.take() {
            self.gaps.push(Gap {
                start: std::mem::take(&mut self.start),
                stop: first.clone(),
                detail: format!("offset {offset}: a block is damaged"),
            });
        }
        self.start = next_key(last);
        self.blocks.push(BlockRef {
            first_key: first.as_slice().into(),
            place,
        });
    }

    fn finish(mut self, stop: Vec<u8>, detail: &str) -> (Vec<BlockRef>, Vec<Gap>) {
        // If all keys of the table were found, the damage behind them has none.
        if self.damage.is_some() && (stop.is_empty() || self.start < stop) {
            self.gaps.push(Gap {
                start: self.start,
                stop,
                detail: detail.to_owned(),
            });
        }
        (self.blocks, self.gaps)
    }
}

/// Reads bytes; unreadable ones are zeros.
fn read(file: &TableFile, buffer: &mut [u8], offset: u64) -> Result<(), StoreError> {
    let failed = |error: &io::Error| io_error(&file.path, error);
    match file.file.read_at(buffer, offset) {
        Ok(()) => return Ok(()),
        Err(error) if is_damage(&error) => {}
        Err(error) => return Err(failed(&error)),
    }
    for (page, bytes) in buffer.chunks_mut(PAGE).enumerate() {
        match file.file.read_at(bytes, offset + (page * PAGE) as u64) {
            Ok(()) => {}
            Err(error) if is_damage(&error) => bytes.fill(0),
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}

/// The block at an offset: its kind, content and length; `None` if it is damaged.
fn block_at(file: &TableFile, offset: u64) -> Result<Option<(Kind, Bytes, usize)>, StoreError> {
    let left = usize::try_from(file.bytes - offset).unwrap_or(usize::MAX);
    let mut header = [0; FRAME_BYTES];
    if left < FRAME_BYTES {
        return Ok(None);
    }
    read(file, &mut header, offset)?;
    let Some(header) = FrameHeader::decode(&header) else {
        return Ok(None);
    };
    let bytes = FRAME_BYTES + header.stored;
    if bytes > left {
        return Ok(None);
    }
    let mut stored = vec![0; bytes];
    read(file, &mut stored, offset)?;
    let content = frame::decode(&stored, header.kind).ok();
    Ok(content.map(|content| (header.kind, content, bytes)))
}

/// The offset of the next intact block from an offset on, or the end of the file.
fn next_block(file: &TableFile, mut offset: u64) -> Result<u64, StoreError> {
    let mut window = vec![0; WINDOW];
    while offset < file.bytes {
        let left = usize::try_from(file.bytes - offset).unwrap_or(usize::MAX);
        let length = left.min(WINDOW);
        let bytes = window.get_mut(..length).unwrap_or_default();
        read(file, bytes, offset)?;
        for (place, magic) in bytes.windows(MAGIC.len()).enumerate() {
            let at = offset + place as u64;
            if magic == MAGIC && block_at(file, at)?.is_some() {
                return Ok(at);
            }
        }
        if length == left {
            break;
        }
        // The magic may lie across the end.
        offset += (length - MAGIC.len() + 1) as u64;
    }
    Ok(file.bytes)
}

/// The successor of a key.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
