//! Headers of segments and frames, and the content of a frame; drawn in [`super`].

use super::super::varint::{self, Reader};
use super::batch::{self, EncodedBatch};
use super::recovery::Replayed;
use crate::{PointBatch, PointStoreError, SeriesNumber};

const SEGMENT_MAGIC: [u8; 8] = *b"oxtsdbpj";
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
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER);
        bytes.extend_from_slice(&SEGMENT_MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.first_sequence.to_be_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// Decodes the header of a segment; the error describes what is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        let mut read = || {
            let magic = reader.array::<8>()?;
            let version = u32::from_be_bytes(reader.array()?);
            let header = Self {
                number: u64::from_be_bytes(reader.array()?),
                first_sequence: u64::from_be_bytes(reader.array()?),
            };
            Some((magic, version, header, u32::from_be_bytes(reader.array()?)))
        };
        let (magic, version, header, crc) = read().ok_or("the header is cut off")?;
        if magic != SEGMENT_MAGIC {
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

/// Encodes a frame into `buffer`, replacing its content.
///
/// # Errors
///
/// [`PointStoreError::Invalid`] if it is too large.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    sequence: u64,
    unsynced: u64,
    new_series: &[(SeriesNumber, impl AsRef<[u8]>)],
    batches: &[EncodedBatch],
) -> Result<(), PointStoreError> {
    buffer.clear();
    buffer.resize(FRAME_HEADER, 0);
    varint::put(buffer, new_series.len() as u64);
    let mut previous = 0;
    for (number, key) in new_series {
        let (number, key) = (i64::from(number.0), key.as_ref());
        varint::put(buffer, varint::zigzag(number - previous));
        varint::put(buffer, key.len() as u64);
        buffer.extend_from_slice(key);
        previous = number;
    }
    varint::put(buffer, batches.len() as u64);
    for batch in batches {
        varint::put(buffer, batch.points as u64);
        varint::put(buffer, batch.bytes.len() as u64);
        buffer.extend_from_slice(&batch.bytes);
    }
    let content = &buffer[FRAME_HEADER..];
    let length = u32::try_from(content.len()).map_err(|_| {
        PointStoreError::Invalid(format!(
            "{} bytes of points, the limit is {}",
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

/// Why a frame could not be replayed.
#[derive(Debug)]
pub(super) enum Rejected {
    /// The content is not what [`encode`] writes.
    Content(&'static str),
    /// `apply` failed.
    Apply(PointStoreError),
}

/// Passes the content of a frame to `apply` and returns its number of points. `scratch` is the memory of a batch.
pub(super) fn replay(
    content: &[u8],
    scratch: &mut PointBatch,
    apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), PointStoreError>,
) -> Result<u64, Rejected> {
    const CUT: Rejected = Rejected::Content("a frame's content ends too early");
    let mut reader = Reader(content);
    let mut previous = 0_i64;
    for _ in 0..reader.number().ok_or(CUT)? {
        let difference = reader.signed().ok_or(CUT)?;
        let key = reader
            .length()
            .and_then(|length| reader.bytes(length))
            .ok_or(CUT)?;
        previous = previous.wrapping_add(difference);
        let number =
            u32::try_from(previous).map_err(|_| Rejected::Content("a series' number is too large"))?;
        apply(Replayed::Series(SeriesNumber(number), key)).map_err(Rejected::Apply)?;
    }
    let mut points = 0;
    for _ in 0..reader.number().ok_or(CUT)? {
        let count = reader.length().ok_or(CUT)?;
        let bytes = reader
            .length()
            .and_then(|length| reader.bytes(length))
            .ok_or(CUT)?;
        scratch.clear();
        batch::decode(count, bytes, scratch).ok_or(Rejected::Content("a batch of points is invalid"))?;
        apply(Replayed::Points(scratch)).map_err(Rejected::Apply)?;
        points += count as u64;
    }
    if !reader.0.is_empty() {
        return Err(Rejected::Content("bytes follow a frame's content"));
    }
    Ok(points)
}

/// What is at an offset of a segment.
pub(super) enum FrameAt<'a> {
    Whole {
        content: &'a [u8],
        next: usize,
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
    use crate::{Point, PointKind};

    /// Bytes of version 1, which every later version reads or rejects by its number.
    #[test]
    fn headers_and_frames_have_the_documented_bytes() {
        let header = SegmentHeader {
            number: 3,
            first_sequence: 258,
        };
        let golden = b"oxtsdbpj\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\x01\x02\xA6\x28\x36\xA3";
        assert_eq!(header.encode(), golden);
        assert_eq!(SegmentHeader::decode(golden), Ok(header));

        let mut batch = PointBatch::default();
        let point = Point {
            time_ms: 2_000,
            kind: PointKind::from_byte(0).unwrap(),
            bits: 5,
        };
        batch.push(SeriesNumber(1), point);
        let mut frame = Vec::new();
        let series = [(SeriesNumber(1), b"ab"), (SeriesNumber(2), b"cd")];
        encode(&mut frame, 258, 257, &series, &[EncodedBatch::of(&batch)]).unwrap();
        let mut golden =
            b"oxpf\0\0\0\x0f\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x01\x01\x7A\x77\xEA\xAA\x51\xFB\x73\x00"
                .to_vec();
        golden.extend_from_slice(b"\x02\x02\x02ab\x02\x02cd\x01\x01\x03\x70\x04\x0a");
        assert_eq!(frame, golden);
    }
}
