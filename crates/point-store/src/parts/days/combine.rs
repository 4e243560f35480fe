//! The merge of parts: blocks in, blocks out.
//!
//! Parts are read in order of series, then time. For each series, the merge goes through time in rounds. A round takes
//! all points up to an instant up to which the current block of every part reaches: there can be no others. So memory
//! is bounded by a block of each part, however the parts overlap.
//!
//! A block with instants that no other part has is copied without decoding it, if it is large enough; small ones are
//! decoded, and the sink joins them.

use super::points::{delete, settle};
use crate::parts::part::{BlockHead, Columns};
use crate::parts::series::SeriesKey;
use crate::{PointStoreError, TimeRange};

/// The blocks of a part, ascending by series, then time; blocks of one series do not overlap.
pub(super) trait BlockSource {
    /// The current block; `None` at the end.
    fn head(&self) -> Option<&BlockHead>;

    /// Appends the points of the current block and moves to the next one.
    fn decode(&mut self, points: &mut Columns) -> Result<(), PointStoreError>;
}

/// Receives points in ascending order.
pub(super) trait BlockSink<S> {
    /// Writes points of a series, ascending by instant, and joins them to blocks.
    fn push(&mut self, key: SeriesKey, points: &Columns) -> Result<(), PointStoreError>;

    /// Writes the current block of a source as it is and moves to the next one.
    fn copy(&mut self, source: &mut S) -> Result<(), PointStoreError>;
}

/// A part of a merge.
struct Input<S> {
    blocks: S,
    /// Ranges that were deleted from the part, of the current series.
    deleted: Vec<TimeRange>,
    /// Points of the current series that were decoded and not taken; sorted.
    points: Columns,
}

/// The merge of parts, oldest first.
pub(super) struct Combine<S> {
    inputs: Vec<Input<S>>,
    /// Blocks of fewer points are decoded.
    min_points: usize,
    round: Columns,
}

impl<S: BlockSource> Combine<S> {
    /// Of parts, oldest first. Blocks of fewer than `min_points` points are not copied.
    pub(super) fn new(sources: Vec<S>, min_points: usize) -> Self {
        let input = |blocks| Input {
            blocks,
            deleted: Vec::new(),
            points: Columns::default(),
        };
        Self {
            inputs: sources.into_iter().map(input).collect(),
            min_points,
            round: Columns::default(),
        }
    }

    /// Merges the next series; `false` if there is none. `deleted` appends the ranges that were deleted of a series
    /// from a part, given by its index.
    pub(super) fn next_series(
        &mut self,
        sink: &mut impl BlockSink<S>,
        deleted: &mut dyn FnMut(usize, SeriesKey, &mut Vec<TimeRange>),
    ) -> Result<bool, PointStoreError> {
        let heads = self.inputs.iter().filter_map(|input| input.blocks.head());
        let Some(key) = heads.map(|head| head.key).min() else {
            return Ok(false);
        };
        let mut current = Vec::with_capacity(self.inputs.len());
        for (index, input) in self.inputs.iter_mut().enumerate() {
            if input.blocks.head().is_some_and(|head| head.key == key) {
                input.deleted.clear();
                deleted(index, key, &mut input.deleted);
                current.push(index);
            }
        }
        while self.round(key, &mut current, sink)? {}
        Ok(true)
    }

    /// Takes points or a block; `false` if there are none left. Parts without points of the series leave `current`.
    fn round(
        &mut self,
        key: SeriesKey,
        current: &mut Vec<usize>,
        sink: &mut impl BlockSink<S>,
    ) -> Result<bool, PointStoreError> {
        current.retain(|index| self.inputs[*index].current(key).is_some());
        let ranges = || {
            current
                .iter()
                .filter_map(|index| Some((*index, self.inputs[*index].current(key)?)))
        };
        let Some((first, range)) = ranges().min_by_key(|(_, range)| range.first_ms) else {
            return Ok(false);
        };
        let is_alone = ranges().all(|(index, other)| index == first || range.last_ms < other.first_ms);
        let until_ms = ranges()
            .map(|(_, range)| range.last_ms)
            .min()
            .unwrap_or(range.last_ms);
        if is_alone && self.inputs[first].can_copy(self.min_points) {
            sink.copy(&mut self.inputs[first].blocks)?;
            return Ok(true);
        }
        self.round.clear();
        for index in &*current {
            let input = &mut self.inputs[*index];
            if input.current(key).is_some_and(|range| range.first_ms <= until_ms) {
                input.take_until(until_ms, &mut self.round)?;
            }
        }
        settle(&mut self.round, 0);
        sink.push(key, &self.round)?;
        Ok(true)
    }
}

impl<S: BlockSource> Input<S> {
    /// First and last instant of the current block of a series, or of its remaining points; `None` at the series' end.
    fn current(&self, key: SeriesKey) -> Option<TimeRange> {
        if let (Some(first), Some(last)) = (self.points.times_ms.first(), self.points.times_ms.last()) {
            return Some(TimeRange {
                first_ms: *first,
                last_ms: *last,
            });
        }
        let head = self.blocks.head().filter(|head| head.key == key)?;
        Some(head.range)
    }

    /// Whether the current block can be copied as it is.
    fn can_copy(&self, min_points: usize) -> bool {
        self.points.is_empty()
            && self.blocks.head().is_some_and(|head| {
                head.count >= min_points && !self.deleted.iter().any(|range| range.overlaps(&head.range))
            })
    }

    /// Moves the points up to an instant, both ends inclusive.
    fn take_until(&mut self, until_ms: i64, taken: &mut Columns) -> Result<(), PointStoreError> {
        if self.points.is_empty() {
            self.blocks.decode(&mut self.points)?;
            delete(&mut self.points, 0, &self.deleted);
        }
        let count = self
            .points
            .times_ms
            .partition_point(|time_ms| *time_ms <= until_ms);
        taken.extend_from(&self.points, 0..count);
        self.points.remove(0..count);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
