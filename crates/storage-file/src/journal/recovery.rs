//! Reads the journal when a store is opened.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{JournalFiles, SegmentFile, list_path, read_list, segment_path};
use super::frame::{self, FRAME_MAGIC, FrameAt, FrameHeader, SEGMENT_HEADER, SegmentHeader};
use super::{Journal, JournalOptions, SEGMENT_BYTES, Undurable};
use crate::StorageError;
use crate::disk::Disk;
use crate::folder::{create_dir_durably, read_all};

/// Error of a frame's content that cannot be applied.
#[derive(Debug)]
pub enum Rejected<E> {
    /// The store does not write such content.
    Content(&'static str),
    /// The store failed.
    Store(E),
}

/// The result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Frames that were applied.
    pub frames: u64,
    /// Bytes of an interrupted write that were cut off.
    pub cut_bytes: u64,
    /// Acknowledged frames that are lost, if [`JournalOptions::accept_losses`] is set.
    pub losses: Vec<StorageError>,
}

/// Applies the content of a frame, given its sequence number.
pub type Apply<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), Rejected<E>> + 'a;

/// A segment in the folder or in the list.
struct Segment {
    number: u64,
    path: PathBuf,
    /// The first sequence number that the list has.
    listed: Option<u64>,
    state: State,
}

enum State {
    Present(SegmentHeader),
    Damaged(&'static str),
    Absent,
}

impl Segment {
    fn first_sequence(&self) -> Option<u64> {
        match self.state {
            State::Present(header) => Some(header.first_sequence),
            State::Damaged(_) | State::Absent => self.listed,
        }
    }
}

struct Recovery<'a> {
    options: JournalOptions,
    folder: &'a Path,
    recovered: Recovered,
    /// The next sequence number, unless no segment was read yet.
    next_sequence: Option<u64>,
    /// Frames up to this sequence number are not applied.
    cut: u64,
    /// Whether there is a list of segments.
    is_listed: bool,
}

pub(super) fn recover<E: From<StorageError>>(
    disk: Arc<dyn Disk>,
    folder: &Path,
    options: JournalOptions,
    apply: &mut Apply<'_, E>,
) -> Result<(Journal, Recovered), E> {
    create_dir_durably(&*disk, folder).map_err(|error| StorageError::io(folder.display(), &error))?;
    let mut recovery = Recovery {
        options,
        folder,
        recovered: Recovered::default(),
        next_sequence: None,
        cut: 0,
        is_listed: true,
    };
    let (segments, next_number) = recovery.segments(&*disk)?;
    if !recovery.is_listed && !options.has_list && options.cut.is_none() {
        // A version without a list removed the frames before the first segment, because other files had them.
        let first = segments.iter().find_map(Segment::first_sequence);
        recovery.cut = first.map_or(0, |first| first.saturating_sub(1));
    }
    let mut files = BTreeMap::new();
    let mut last = None;
    for (index, segment) in segments.iter().enumerate() {
        let next = segments.get(index + 1);
        let superseded = next.and_then(Segment::first_sequence);
        let read = recovery.segment(&*disk, segment, superseded, next.is_none(), apply)?;
        let file = SegmentFile {
            first_sequence: segment.first_sequence().unwrap_or(1),
            bytes: read.as_ref().map_or(0, |read| read.bytes),
        };
        files.insert(segment.number, file);
        last = read.map(|read| (segment.number, read));
    }
    let cut = recovery.cut;
    let end = recovery.next_sequence.unwrap_or(cut + 1);
    if end <= cut {
        let detail = format!(
            "the journal ends before commit {end}, and other files of the store have those up to {cut}"
        );
        recovery.lost(StorageError::damaged(folder, detail))?;
    }
    let next_sequence = end.max(cut + 1);
    let recovered = recovery.recovered;
    let undurable = last.and_then(|(number, read)| {
        let (sequence, start) = read.undurable?;
        Some(Undurable::Recovered {
            number,
            sequence,
            start,
            end: read.end,
        })
    });
    let is_listed = recovery.is_listed;
    let journal = Journal {
        magic: options.magic,
        bytes: files.values().map(|file| file.bytes).sum(),
        files: Arc::new(JournalFiles::new(
            disk,
            folder.to_owned(),
            files,
            cut,
            next_sequence - 1,
        )),
        segment: None,
        segment_bytes: SEGMENT_BYTES,
        next_number,
        next_sequence,
        unsynced: next_sequence,
        undurable,
        buffer: Vec::new(),
    };
    if !is_listed {
        journal.files.write_listed()?;
    }
    Ok((journal, recovered))
}

/// The result of reading a segment.
struct Read {
    /// Bytes of the file.
    bytes: u64,
    /// Bytes up to the end of its frames.
    end: u64,
    /// Sequence number and place of the first frame that no later one calls durable.
    undurable: Option<(u64, u64)>,
}

impl Recovery<'_> {
    /// Reports a loss: an error, unless losses are accepted.
    fn lost(&mut self, error: StorageError) -> Result<(), StorageError> {
        if !self.options.accept_losses {
            return Err(error);
        }
        tracing::error!(%error, "acknowledged commits of the journal are lost");
        self.recovered.losses.push(error);
        Ok(())
    }

    /// The segments that count, ascending, and the next number. Removes what an interrupted creation, replacement or
    /// removal left.
    fn segments(&mut self, disk: &dyn Disk) -> Result<(Vec<Segment>, u64), StorageError> {
        let folder = self.folder;
        let failed = |error| StorageError::io(folder.display(), &error);
        let list = match read_list(disk, folder) {
            Err(error @ StorageError::Damaged { .. }) => {
                self.lost(error)?;
                None
            }
            list => list?,
        };
        if list.is_none() && self.options.has_list && self.recovered.losses.is_empty() {
            self.lost(StorageError::damaged(&list_path(folder), "the file is missing"))?;
        }
        self.is_listed = list.is_some();
        let list = list.unwrap_or_default();
        self.cut = self.options.cut.unwrap_or(0).max(list.cut);
        if let Some(cut) = self.options.cut.filter(|cut| *cut < list.cut) {
            let detail = format!(
                "commits {} to {} were moved to other files, and are not there",
                cut + 1,
                list.cut
            );
            self.lost(StorageError::damaged(folder, detail))?;
        }
        let mut segments: BTreeMap<u64, Segment> = BTreeMap::new();
        for (number, first_sequence) in &list.segments {
            let segment = Segment {
                number: *number,
                path: segment_path(folder, *number),
                listed: Some(*first_sequence),
                state: State::Absent,
            };
            segments.insert(*number, segment);
        }
        let mut names = disk.list(folder).map_err(failed)?;
        names.sort();
        let mut next_number = segments.keys().next_back().map_or(1, |last| last + 1);
        let mut removed = false;
        for entry in names {
            let path = folder.join(&entry.name);
            if entry.name.ends_with(".tmp") {
                disk.remove(&path).map_err(failed)?;
                continue;
            }
            let number = entry.name.strip_suffix(".journal");
            let Some(number) = number.and_then(|name| name.parse::<u64>().ok()) else {
                continue;
            };
            next_number = next_number.max(number.saturating_add(1));
            let listed = segments.get(&number).and_then(|segment| segment.listed);
            let state = self.read_header(disk, &path, number)?;
            let keep = listed.is_some()
                || match &state {
                    // Its creation was interrupted, or its removal.
                    _ if entry.len <= SEGMENT_HEADER as u64 => false,
                    _ if list.segments.iter().any(|(listed, _)| number < *listed) => false,
                    State::Present(header) => header.first_sequence > self.cut,
                    State::Damaged(_) | State::Absent => !is_blank(disk, &path)?,
                };
            if keep {
                let segment = Segment {
                    number,
                    path,
                    listed,
                    state,
                };
                segments.insert(number, segment);
            } else {
                tracing::info!(file = %path.display(), "removed a segment of the journal that has no commits");
                disk.remove(&path).map_err(failed)?;
                removed = true;
            }
        }
        if removed {
            disk.sync_dir(folder).map_err(failed)?;
        }
        Ok((segments.into_values().collect(), next_number))
    }

    fn read_header(&self, disk: &dyn Disk, path: &Path, number: u64) -> Result<State, StorageError> {
        let failed = |error| StorageError::io(path.display(), &error);
        let file = disk.open(path).map_err(failed)?;
        let mut header = [0; SEGMENT_HEADER];
        match file.read_at(&mut header, 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(State::Damaged("the header is cut off"));
            }
            read => read.map_err(failed)?,
        }
        Ok(match SegmentHeader::decode(&header, self.options.magic) {
            Ok(header) if header.number == number => State::Present(header),
            Ok(_) => State::Damaged("it is another segment"),
            Err(detail) => State::Damaged(detail),
        })
    }

    /// Applies the frames of a segment before sequence number `superseded`; `None` if it is lost.
    fn segment<E: From<StorageError>>(
        &mut self,
        disk: &dyn Disk,
        segment: &Segment,
        superseded: Option<u64>,
        is_last: bool,
        apply: &mut Apply<'_, E>,
    ) -> Result<Option<Read>, E> {
        let is_needed = superseded.is_none_or(|next| next > self.cut + 1);
        let header = match segment.state {
            State::Present(header) => header,
            State::Absent | State::Damaged(_) if !is_needed => return Ok(None),
            State::Absent => {
                self.lost(StorageError::damaged(&segment.path, "the file is missing"))?;
                return Ok(None);
            }
            State::Damaged(detail) => {
                self.lost(StorageError::damaged(
                    &segment.path,
                    format!("offset 0: {detail}"),
                ))?;
                return Ok(None);
            }
        };
        let first = header.first_sequence;
        let expected = self.next_sequence.unwrap_or(self.cut + 1);
        let is_gap = match self.next_sequence {
            Some(expected) => first != expected,
            None => first > expected,
        };
        if is_gap && first > self.cut + 1 {
            let detail = format!("it begins with commit {first}, the one before ends before {expected}");
            self.lost(StorageError::damaged(&segment.path, detail))?;
        }
        let bytes = read_all(disk, &segment.path, u64::MAX)
            .map_err(|error| StorageError::io(segment.path.display(), &error))?;
        let mut read = Read {
            bytes: bytes.len() as u64,
            end: 0,
            undurable: None,
        };
        let mut sequence = first;
        let mut offset = SEGMENT_HEADER;
        let mut places = Vec::new();
        while superseded != Some(sequence) {
            match frame::frame_at(&bytes, offset, sequence) {
                FrameAt::End => break,
                FrameAt::Whole {
                    content,
                    next,
                    unsynced,
                } => {
                    if sequence > self.cut {
                        match apply(sequence, content) {
                            Ok(()) => self.recovered.frames += 1,
                            Err(Rejected::Store(error)) => return Err(error),
                            Err(Rejected::Content(detail)) => {
                                let detail = format!("offset {offset}: {detail}");
                                self.lost(StorageError::damaged(&segment.path, detail))?;
                            }
                        }
                    }
                    places.push((sequence, offset as u64));
                    places.retain(|(sequence, _)| *sequence >= unsynced);
                    read.undurable = places.first().copied();
                    sequence = sequence.saturating_add(1);
                    offset = next;
                }
                FrameAt::Damaged(detail) => {
                    if is_last && !frame::was_durable(&bytes, offset, sequence) {
                        self.recovered.cut_bytes = (bytes.len() - offset) as u64;
                        tracing::warn!(
                            file = %segment.path.display(), offset, bytes = self.recovered.cut_bytes, detail,
                            "cut off an interrupted write to the journal"
                        );
                        break;
                    }
                    let error = StorageError::damaged(&segment.path, format!("offset {offset}: {detail}"));
                    if sequence > self.cut {
                        self.lost(error)?;
                    }
                    let Some((next, header)) = next_frame(&bytes, offset + 1, sequence) else {
                        break;
                    };
                    (offset, sequence) = (next, header.sequence);
                }
            }
        }
        read.end = offset as u64;
        self.next_sequence = Some(sequence);
        Ok(Some(read))
    }
}

/// The place and header of the first frame from `offset` on that follows a sequence number.
fn next_frame(bytes: &[u8], offset: usize, sequence: u64) -> Option<(usize, FrameHeader)> {
    let rest = bytes.get(offset..)?;
    let mut places = rest.windows(FRAME_MAGIC.len()).enumerate();
    places.find_map(|(place, magic)| {
        if magic != FRAME_MAGIC {
            return None;
        }
        let header = FrameHeader::decode(&rest[place..])?;
        (header.sequence > sequence).then_some((offset + place, header))
    })
}

/// Whether a segment with an invalid header has nothing but zeros behind it: its creation was interrupted.
fn is_blank(disk: &dyn Disk, path: &Path) -> Result<bool, StorageError> {
    let bytes = read_all(disk, path, u64::MAX).map_err(|error| StorageError::io(path.display(), &error))?;
    let frames = bytes.get(SEGMENT_HEADER..).unwrap_or_default();
    Ok(frames.iter().all(|byte| *byte == 0))
}
