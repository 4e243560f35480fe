//! Builds pages of blocks.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::SeriesKey;
use super::index::{BlockPageEntry, KeySpan};
use crate::TimeRange;
use oxtsdb_storage_file::varint::{self, zigzag};

/// Instants of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NewTimes {
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    pub(super) count: usize,
    pub(super) form: NewForm,
}

/// How instants are stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NewForm {
    /// The distance of two of them.
    Regular(i64),
    /// Their encoding.
    Inline(Box<[u8]>),
    /// The number of a shared column.
    Shared(u32),
}

/// A page that is being built.
#[derive(Debug, Default)]
pub(super) struct PageBuilder {
    times: Vec<u8>,
    numbers: HashMap<NewTimes, u64, FxBuildHasher>,
    blocks: Vec<u8>,
    block_count: u64,
    base_ms: i64,
    span: Option<KeySpan>,
    range: Option<TimeRange>,
}

impl PageBuilder {
    /// Appends a block. Keys ascend.
    pub(super) fn push(&mut self, key: SeriesKey, times: &NewTimes, body: &[u8]) {
        let previous = self.span.map(|span| span.last);
        self.span = Some(KeySpan {
            first: self.span.map_or(key, |span| span.first),
            last: key,
        });
        self.range = Some(self.range.map_or(
            TimeRange {
                first_ms: times.first_ms,
                last_ms: times.last_ms,
            },
            |range| TimeRange {
                first_ms: range.first_ms.min(times.first_ms),
                last_ms: range.last_ms.max(times.last_ms),
            },
        ));
        if previous.is_none() {
            self.base_ms = times.first_ms;
        }
        let number = match self.numbers.get(times) {
            Some(number) => *number,
            None => self.add_times(times),
        };
        let (metric, series) = previous.map_or((0, 0), |key| (key.metric.0, key.series.0));
        if metric == key.metric.0 {
            varint::put(&mut self.blocks, u64::from(key.series.0 - series) << 1);
        } else {
            varint::put(&mut self.blocks, u64::from(key.metric.0 - metric) << 1 | 1);
            varint::put(&mut self.blocks, u64::from(key.series.0));
        }
        varint::put(&mut self.blocks, number);
        varint::put(&mut self.blocks, body.len() as u64);
        self.blocks.extend_from_slice(body);
        self.block_count += 1;
    }

    fn add_times(&mut self, times: &NewTimes) -> u64 {
        let number = self.numbers.len() as u64;
        let form = match times.form {
            NewForm::Regular(_) => 0,
            NewForm::Inline(_) => 1,
            NewForm::Shared(_) => 2,
        };
        varint::put(&mut self.times, (times.count as u64) << 2 | form);
        varint::put(&mut self.times, zigzag(times.first_ms - self.base_ms));
        let distance = (times.last_ms - times.first_ms).cast_unsigned();
        match &times.form {
            NewForm::Regular(_) if times.count == 1 => {}
            NewForm::Regular(step) => varint::put(&mut self.times, step.cast_unsigned()),
            NewForm::Inline(bytes) => {
                varint::put(&mut self.times, distance);
                varint::put(&mut self.times, bytes.len() as u64);
                self.times.extend_from_slice(bytes);
            }
            NewForm::Shared(column) => {
                varint::put(&mut self.times, distance);
                varint::put(&mut self.times, u64::from(*column));
            }
        }
        self.numbers.insert(times.clone(), number);
        number
    }

    /// Bytes of the page so far.
    pub(super) const fn byte_len(&self) -> usize {
        self.times.len() + self.blocks.len()
    }

    /// Appends the page to `bytes`, and begins the next one. `None` if it has no blocks.
    pub(super) fn finish(&mut self, bytes: &mut Vec<u8>) -> Option<BlockPageEntry> {
        let (keys, range) = (self.span.take()?, self.range.take()?);
        varint::put(bytes, zigzag(self.base_ms));
        varint::put(bytes, self.numbers.len() as u64);
        bytes.extend_from_slice(&self.times);
        varint::put(bytes, self.block_count);
        bytes.extend_from_slice(&self.blocks);
        self.times.clear();
        self.numbers.clear();
        self.blocks.clear();
        self.block_count = 0;
        Some(BlockPageEntry { keys, range })
    }
}
