//! An index of the tags of some series of a metric. It is immutable.
//!
//! For each tag key there is a column, in both directions:
//!
//! ```text
//!   values       tagv UIDs, ascending                  7        9           position = place among the series
//!   positions    of each value, ascending              0 2 3    1 5         of the segment, by number
//!   value_of     of each position                      0 1 0 0 - 1          (-: without the tag key)
//! ```
//!
//! Lists instead of compressed bitmaps: a tag value that one series has, as hosts and containers do, takes 16 bytes
//! instead of more than 100, and `value_of` replaces the intersection of long lists by a sequential pass over the
//! shortest one.

mod select;
#[cfg(test)]
mod tests;

use oxtsdb_schema::tsuid::TagPairs;
use oxtsdb_schema::uid::UidWidths;

use crate::SeriesNumber;

/// In `value_of`: the series does not have the tag key.
const NONE: u32 = u32::MAX;

/// The index of some series.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    /// Ascending.
    series: Vec<SeriesNumber>,
    /// Ascending by tag key.
    columns: Vec<Column>,
}

/// The values of a tag key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Column {
    tagk: u64,
    values: Vec<u64>,
    /// Ends of the positions of each value.
    ends: Vec<u32>,
    positions: Vec<u32>,
    value_of: Vec<u32>,
}

/// A segment under construction.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    widths: UidWidths,
    series: Vec<SeriesNumber>,
    /// Values and positions by tag key, in any order.
    tags: Vec<(u64, Vec<(u64, u32)>)>,
}

impl SegmentBuilder {
    pub(super) const fn new(widths: UidWidths) -> Self {
        Self {
            widths,
            series: Vec::new(),
            tags: Vec::new(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.series.len()
    }

    /// Appends a series, in order of their numbers, with its key.
    pub(super) fn push(&mut self, series: SeriesNumber, key: &[u8]) {
        let position = to_u32(self.series.len());
        self.series.push(series);
        let tags = key.get(self.widths.metric.bytes()..).unwrap_or_default();
        for (tagk, tagv) in TagPairs::new(tags, &self.widths) {
            let (tagk, value) = (tagk.uid().number(), (tagv.uid().number(), position));
            match self.tags.iter_mut().find(|(other, _)| *other == tagk) {
                Some((_, values)) => values.push(value),
                None => self.tags.push((tagk, vec![value])),
            }
        }
    }

    pub(super) fn finish(mut self) -> Segment {
        self.tags.sort_unstable_by_key(|(tagk, _)| *tagk);
        let count = self.series.len();
        let columns = self.tags.into_iter().map(|(tagk, mut tags)| {
            tags.sort_unstable();
            let mut column = Column::new(tagk, count);
            for (value, position) in tags {
                if column.values.last() != Some(&value) {
                    column.end_value();
                    column.values.push(value);
                }
                column.push(position);
            }
            column.end_value();
            column
        });
        Segment {
            columns: columns.collect(),
            series: self.series,
        }
    }
}

impl Segment {
    pub(super) const fn len(&self) -> usize {
        self.series.len()
    }

    /// Bytes of memory.
    pub(super) fn byte_len(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::byte_len).sum();
        self.series.capacity() * size_of::<SeriesNumber>() + columns
    }

    /// Merges some segments; the numbers of their series follow each other.
    pub(super) fn merge(segments: &[impl AsRef<Self>]) -> Self {
        let segments = || segments.iter().map(AsRef::as_ref);
        let count = segments().map(Self::len).sum();
        let mut tagks: Vec<u64> = segments()
            .flat_map(|segment| segment.columns.iter().map(|column| column.tagk))
            .collect();
        tagks.sort_unstable();
        tagks.dedup();
        let columns = tagks.into_iter().map(|tagk| {
            let mut start = 0;
            let parts = segments().filter_map(|segment| {
                let first = start;
                start += to_u32(segment.len());
                segment.column(tagk).map(|column| (first, column))
            });
            Column::merge(tagk, count, &parts.collect::<Vec<_>>())
        });
        let columns = columns.collect();
        let mut series = Vec::with_capacity(count);
        segments().for_each(|segment| series.extend_from_slice(&segment.series));
        Self { series, columns }
    }

    /// All series in order of their keys.
    pub(super) fn key_order(&self) -> Vec<SeriesNumber> {
        let mut order: Vec<u32> = (0..to_u32(self.len())).collect();
        let mut sorted = order.clone();
        // A key is a list of tags. Sorting by the last tag key first, each pass keeps the order of the passes before
        // it where series are equal. A key that has ended is before all others, one that goes on with a larger tag
        // key is behind those that have this one.
        let mut goes_on = vec![false; self.len()];
        for column in self.columns.iter().rev() {
            let values = column.values.len();
            let bucket = |position: u32| match column.value_of[position as usize] {
                NONE if goes_on[position as usize] => values + 1,
                NONE => 0,
                value => value as usize + 1,
            };
            let mut next = vec![0_u32; values + 3];
            order.iter().for_each(|position| next[bucket(*position) + 1] += 1);
            for index in 1..next.len() {
                next[index] += next[index - 1];
            }
            for position in &order {
                let next = &mut next[bucket(*position)];
                sorted[*next as usize] = *position;
                *next += 1;
            }
            std::mem::swap(&mut order, &mut sorted);
            let has_tag = column.value_of.iter().map(|value| *value != NONE);
            goes_on
                .iter_mut()
                .zip(has_tag)
                .for_each(|(goes_on, has)| *goes_on |= has);
        }
        let order = order.into_iter();
        order.map(|position| self.series[position as usize]).collect()
    }

    /// The tag keys, ascending, and how many series have them.
    pub(super) fn tag_keys(&self) -> impl Iterator<Item = (u64, u32)> {
        let columns = self.columns.iter();
        columns.map(|column| (column.tagk, to_u32(column.positions.len())))
    }

    /// The values of a tag key, ascending, and how many series have them.
    pub(super) fn tag_values(&self, tagk: u64) -> impl Iterator<Item = (u64, u32)> {
        let columns = self.column(tagk).into_iter();
        columns.flat_map(|column| {
            let values = column.values.iter().enumerate();
            values.map(|(index, value)| (*value, to_u32(column.positions_of(index).len())))
        })
    }

    fn column(&self, tagk: u64) -> Option<&Column> {
        let at = self.columns.binary_search_by_key(&tagk, |column| column.tagk);
        at.ok().map(|at| &self.columns[at])
    }
}

impl Column {
    fn new(tagk: u64, series: usize) -> Self {
        Self {
            tagk,
            value_of: vec![NONE; series],
            ..Self::default()
        }
    }

    /// Appends a series to the last value.
    fn push(&mut self, position: u32) {
        self.value_of[position as usize] = to_u32(self.values.len() - 1);
        self.positions.push(position);
    }

    /// Ends the last value, if there is one.
    fn end_value(&mut self) {
        if self.ends.len() < self.values.len() {
            self.ends.push(to_u32(self.positions.len()));
        }
    }

    /// The positions of a value, by its index.
    fn positions_of(&self, value: usize) -> &[u32] {
        let start = value.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.positions[start as usize..self.ends[value] as usize]
    }

    fn byte_len(&self) -> usize {
        let numbers = self.ends.capacity() + self.positions.capacity() + self.value_of.capacity();
        self.values.capacity() * size_of::<u64>() + numbers * size_of::<u32>()
    }

    /// The columns of a tag key, each with the first position of its segment, in `count` series.
    fn merge(tagk: u64, count: usize, parts: &[(u32, &Self)]) -> Self {
        let mut merged = Self::new(tagk, count);
        let total = parts.iter().map(|(_, part)| part.values.len()).sum();
        let mut values: Vec<(u64, u32, u32)> = Vec::with_capacity(total);
        for (index, (_, part)) in (0..).zip(parts) {
            let part = (0..).zip(&part.values);
            values.extend(part.map(|(at, value)| (*value, index, at)));
        }
        // The sort is fast on runs that are sorted.
        values.sort();
        let positions = parts.iter().map(|(_, part)| part.positions.len()).sum();
        merged.positions.reserve_exact(positions);
        for (value, part, at) in values {
            if merged.values.last() != Some(&value) {
                merged.end_value();
                merged.values.push(value);
            }
            let (first, part) = parts[part as usize];
            for position in part.positions_of(at as usize) {
                merged.push(first + position);
            }
        }
        merged.end_value();
        merged.values.shrink_to_fit();
        merged.ends.shrink_to_fit();
        merged
    }
}

/// There are fewer than 2^32 series.
fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
