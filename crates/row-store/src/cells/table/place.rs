//! Places of blocks in a table file.

use oxtsdb_storage_file::varint::Reader;

/// The place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

impl Place {
    /// Decodes a place in an index; `None` for other bytes.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            offset: reader.number()?,
            bytes: reader.length()?,
        })
    }
}

/// The place of a data block, and its first key.
#[derive(Clone, Debug)]
pub(super) struct BlockRef {
    pub(super) first_key: Box<[u8]>,
    pub(super) place: Place,
}

impl BlockRef {
    pub(super) fn byte_len(&self) -> usize {
        size_of::<Self>() + self.first_key.len()
    }
}
