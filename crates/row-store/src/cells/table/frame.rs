//! The frame of a block: kind, lengths, checksum, compression; drawn in [`super`].

use bytes::Bytes;
use oxtsdb_storage_file::varint::Reader;

pub(super) const MAGIC: [u8; 4] = *b"oxcb";
/// Bytes before the stored bytes.
pub(super) const FRAME_BYTES: usize = 17;
/// A longer block is damaged: its largest entry is a row key, a qualifier and the versions of a cell.
const MAX_LENGTH: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Data = 1,
    BlockIndex = 2,
    Filter = 3,
    SectionIndex = 4,
    Properties = 5,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Data,
            Self::BlockIndex,
            Self::Filter,
            Self::SectionIndex,
            Self::Properties,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// Appends a block.
pub(super) fn encode(out: &mut Vec<u8>, kind: Kind, content: &[u8]) {
    let compressed = lz4_flex::block::compress(content);
    // A filter has no redundancy.
    let stored = if compressed.len() < content.len() {
        &compressed
    } else {
        content
    };
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.push(kind as u8);
    out.extend_from_slice(&length(content));
    out.extend_from_slice(&length(stored));
    let mut crc = crc32fast::Hasher::new();
    crc.update(out.get(start..).unwrap_or_default());
    crc.update(stored);
    out.extend_from_slice(&crc.finalize().to_be_bytes());
    out.extend_from_slice(stored);
}

/// The header of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHeader {
    pub(super) kind: Kind,
    length: usize,
    pub(super) stored: usize,
}

impl FrameHeader {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(&MAGIC)?);
        let kind = Kind::from_byte(reader.byte()?)?;
        let mut length = || usize::try_from(u32::from_be_bytes(reader.array()?)).ok();
        let (length, stored) = (length()?, length()?);
        (stored <= length && length <= MAX_LENGTH).then_some(Self { kind, length, stored })
    }
}

/// The content of a block of a kind; the error describes the damage.
pub(super) fn decode(bytes: &[u8], kind: Kind) -> Result<Bytes, &'static str> {
    let header = FrameHeader::decode(bytes).ok_or("the header of a block is damaged")?;
    if header.kind != kind {
        return Err("a block has another kind");
    }
    let stored = bytes
        .get(FRAME_BYTES..)
        .filter(|stored| stored.len() == header.stored);
    let stored = stored.ok_or("a block is cut off")?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(bytes.get(..FRAME_BYTES - 4).unwrap_or_default());
    crc.update(stored);
    let expected = bytes.get(FRAME_BYTES - 4..).and_then(<[u8]>::first_chunk);
    if expected.copied().map(u32::from_be_bytes) != Some(crc.finalize()) {
        return Err("the checksum of a block does not match");
    }
    if header.stored == header.length {
        return Ok(Bytes::copy_from_slice(stored));
    }
    let content = lz4_flex::block::decompress(stored, header.length);
    content
        .ok()
        .filter(|content| content.len() == header.length)
        .map(Bytes::from)
        .ok_or("a block cannot be decompressed")
}
