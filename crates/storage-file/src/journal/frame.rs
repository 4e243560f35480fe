//! Headers of segments and frames; drawn in [`super`].

use crate::StorageError;
use crate::varint::Reader;

const VERSION: u32 = 1;
/// Bytes of a segment's header.
pub(super) const SEGMENT_HEADER: usize = 32;

pub(super) const FRAME_MAGIC: [u8; 4] = *b"oxpf";
/// Bytes of a frame's header.
pub(super) const FRAME_HEADER: usize = 32;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u64,
    pub(super) first_sequence: u64,
}

impl SegmentHeader {
    pub(super) fn encode(self, magic: [u8; 8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER);
        bytes.extend_from_slice(&magic);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.first_sequence.to_be_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// Decodes the header of a segment; the error is the reason why it is invalid.
    pub(super) fn decode(bytes: &[u8], magic: [u8; 8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        let mut read = || {
            let stored_magic = reader.array::<8>()?;
            let version = u32::from_be_bytes(reader.array()?);
            let header = Self {
                number: u64::from_be_bytes(reader.array()?),
                first_sequence: u64::from_be_bytes(reader.array()?),
            };
            Some((stored_magic, version, header, u32::from_be_bytes(reader.array()?)))
        };
        let (stored_magic, version, header, crc) = read().ok_or("the header is cut off")?;
        if stored_magic != magic {
            return Err("it is no segment of the journal");
        }
        if crc32fast::hash(&bytes[..SEGMENT_HEADER - 4]) != crc {
            return Err("the header's checksum does not match");
        }
        if version != VERSION {
            return Err("the version of the segment is unknown");
        }
        Ok(header)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) sequence: u64,
    /// The first frame that was not durable when this one was written.
    pub(super) unsynced: u64,
    pub(super) content_crc: u32,
}

impl FrameHeader {
    /// The header at the beginning of `bytes`, if its checksum matches.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(&FRAME_MAGIC)?);
        let header = Self {
            length: usize::try_from(u32::from_be_bytes(reader.array()?)).ok()?,
            sequence: u64::from_be_bytes(reader.array()?),
            unsynced: u64::from_be_bytes(reader.array()?),
            content_crc: u32::from_be_bytes(reader.array()?),
        };
        let crc = u32::from_be_bytes(reader.array()?);
        (crc32fast::hash(&bytes[..FRAME_HEADER - 4]) == crc).then_some(header)
    }
}

/// Encodes a frame into `buffer`, replacing its content. `content` appends the frame's content.
///
/// # Errors
///
/// [`StorageError::Invalid`] if it is too large.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    sequence: u64,
    unsynced: u64,
    content: impl FnOnce(&mut Vec<u8>),
) -> Result<(), StorageError> {
    buffer.clear();
    buffer.resize(FRAME_HEADER, 0);
    content(buffer);
    let content = &buffer[FRAME_HEADER..];
    let length = u32::try_from(content.len()).map_err(|_| {
        StorageError::Invalid(format!(
            "{} bytes in one commit, the limit is {}",
            content.len(),
            u32::MAX
        ))
    })?;
    let mut header = Vec::with_capacity(FRAME_HEADER);
    header.extend_from_slice(&FRAME_MAGIC);
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&sequence.to_be_bytes());
    header.extend_from_slice(&unsynced.to_be_bytes());
    header.extend_from_slice(&crc32fast::hash(content).to_be_bytes());
    header.extend_from_slice(&crc32fast::hash(&header).to_be_bytes());
    buffer[..FRAME_HEADER].copy_from_slice(&header);
    Ok(())
}

/// The content at an offset of a segment.
pub(super) enum FrameAt<'a> {
    Whole {
        content: &'a [u8],
        next: usize,
        /// The first frame that was not durable when this one was written.
        unsynced: u64,
    },
    /// Nothing, or only zeros.
    End,
    Damaged(&'static str),
}

pub(super) fn frame_at(bytes: &[u8], offset: usize, sequence: u64) -> FrameAt<'_> {
    let rest = &bytes[offset..];
    let Some(header) = FrameHeader::decode(rest) else {
        if rest.iter().all(|byte| *byte == 0) {
            return FrameAt::End;
        }
        return FrameAt::Damaged("a frame's header is damaged");
    };
    if header.sequence != sequence {
        return FrameAt::Damaged("a frame is missing");
    }
    let Some(content) = rest[FRAME_HEADER..].get(..header.length) else {
        return FrameAt::Damaged("a frame is cut off");
    };
    if crc32fast::hash(content) != header.content_crc {
        return FrameAt::Damaged("a frame's checksum does not match");
    }
    FrameAt::Whole {
        content,
        next: offset + FRAME_HEADER + header.length,
        unsynced: header.unsynced,
    }
}

/// Whether a frame behind `offset` was written after the frame `sequence` was durable. Its header suffices.
pub(super) fn was_durable(bytes: &[u8], offset: usize, sequence: u64) -> bool {
    let rest = &bytes[offset..];
    let mut places = rest.windows(FRAME_MAGIC.len()).enumerate();
    places.any(|(place, magic)| {
        magic == FRAME_MAGIC
            && FrameHeader::decode(&rest[place..]).is_some_and(|header| header.unsynced > sequence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of version 1, which every later version reads or rejects by its number.
    #[test]
    fn headers_and_frames_have_the_documented_bytes() {
        let header = SegmentHeader {
            number: 3,
            first_sequence: 258,
        };
        let golden = b"oxtsdbpj\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02\xA6\x28\x36\xA3";
        assert_eq!(header.encode(*b"oxtsdbpj"), golden);
        assert_eq!(SegmentHeader::decode(golden, *b"oxtsdbpj"), Ok(header));

        let content = b"\x02\x02\x02ab\x02\x02cd\x01\x01\x03\x70\x04\x0a";
        let mut frame = Vec::new();
        encode(&mut frame, 258, 257, |frame| frame.extend_from_slice(content)).unwrap();
        let mut golden =
            b"oxpf\0\0\0\x0f\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x01\x01\x7A\x77\xEA\xAA\x51\xFB\x73\x00"
                .to_vec();
        golden.extend_from_slice(content);
        assert_eq!(frame, golden);
    }
}
