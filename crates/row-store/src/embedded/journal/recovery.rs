//! Reads the journal when a store is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::super::folder::{io_error, sync_folder};
use super::super::varint::Reader;
use super::segment::{ALIGN, FRAME_HEADER, FRAME_MAGIC, HEADER, SegmentHeader};
use super::{Frame, Journal, segments};
use crate::StoreError;

/// The result of a recovery.
#[derive(Debug)]
pub(in super::super) struct Recovered {
    pub(in super::super) journal: Journal,
    /// The newest time in the journal.
    pub(in super::super) last_ms: i64,
}

/// Passes the frames of all segments to `apply`, in order, and opens the journal for appending.
///
/// Truncates a torn frame at the end of the last segment.
///
/// # Errors
///
/// [`StoreError::Corrupt`] with file and offset for any other damage, and for a payload that `apply` rejects.
pub(in super::super) fn recover(
    folder: &Path,
    mut apply: impl FnMut(&Frame<'_>) -> Result<(), String>,
) -> Result<Recovered, StoreError> {
    let mut segments = segments(folder)?;
    let next_number = segments.last().map_or(0, |(number, _)| *number) + 1;
    while let Some((_, path)) = segments.last() {
        if !remove_unbegun(folder, path)? {
            break;
        }
        segments.pop();
    }
    let mut next_sequence = None;
    let mut last_ms = i64::MIN;
    let mut ended_bytes = 0;
    for (index, (number, path)) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        let bytes = fs::read(path).map_err(|error| io_error(path, &error))?;
        let corrupt = |offset: usize, detail: String| StoreError::Corrupt {
            place: format!("{} offset {offset}", path.display()),
            detail,
        };
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) if header.number == *number => header,
            Ok(header) => {
                return Err(corrupt(
                    0,
                    format!("it is segment {}, expected {number}", header.number),
                ));
            }
            Err(detail) => return Err(corrupt(0, detail.to_owned())),
        };
        let expected = next_sequence.unwrap_or(header.first_sequence);
        if header.first_sequence != expected {
            let found = header.first_sequence;
            return Err(corrupt(
                0,
                format!("it begins with frame {found}, the one before ended before {expected}"),
            ));
        }
        last_ms = last_ms.max(header.time_ms);

        // Frames from there on were not acknowledged.
        let superseded = match segments.get(index + 1) {
            Some((_, next)) => first_sequence(next)?,
            None => None,
        };
        let mut sequence = header.first_sequence;
        let mut offset = HEADER;
        let end = loop {
            if superseded == Some(sequence) {
                break offset;
            }
            match read_frame(&bytes, offset, *number, sequence) {
                FrameAt::End => break offset,
                FrameAt::Whole { frame, next } => {
                    apply(&frame).map_err(|detail| corrupt(offset, detail))?;
                    last_ms = last_ms.max(frame.time_ms);
                    sequence += 1;
                    offset = next;
                }
                FrameAt::Damaged(detail) => {
                    if !is_last || has_frame_behind(&bytes, offset, sequence) {
                        return Err(corrupt(offset, detail.to_owned()));
                    }
                    let torn = bytes.len() - offset;
                    tracing::warn!(
                        file = %path.display(), offset, bytes = torn, detail,
                        "truncated an interrupted write"
                    );
                    cut(path, offset)?;
                    break offset;
                }
            }
        };
        if is_last {
            // The process may have been killed before it synced the last frame. The frame counts from now on,
            // and later frames must not outlive it.
            rewrite(path, bytes.get(..end).unwrap_or(&bytes))?;
        }
        ended_bytes += end as u64;
        next_sequence = Some(sequence);
    }
    let journal = Journal {
        folder: folder.to_owned(),
        handle: File::open(folder).map_err(|error| io_error(folder, &error))?,
        segment: None,
        prepared: None,
        ended_bytes,
        next_number,
        next_sequence: next_sequence.unwrap_or(1),
        buffer: Vec::new(),
    };
    Ok(Recovered { journal, last_ms })
}

/// Removes the last segment if it never began or its creation was interrupted, so that it has no frames.
fn remove_unbegun(folder: &Path, path: &Path) -> Result<bool, StoreError> {
    let failed = |error| io_error(path, &error);
    let header = read_header(path).map_err(failed)?;
    let Err(detail) = SegmentHeader::decode(&header) else {
        return Ok(false);
    };
    let bytes = fs::read(path).map_err(failed)?;
    if bytes.iter().skip(HEADER).any(|byte| *byte != 0) {
        return Ok(false);
    }
    if !bytes.is_empty() {
        tracing::warn!(file = %path.display(), bytes = bytes.len(), detail, "removed a segment without a header");
    }
    fs::remove_file(path).map_err(failed)?;
    sync_folder(folder)?;
    Ok(true)
}

fn read_header(path: &Path) -> io::Result<Vec<u8>> {
    let mut header = Vec::with_capacity(HEADER);
    File::open(path)?.take(HEADER as u64).read_to_end(&mut header)?;
    Ok(header)
}

/// The first sequence number of a segment, if its header is intact.
fn first_sequence(path: &Path) -> Result<Option<u64>, StoreError> {
    let header = read_header(path).map_err(|error| io_error(path, &error))?;
    Ok(SegmentHeader::decode(&header)
        .ok()
        .map(|header| header.first_sequence))
}

/// The content at an offset where a frame may begin.
enum FrameAt<'a> {
    Whole {
        frame: Frame<'a>,
        next: usize,
    },
    /// Only zeros.
    End,
    Damaged(&'static str),
}

fn read_frame(bytes: &[u8], offset: usize, segment: u64, sequence: u64) -> FrameAt<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.iter().take(FRAME_HEADER).all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 0) {
        return FrameAt::End;
    }
    let Some(header) = frame_header(rest) else {
        return FrameAt::Damaged("a frame's header is damaged");
    };
    if header.sequence != sequence {
        return FrameAt::Damaged("a frame is missing");
    }
    let Some(payload) = rest.get(FRAME_HEADER..FRAME_HEADER + header.length) else {
        return FrameAt::Damaged("a frame is cut off");
    };
    if crc32fast::hash(payload) != header.payload_crc {
        return FrameAt::Damaged("a frame's checksum does not match");
    }
    let next = (offset + FRAME_HEADER + header.length).next_multiple_of(ALIGN);
    FrameAt::Whole {
        frame: Frame {
            segment,
            time_ms: header.time_ms,
            payload,
        },
        next,
    }
}

struct FrameHeader {
    length: usize,
    sequence: u64,
    time_ms: i64,
    payload_crc: u32,
}

fn frame_header(bytes: &[u8]) -> Option<FrameHeader> {
    let mut reader = Reader(bytes);
    let magic = reader.array::<4>()?;
    let header = FrameHeader {
        length: usize::try_from(u32::from_be_bytes(reader.array()?)).ok()?,
        sequence: u64::from_be_bytes(reader.array()?),
        time_ms: i64::from_be_bytes(reader.array()?),
        payload_crc: u32::from_be_bytes(reader.array()?),
    };
    let crc = u32::from_be_bytes(reader.array()?);
    (magic == FRAME_MAGIC && crc32fast::hash(bytes.get(..FRAME_HEADER - 4)?) == crc).then_some(header)
}

/// Whether a frame with a later number follows a damaged one. Its header suffices: it was written only after
/// the damaged frame was durable.
fn has_frame_behind(bytes: &[u8], damaged: usize, sequence: u64) -> bool {
    (damaged + ALIGN..bytes.len()).step_by(ALIGN).any(|offset| {
        let rest = &bytes[offset..];
        rest.starts_with(&FRAME_MAGIC) && frame_header(rest).is_some_and(|header| header.sequence > sequence)
    })
}

/// Makes durable what was read of a segment.
///
/// A sync alone does not suffice: after a failed sync the kernel keeps the pages but considers them clean, so
/// recovery may read a frame that is not on disk and that a sync does not write. Rewriting the bytes marks
/// their pages dirty.
fn rewrite(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| {
            file.write_all_at(bytes, 0)?;
            file.sync_all()
        })
        .map_err(|error| io_error(path, &error))
}

/// Truncates a segment to its complete frames.
fn cut(path: &Path, length: usize) -> Result<(), StoreError> {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|error| io_error(path, &error))?;
    file.set_len(length as u64)
        .map_err(|error| io_error(path, &error))
}

#[cfg(test)]
mod tests;
