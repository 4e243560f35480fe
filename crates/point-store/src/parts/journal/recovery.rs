//! Reads the journal when a store is opened.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::disk::Disk;
use super::super::folder::{create_dir_durably, read_all};
use super::files::JournalFiles;
use super::frame::{self, FrameAt, Rejected, SEGMENT_HEADER, SegmentHeader};
use super::{Journal, SEGMENT_BYTES};
use crate::{PointBatch, PointStoreError, SeriesNumber};

/// What a frame has, in its order.
#[derive(Debug)]
pub enum Replayed<'a> {
    /// A series that later points use, with its key.
    Series(SeriesNumber, &'a [u8]),
    /// Points.
    Points(&'a PointBatch),
}

/// What was recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Frames.
    pub frames: u64,
    /// Points in the frames.
    pub points: u64,
    /// Bytes of an interrupted write that were cut off.
    pub cut_bytes: u64,
}

/// A segment that has begun.
struct Found {
    path: PathBuf,
    number: u64,
    header: Result<SegmentHeader, &'static str>,
}

pub(super) fn recover(
    disk: Arc<dyn Disk>,
    folder: &Path,
    apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), PointStoreError>,
) -> Result<(Journal, Recovered), PointStoreError> {
    create_dir_durably(&*disk, folder).map_err(|error| io_error(folder, &error))?;
    let (segments, next_number) = segments(&*disk, folder)?;
    let mut recovered = Recovered::default();
    let mut lengths = BTreeMap::new();
    let mut last = None;
    let mut next_sequence = None;
    let mut scratch = PointBatch::default();
    for (index, found) in segments.iter().enumerate() {
        let damaged = |offset: usize, detail: &str| PointStoreError::Damaged {
            path: found.path.clone(),
            detail: format!("offset {offset}: {detail}"),
        };
        let header = found.header.map_err(|detail| damaged(0, detail))?;
        if header.number != found.number {
            return Err(damaged(0, &format!("it is segment {}", header.number)));
        }
        let mut sequence = next_sequence.unwrap_or(header.first_sequence);
        if header.first_sequence != sequence {
            let first = header.first_sequence;
            let detail = format!("it begins with frame {first}, the one before ends before {sequence}");
            return Err(damaged(0, &detail));
        }
        // Frames from there on were not acknowledged.
        let next = segments.get(index + 1);
        let superseded = next.and_then(|next| Some(next.header.ok()?.first_sequence));
        let bytes = read_all(&*disk, &found.path, u64::MAX).map_err(|error| io_error(&found.path, &error))?;
        let mut offset = SEGMENT_HEADER;
        while superseded != Some(sequence) {
            match frame::frame_at(&bytes, offset, sequence) {
                FrameAt::End => break,
                FrameAt::Whole { content, next } => {
                    recovered.points +=
                        frame::replay(content, &mut scratch, apply).map_err(|rejected| match rejected {
                            Rejected::Content(detail) => damaged(offset, detail),
                            Rejected::Apply(error) => error,
                        })?;
                    recovered.frames += 1;
                    sequence = sequence.saturating_add(1);
                    offset = next;
                }
                FrameAt::Damaged(detail) => {
                    if next.is_some() || frame::was_durable(&bytes, offset, sequence) {
                        return Err(damaged(offset, detail));
                    }
                    recovered.cut_bytes = (bytes.len() - offset) as u64;
                    tracing::warn!(
                        file = %found.path.display(), offset, bytes = recovered.cut_bytes, detail,
                        "cut off an interrupted write to the journal"
                    );
                    break;
                }
            }
        }
        lengths.insert(found.number, bytes.len() as u64);
        last = Some((found.number, offset));
        next_sequence = Some(sequence);
    }
    let next_sequence = next_sequence.unwrap_or(1);
    let journal = Journal {
        bytes: lengths.values().sum(),
        files: Arc::new(JournalFiles::new(disk, folder.to_owned(), lengths)),
        segment: None,
        segment_bytes: SEGMENT_BYTES,
        next_number,
        next_sequence,
        unsynced: next_sequence,
        recovered: last,
        buffer: Vec::new(),
    };
    Ok((journal, recovered))
}

/// The segments, ascending, and the next number. Removes what an interrupted creation or replacement left.
fn segments(disk: &dyn Disk, folder: &Path) -> Result<(Vec<Found>, u64), PointStoreError> {
    let failed = |error: io::Error| io_error(folder, &error);
    let mut names: Vec<_> = disk.list(folder).map_err(failed)?;
    names.sort();
    let mut segments = Vec::new();
    let mut next_number = 1;
    for entry in names {
        let path = folder.join(&entry.name);
        if entry.name.ends_with(".journal.tmp") {
            disk.remove(&path).map_err(failed)?;
            continue;
        }
        let Some(number) = entry
            .name
            .strip_suffix(".journal")
            .and_then(|name| name.parse::<u64>().ok())
        else {
            continue;
        };
        next_number = next_number.max(number.saturating_add(1));
        let header = read_header(disk, &path).map_err(|error| io_error(&path, &error))?;
        match header {
            Some(header) => segments.push(Found { path, number, header }),
            None => disk.remove(&path).map_err(failed)?,
        }
    }
    segments.sort_by_key(|found| found.number);
    disk.sync_dir(folder).map_err(failed)?;
    Ok((segments, next_number))
}

/// The header of a segment; `None` if it has no frames, because its creation was interrupted.
fn read_header(disk: &dyn Disk, path: &Path) -> io::Result<Option<Result<SegmentHeader, &'static str>>> {
    let file = disk.open(path)?;
    let mut header = [0; SEGMENT_HEADER];
    match file.read_at(&mut header, 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let header = SegmentHeader::decode(&header);
    if header.is_err() {
        let bytes = read_all(disk, path, u64::MAX)?;
        if bytes[SEGMENT_HEADER..].iter().all(|byte| *byte == 0) {
            tracing::warn!(file = %path.display(), bytes = bytes.len(), "removed a segment of the journal without a header");
            return Ok(None);
        }
    }
    Ok(Some(header))
}

fn io_error(path: &Path, error: &io::Error) -> PointStoreError {
    PointStoreError::io(path.display(), error)
}
