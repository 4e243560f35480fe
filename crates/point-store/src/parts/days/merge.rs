//! Merges: which one is next, running it, and its commit.
//!
//! A job reads its parts and tombstones as they were when it was chosen and writes a part with sequences that contain
//! theirs: up to the last tombstone before the next part, so that tombstones which were applied do not apply again. The
//! rename of the result is the commit; then the manifest is replaced and its sources are removed. A job that fails, is
//! stopped, or finds one of its parts gone (dropped or set aside) leaves everything as it was.

use std::ops::Range;
use std::sync::Arc;

use super::combine::{BlockSink, BlockSource, Combine};
use super::day::{DayList, DayPart, OwnedFile};
use super::name::{DayNumber, Sequences};
use super::pace::Pacer;
use super::policy::Candidate;
use super::{Days, NewPart};
use crate::parts::part::{
    BLOCK_POINTS, BlockHead, Blocks, Columns, Decoder, MetricSet, Part, PartWriter, RawBlock,
};
use crate::parts::series::SeriesKey;
use crate::{PointStoreError, TimeRange};

/// After its first failure a day is left alone for this long, twice as long after the next one, and so on.
const FIRST_BACKOFF_MS: u64 = 1000;
const MAX_BACKOFF_MS: u64 = 5 * 60 * 1000;
/// Bytes between two calls of the pacer, about.
const PACE_BYTES: u64 = 256 << 10;

/// State of the merges of a day.
#[derive(Debug, Default)]
pub(super) struct DayMerges {
    /// The parts that are being merged.
    busy: Vec<Sequences>,
    /// When points were last added or deleted; `None`: since the last choice.
    changed_ms: Option<i64>,
    /// Failures since the last success.
    failures: u32,
    /// When the last merge failed; `None`: since the last choice.
    failed_ms: Option<i64>,
}

/// Parts to merge. Dropping it gives them up.
#[derive(Debug)]
pub struct MergeJob {
    days: Days,
    list: Arc<DayList>,
    range: Range<usize>,
}

/// How a merge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Its parts are replaced by one.
    Done {
        /// Bytes of the parts.
        read: u64,
        /// Bytes of the part that replaces them.
        written: u64,
    },
    /// The pacer stopped it, or one of its parts is gone.
    Cancelled,
}

impl DayMerges {
    /// Notes that points were added or deleted.
    pub(super) const fn set_changed(&mut self) {
        self.changed_ms = None;
    }

    const fn set_failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.failed_ms = None;
    }

    /// Whether a day was left alone long enough after a failure, and whether it has been unchanged for `settled_ms`.
    fn look(&mut self, now_ms: i64, settled_ms: u64) -> (bool, bool) {
        // A clock that is set back counts like one that goes on.
        let since = |instant: &mut Option<i64>| now_ms.abs_diff(*instant.get_or_insert(now_ms));
        let backoff = FIRST_BACKOFF_MS << self.failures.saturating_sub(1).min(16);
        let may_try = self.failures == 0 || since(&mut self.failed_ms) >= backoff.min(MAX_BACKOFF_MS);
        (may_try, since(&mut self.changed_ms) >= settled_ms)
    }
}

impl Days {
    /// Chooses the next merge at an instant: days with too many parts first, then days with sizes that require it, then
    /// days that are over and become one part; of each, the smallest merge first. Its parts are not chosen again until
    /// the job ends.
    ///
    /// `limit_bytes` bounds the bytes of the parts: by the free space, or for a thread that does only small merges
    /// beside one that does all.
    pub fn next_merge(&self, now_ms: i64, limit_bytes: u64) -> Option<MergeJob> {
        let policy = &self.0.policy;
        let mut days = self.0.days.write();
        let mut choices = Vec::new();
        for (number, day) in &mut *days {
            let (may_try, is_settled) = day.merges.look(now_ms, policy.settled_ms);
            let parts: Vec<Candidate> = day.candidates();
            let is_over = is_settled && number.last_ms() < now_ms;
            let choose_final = || {
                let were_deleted = day
                    .list
                    .parts
                    .iter()
                    .any(|part| day.list.tombstones_of(part).next().is_some());
                is_over.then(|| policy.choose_final(&parts, were_deleted, limit_bytes))?
            };
            let by_size = policy.choose(&parts, limit_bytes);
            let urgency = match &by_size {
                Some(_) if parts.len() > policy.budget => 0,
                Some(_) => 1,
                None => 2,
            };
            if let Some(range) = by_size.or_else(choose_final).filter(|_| may_try) {
                let bytes: u64 = parts[range.clone()].iter().map(|part| part.bytes).sum();
                choices.push((urgency, bytes, *number, range));
            }
        }
        let (_, _, number, range) = choices
            .into_iter()
            .min_by_key(|(urgency, bytes, ..)| (*urgency, *bytes))?;
        let day = days.get_mut(&number)?;
        let list = Arc::clone(&day.list);
        day.merges
            .busy
            .extend(list.parts[range.clone()].iter().map(|part| part.sequences));
        Some(MergeJob {
            days: self.clone(),
            list,
            range,
        })
    }

    /// Replaces neighbours by a finished part; `false` if one of them is gone.
    fn replace(
        &self,
        day: DayNumber,
        inputs: &[Arc<DayPart>],
        (file, metrics): (&OwnedFile, MetricSet),
        sequences: Sequences,
    ) -> Result<Option<Arc<DayPart>>, PointStoreError> {
        let shared = &*self.0;
        let mut changes = shared.changes.lock();
        self.remove_leftovers(&mut changes)?;
        let list = shared.days.read().get(&day).map(|day| Arc::clone(&day.list));
        let Some(position) = list.and_then(|list| list.position(inputs)) else {
            return Ok(None);
        };
        let part = self.rename_part(&mut changes, file, day, sequences, metrics)?;
        changes.dirty.insert(day);
        // Without it the sources must stay, and with them the tombstones.
        let synced = self.sync_day(day);
        let mut spent = Vec::new();
        self.change_day(day, |list, _| {
            list.parts
                .splice(position..position + inputs.len(), [Arc::clone(&part)]);
            if synced.is_ok() {
                spent = list.take_spent_tombstones();
            }
        });
        synced?;
        // Without it, the next start would miss the sources if the result was lost, and the tombstones.
        let manifest = self.manifest(&changes, day);
        self.write_manifest(&mut changes, day, &manifest)?;
        inputs.iter().for_each(|input| input.file.set_obsolete());
        spent.iter().for_each(|tombstone| tombstone.file.set_obsolete());
        drop(changes);
        Ok(Some(part))
    }
}

impl super::Day {
    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |part: &Arc<DayPart>| part.candidate(self.merges.busy.contains(&part.sequences));
        self.list.parts.iter().map(candidate).collect()
    }
}

impl MergeJob {
    /// The day.
    pub fn day(&self) -> DayNumber {
        self.list.day
    }

    /// The number of parts.
    pub fn parts(&self) -> usize {
        self.range.len()
    }

    /// Bytes of the parts.
    pub fn bytes(&self) -> u64 {
        self.inputs().iter().map(|part| part.bytes()).sum()
    }

    fn inputs(&self) -> &[Arc<DayPart>] {
        &self.list.parts[self.range.clone()]
    }

    /// Merges the parts. The pacer accounts for the bytes that are written.
    ///
    /// # Errors
    ///
    /// Errors of the disk; [`PointStoreError::Damaged`] for a part that is damaged, which was set aside. The next merge
    /// of the day waits longer after each failure.
    pub fn run(self, pacer: &dyn Pacer) -> Result<Merged, PointStoreError> {
        let result = self.merge(pacer);
        let shared = &*self.days.0;
        let counters = &shared.counters;
        let mut days = shared.days.write();
        let merges = days.get_mut(&self.list.day).map(|day| &mut day.merges);
        match &result {
            Ok(Merged::Done { read, written }) => {
                counters.completed.add(1);
                counters.bytes_read.add(*read);
                counters.bytes_written.add(*written);
                if let Some(merges) = merges {
                    merges.failures = 0;
                }
            }
            Ok(Merged::Cancelled) => {}
            Err(_) => {
                counters.failed.add(1);
                if let Some(merges) = merges {
                    merges.set_failed();
                }
            }
        }
        result
    }

    /// Whether none of the parts was dropped or set aside.
    fn is_current(&self) -> bool {
        let days = self.days.0.days.read();
        let list = days.get(&self.list.day).map(|day| &day.list);
        list.is_some_and(|list| list.position(self.inputs()).is_some())
    }

    fn merge(&self, pacer: &dyn Pacer) -> Result<Merged, PointStoreError> {
        let mut new = self.days.new_part(self.list.day)?;
        match self.combine(&mut new, pacer) {
            Ok(true) => {}
            Err(error) if self.is_current() => return Err(self.days.set_aside(&self.list, error)?),
            Ok(false) | Err(_) => return Ok(Merged::Cancelled),
        }
        let (day, file, metrics) = new.finish()?;
        let part = self
            .days
            .replace(day, self.inputs(), (&file, metrics), self.sequences())?;
        Ok(part.map_or(Merged::Cancelled, |part| Merged::Done {
            read: self.bytes(),
            written: part.bytes(),
        }))
    }

    /// Writes the points of all parts that are not deleted; `false` if the pacer stopped it.
    fn combine(&self, new: &mut NewPart, pacer: &dyn Pacer) -> Result<bool, PointStoreError> {
        let inputs = self.inputs();
        let sources: Result<Vec<Source>, _> = inputs.iter().map(|part| Source::new(part.part())).collect();
        let mut combine = Combine::new(sources?, BLOCK_POINTS / 2);
        let writer = new.writer();
        let mut paced = 0;
        let mut deleted = |index: usize, key: SeriesKey, ranges: &mut Vec<TimeRange>| {
            if !self.list.tombstones.is_empty() {
                ranges.extend(self.list.deleted(&inputs[index], key.series));
            }
        };
        while combine.next_series(writer, &mut deleted)? {
            let written = writer.byte_len() - paced;
            if written >= PACE_BYTES {
                paced += written;
                if pacer.pace(written).is_err() {
                    return Ok(false);
                }
            }
        }
        Ok(pacer.pace(writer.byte_len() - paced).is_ok())
    }

    /// The sequences of the result.
    fn sequences(&self) -> Sequences {
        let inputs = self.inputs();
        let next = self.list.parts.get(self.range.end);
        let next = next.map_or(u64::MAX, |part| part.sequences.first);
        let first = inputs.first().map_or(0, |part| part.sequences.first);
        let last = inputs.last().map_or(0, |part| part.sequences.last);
        let applied = self.list.tombstones.iter().map(|tombstone| tombstone.sequence);
        Sequences {
            first,
            last: applied.filter(|sequence| *sequence < next).fold(last, u64::max),
        }
    }
}

impl Drop for MergeJob {
    fn drop(&mut self) {
        if let Some(day) = self.days.0.days.write().get_mut(&self.list.day) {
            let inputs = self.inputs();
            let is_mine = |busy: &Sequences| inputs.iter().any(|part| part.sequences == *busy);
            day.merges.busy.retain(|busy| !is_mine(busy));
        }
    }
}

/// The blocks of a part.
struct Source {
    part: Arc<Part>,
    blocks: Blocks<Arc<Part>>,
    current: Option<RawBlock>,
    decoder: Decoder,
}

impl Source {
    fn new(part: &Arc<Part>) -> Result<Self, PointStoreError> {
        let mut blocks = part.iter();
        Ok(Self {
            part: Arc::clone(part),
            current: blocks.next().transpose()?,
            blocks,
            decoder: Decoder::default(),
        })
    }

    fn advance(&mut self) -> Result<(), PointStoreError> {
        self.current = self.blocks.next().transpose()?;
        Ok(())
    }
}

impl BlockSource for Source {
    fn head(&self) -> Option<&BlockHead> {
        self.current.as_ref().map(RawBlock::head)
    }

    fn decode(&mut self, points: &mut Columns) -> Result<(), PointStoreError> {
        if let Some(block) = &self.current {
            self.part
                .decode(block, TimeRange::ALL, &mut self.decoder, points)?;
        }
        self.advance()
    }
}

impl BlockSink<Source> for PartWriter {
    fn push(&mut self, key: SeriesKey, points: &Columns) -> Result<(), PointStoreError> {
        Self::push(self, key, points)
    }

    fn copy(&mut self, source: &mut Source) -> Result<(), PointStoreError> {
        if let Some(block) = &source.current {
            self.push_block(&source.part, block)?;
        }
        source.advance()
    }
}
