//! Merges of blocks in memory.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::parts::series::MetricNumber;
use crate::{Point, PointKind, SeriesNumber};

const MIN_POINTS: usize = 4;

type Block = (SeriesKey, Columns);

#[derive(Debug)]
struct Blocks {
    head: Option<BlockHead>,
    blocks: VecDeque<Block>,
}

#[derive(Debug, Default)]
struct Written {
    blocks: Vec<Block>,
    copied: usize,
    /// Whether the last block may grow.
    is_open: bool,
}

impl Blocks {
    fn new(blocks: impl IntoIterator<Item = Block>) -> Self {
        let mut blocks = Self {
            head: None,
            blocks: blocks.into_iter().collect(),
        };
        blocks.set_head();
        blocks
    }

    fn set_head(&mut self) {
        self.head = self.blocks.front().map(|(key, points)| BlockHead {
            key: *key,
            range: TimeRange {
                first_ms: points.times_ms[0],
                last_ms: points.times_ms[points.len() - 1],
            },
            count: points.len(),
            statistics: None,
        });
    }

    fn take(&mut self) -> Block {
        let block = self.blocks.pop_front().unwrap();
        self.set_head();
        block
    }
}

impl BlockSource for Blocks {
    fn head(&self) -> Option<&BlockHead> {
        self.head.as_ref()
    }

    fn decode(&mut self, points: &mut Columns) -> Result<(), PointStoreError> {
        let (_, block) = self.take();
        points.extend_from(&block, 0..block.len());
        Ok(())
    }
}

impl BlockSink<Blocks> for Written {
    fn push(&mut self, key: SeriesKey, points: &Columns) -> Result<(), PointStoreError> {
        if points.is_empty() {
            return Ok(());
        }
        match self
            .blocks
            .last_mut()
            .filter(|(last, _)| self.is_open && *last == key)
        {
            Some((_, last)) => last.extend_from(points, 0..points.len()),
            None => self.blocks.push((key, points.clone())),
        }
        self.is_open = true;
        Ok(())
    }

    fn copy(&mut self, source: &mut Blocks) -> Result<(), PointStoreError> {
        self.copied += 1;
        self.is_open = false;
        self.blocks.push(source.take());
        Ok(())
    }
}

fn key(series: u32) -> SeriesKey {
    SeriesKey {
        metric: MetricNumber(7),
        series: SeriesNumber(series),
    }
}

fn columns(times_ms: impl IntoIterator<Item = i64>, bits: u64) -> Columns {
    let kind = PointKind::from_byte(1).unwrap();
    let point = |time_ms| Point { time_ms, kind, bits };
    times_ms.into_iter().map(point).collect()
}

/// Merges, with the ranges that were deleted of each series from the first parts.
fn merge(parts: Vec<Blocks>, deleted: &[(usize, u32, TimeRange)]) -> Written {
    let mut written = Written::default();
    let mut combine = Combine::new(parts, MIN_POINTS);
    let mut of = |part: usize, key: SeriesKey, ranges: &mut Vec<TimeRange>| {
        let applies =
            |(parts, series, _): &&(usize, u32, TimeRange)| part < *parts && *series == key.series.0;
        ranges.extend(deleted.iter().filter(applies).map(|(.., range)| *range));
    };
    while combine.next_series(&mut written, &mut of).unwrap() {}
    written
}

/// Parts of one series: first instant, and the one behind the last, of each block.
fn one_series(parts: &[&[(i64, i64)]]) -> Vec<Blocks> {
    let part = |(index, blocks): (usize, &&[(i64, i64)])| {
        Blocks::new(
            blocks
                .iter()
                .map(|(first, end)| (key(1), columns(*first..*end, index as u64))),
        )
    };
    parts.iter().enumerate().map(part).collect()
}

/// First instant and number of points of each block.
fn shape(written: &Written) -> Vec<(i64, usize)> {
    let blocks = written.blocks.iter();
    blocks
        .map(|(_, points)| (points.times_ms[0], points.len()))
        .collect()
}

#[test]
fn copies_large_blocks_that_do_not_overlap() {
    let written = merge(one_series(&[&[(0, 8), (20, 28)], &[(8, 16), (28, 36)]]), &[]);
    assert_eq!(shape(&written), [(0, 8), (8, 8), (20, 8), (28, 8)]);
    assert_eq!(written.copied, 4);
}

#[test]
fn joins_small_blocks() {
    let written = merge(
        one_series(&[&[(0, 3), (6, 9)], &[(3, 6)], &[(9, 12), (12, 15)]]),
        &[],
    );
    assert_eq!(shape(&written), [(0, 15)]);
    assert_eq!(written.copied, 0);
}

#[test]
fn decodes_only_what_overlaps() {
    let written = merge(one_series(&[&[(0, 8), (8, 16), (16, 24)], &[(10, 12)]]), &[]);
    assert_eq!(shape(&written), [(0, 8), (8, 8), (16, 8)]);
    assert_eq!(written.copied, 2);
    assert_eq!(written.blocks[1].1.bits, [0, 0, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn does_not_copy_what_was_deleted() {
    let range = TimeRange {
        first_ms: 8,
        last_ms: 9,
    };
    let written = merge(one_series(&[&[(0, 8), (8, 16)]]), &[(1, 1, range)]);
    assert_eq!(shape(&written), [(0, 8), (10, 6)]);
    assert_eq!(written.copied, 1);
}

#[test]
fn a_series_without_points_is_not_written() {
    let written = merge(one_series(&[&[(0, 3)], &[(5, 9)]]), &[(2, 1, TimeRange::ALL)]);
    assert_eq!(shape(&written), []);
}

proptest! {
    #[test]
    fn the_newest_points_remain_in_order(
        // For each part and series: the instants, and the lengths of blocks.
        parts in prop::collection::vec(
            prop::collection::btree_map(0_u32..3, (prop::collection::btree_set(0_i64..90, 1..60), 1_usize..12), 0..3),
            1..6,
        ),
        deleted in prop::collection::vec((0_usize..6, 0_u32..3, 0_i64..90, 0_i64..40), 0..3),
    ) {
        let deleted: Vec<(usize, u32, TimeRange)> = deleted
            .into_iter()
            .map(|(parts, series, first_ms, length)| {
                (parts, series, TimeRange { first_ms, last_ms: first_ms + length })
            })
            .collect();
        let mut expected: BTreeMap<(SeriesKey, i64), u64> = BTreeMap::new();
        let mut sources = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let mut blocks = VecDeque::new();
            for (series, (times, length)) in part {
                let times: Vec<i64> = times.iter().copied().collect();
                for block in times.chunks(*length) {
                    blocks.push_back((key(*series), columns(block.iter().copied(), index as u64)));
                }
                for time_ms in times {
                    let is_deleted = deleted.iter().any(|(parts, of, range)| {
                        index < *parts && of == series && range.contains(time_ms)
                    });
                    if !is_deleted {
                        expected.insert((key(*series), time_ms), index as u64);
                    }
                }
            }
            sources.push(Blocks::new(blocks));
        }
        let written = merge(sources, &deleted);
        let points: Vec<((SeriesKey, i64), u64)> = written
            .blocks
            .iter()
            .flat_map(|(key, points)| points.points().map(|point| ((*key, point.time_ms), point.bits)))
            .collect();
        prop_assert_eq!(points, expected.into_iter().collect::<Vec<_>>());
    }
}
