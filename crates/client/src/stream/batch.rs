//! Points become columns: a dictionary of series, and numbers that refer to it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashMap;

use crate::{SeriesName, Timestamp, Value};

/// Points of a batch, which is sent as one frame, unless the server's window is smaller.
const BATCH_POINTS: usize = 4096;

/// Names of the points of a batch. It bounds the frame, also if all of them have to be declared.
const BATCH_NAME_BYTES: usize = 4 << 20;

/// Names of the series of one dictionary: half of what servers let a stream declare by default.
const DICTIONARY_NAME_BYTES: usize = 32 << 20;

/// Points, and the series that are new in them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The dictionary starts over: this batch and those after it refer to no series of earlier batches.
    pub(super) starts_dictionary: bool,
    /// New series; the first has the number after the last one of the batches before.
    pub(super) new_series: Vec<SeriesName>,
    /// Index of the first point.
    pub(super) first_index: u64,
    /// Points with integers.
    pub(super) ints: Column<i64>,
    /// Points with floating-point numbers.
    pub(super) doubles: Column<f64>,
    /// The frame keeps the order of the points, because an integer follows a floating-point number of the same series
    /// and instant, and the later point wins. Otherwise all integers precede all floating-point numbers.
    keeps_order: bool,
    name_bytes: usize,
}

/// Points with one type of value, column by column; all have the same length.
#[derive(Debug)]
pub(super) struct Column<T> {
    /// Numbers of series.
    pub(super) series: Vec<u32>,
    /// When.
    pub(super) timestamps: Vec<Timestamp>,
    /// The values.
    pub(super) values: Vec<T>,
    /// Indexes of the points, counted from the batch's.
    pub(super) offsets: Vec<u32>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self {
            series: Vec::new(),
            timestamps: Vec::new(),
            values: Vec::new(),
            offsets: Vec::new(),
        }
    }
}

impl<T> Column<T> {
    fn push(&mut self, series: u32, timestamp: Timestamp, value: T, offset: u32) {
        self.series.push(series);
        self.timestamps.push(timestamp);
        self.values.push(value);
        self.offsets.push(offset);
    }

    fn points(&self) -> impl Iterator<Item = BatchPoint> {
        (0..self.offsets.len()).filter_map(|position| self.point(position))
    }

    fn point_at(&self, offset: u32) -> Option<BatchPoint> {
        self.point(self.offsets.binary_search(&offset).ok()?)
    }

    fn point(&self, position: usize) -> Option<BatchPoint> {
        Some(BatchPoint {
            offset: *self.offsets.get(position)?,
            series: *self.series.get(position)?,
            timestamp: *self.timestamps.get(position)?,
        })
    }
}

/// A point of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchPoint {
    /// Its index, counted from the batch's.
    pub(super) offset: u32,
    /// Its series in the dictionary.
    pub(super) series: u32,
    /// When.
    pub(super) timestamp: Timestamp,
}

impl Batch {
    /// How many points.
    pub(super) fn points(&self) -> usize {
        self.ints.series.len() + self.doubles.series.len()
    }

    /// The positions of the columns that each block of the frame has, in the order of the blocks.
    pub(super) fn blocks(&self) -> Vec<BlockRange> {
        let (ints, doubles) = (&self.ints.offsets, &self.doubles.offsets);
        if !self.keeps_order {
            let blocks = [
                BlockRange::Ints(0..ints.len()),
                BlockRange::Doubles(0..doubles.len()),
            ];
            return blocks
                .into_iter()
                .filter(|block| !block.range().is_empty())
                .collect();
        }
        let mut blocks = Vec::new();
        let (mut int, mut double) = (0, 0);
        while int < ints.len() || double < doubles.len() {
            let end = next_run(ints, int, doubles.get(double));
            if end > int {
                blocks.push(BlockRange::Ints(int..end));
                int = end;
            }
            let end = next_run(doubles, double, ints.get(int));
            if end > double {
                blocks.push(BlockRange::Doubles(double..end));
                double = end;
            }
        }
        blocks
    }

    /// A point by its position in the frame.
    pub(super) fn point(&self, position: usize) -> Option<BatchPoint> {
        if self.keeps_order {
            let offset = u32::try_from(position).ok()?;
            let point = self.ints.point_at(offset);
            return point.or_else(|| self.doubles.point_at(offset));
        }
        self.ints
            .point(position)
            .or_else(|| self.doubles.point(position.checked_sub(self.ints.series.len())?))
    }

    /// Whether an integer follows a floating-point number of the same series and instant.
    fn has_int_after_double(&self) -> bool {
        if self.ints.series.is_empty() || self.doubles.series.is_empty() {
            return false;
        }
        let mut first_doubles = FxHashMap::default();
        for point in self.doubles.points() {
            first_doubles
                .entry((point.series, point.timestamp))
                .or_insert(point.offset);
        }
        self.ints.points().any(|point| {
            let double = first_doubles.get(&(point.series, point.timestamp));
            double.is_some_and(|offset| *offset < point.offset)
        })
    }
}

/// Where the run of points that starts at `start` ends: before the next point of the other column.
fn next_run(offsets: &[u32], start: usize, other: Option<&u32>) -> usize {
    let run = offsets.get(start..).unwrap_or_default();
    start + other.map_or(run.len(), |other| run.partition_point(|offset| offset < other))
}

/// Positions of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockRange {
    Ints(Range<usize>),
    Doubles(Range<usize>),
}

impl BlockRange {
    fn range(&self) -> &Range<usize> {
        match self {
            Self::Ints(range) | Self::Doubles(range) => range,
        }
    }
}

/// The numbers of series.
#[derive(Debug)]
struct Dictionary {
    /// Distinguishes it from all dictionaries of the process.
    id: u32,
    series: FxHashMap<SeriesName, u32>,
    name_bytes: usize,
}

impl Dictionary {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            series: FxHashMap::default(),
            name_bytes: 0,
        }
    }

    /// The number of a series, and whether it is new.
    fn number(&mut self, series: &SeriesName) -> (u32, bool) {
        if let Some(number) = series.cached_number(self.id) {
            return (number, false);
        }
        let (number, new) = match self.series.get(series) {
            Some(number) => (*number, false),
            None => {
                let number = u32::try_from(self.series.len()).unwrap_or(u32::MAX);
                self.series.insert(series.clone(), number);
                self.name_bytes += series.text_bytes();
                (number, true)
            }
        };
        series.cache_number(self.id, number);
        (number, new)
    }
}

/// Collects points into batches.
#[derive(Debug)]
pub(super) struct Batcher {
    dictionary: Dictionary,
    batch: Batch,
    max_series: usize,
    max_points: usize,
}

impl Batcher {
    /// Numbers at most `max_series` series before it starts a dictionary over, and fills batches of at most
    /// `max_points`.
    pub(super) fn new(max_series: usize, max_points: usize) -> Self {
        Self {
            dictionary: Dictionary::new(),
            batch: Batch::default(),
            max_series: max_series.max(1),
            max_points: max_points.clamp(1, BATCH_POINTS),
        }
    }

    /// Adds a point.
    pub(super) fn add(&mut self, series: &SeriesName, timestamp: Timestamp, value: Value) {
        let Self {
            dictionary, batch, ..
        } = self;
        let (number, new) = dictionary.number(series);
        if new {
            batch.new_series.push(series.clone());
        }
        // At most BATCH_POINTS.
        let offset = u32::try_from(batch.points()).unwrap_or(u32::MAX);
        match value {
            Value::Int(int) => batch.ints.push(number, timestamp, int, offset),
            Value::Double(double) => batch.doubles.push(number, timestamp, double, offset),
        }
        batch.name_bytes += series.text_bytes();
    }

    /// Whether there is no point to take.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.points() == 0
    }

    /// Whether the batch has to be taken before another point is added.
    pub(super) fn is_full(&self) -> bool {
        self.batch.points() >= self.max_points
            || self.batch.name_bytes >= BATCH_NAME_BYTES
            || (self.dictionary_is_full() && !self.is_empty())
    }

    /// Index of the point that is added next.
    pub(super) fn next_index(&self) -> u64 {
        self.batch.first_index + self.batch.points() as u64
    }

    /// The batch.
    pub(super) fn take(&mut self) -> Batch {
        let next = Batch {
            starts_dictionary: self.dictionary_is_full(),
            first_index: self.next_index(),
            ..Batch::default()
        };
        if next.starts_dictionary {
            self.dictionary = Dictionary::new();
        }
        self.batch.keeps_order = self.batch.has_int_after_double();
        std::mem::replace(&mut self.batch, next)
    }

    fn dictionary_is_full(&self) -> bool {
        self.dictionary.series.len() >= self.max_series || self.dictionary.name_bytes >= DICTIONARY_NAME_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(host: &str) -> SeriesName {
        SeriesName::new("m", [("host", host)])
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn series_are_declared_once_and_points_keep_their_index() {
        let mut batcher = Batcher::new(100, BATCH_POINTS);
        batcher.add(&series("x"), at(1), Value::Int(1));
        batcher.add(&series("x"), at(2), Value::Double(2.5));
        batcher.add(&series("y"), at(3), Value::Int(3));
        let batch = batcher.take();
        assert_eq!(batch.new_series, [series("x"), series("y")]);
        assert_eq!(batch.ints.series, [0, 1]);
        let offsets: Vec<_> = (0..4)
            .map(|position| batch.point(position).map(|point| point.offset))
            .collect();
        assert_eq!(offsets, [Some(0), Some(2), Some(1), None]);
        batcher.add(&series("x"), at(4), Value::Int(4));
        let next = batcher.take();
        assert_eq!((next.first_index, next.new_series.len()), (3, 0));
    }

    #[test]
    fn an_integer_after_a_floating_point_number_of_its_instant_stays_after_it() {
        let mut batcher = Batcher::new(100, BATCH_POINTS);
        let values = [
            ("x", 1, Value::Int(1)),
            ("x", 2, Value::Double(2.5)),
            ("x", 3, Value::Double(3.5)),
            ("y", 2, Value::Int(4)),
            ("x", 2, Value::Int(5)),
            ("x", 4, Value::Double(6.5)),
        ];
        for (host, second, value) in values {
            batcher.add(&series(host), at(second), value);
        }
        let batch = batcher.take();
        let blocks = [
            BlockRange::Ints(0..1),
            BlockRange::Doubles(0..2),
            BlockRange::Ints(1..3),
            BlockRange::Doubles(2..3),
        ];
        assert_eq!(batch.blocks(), blocks);
        for (position, (_, second, _)) in values.iter().enumerate() {
            let point = batch.point(position).unwrap();
            assert_eq!((point.offset as usize, point.timestamp), (position, at(*second)));
        }
        assert_eq!(batch.point(values.len()), None);

        // The other order, and other series, need no more than two blocks.
        batcher.add(&series("x"), at(2), Value::Double(2.5));
        batcher.add(&series("y"), at(2), Value::Int(1));
        batcher.add(&series("y"), at(2), Value::Double(2.5));
        let blocks = [BlockRange::Ints(0..1), BlockRange::Doubles(0..2)];
        assert_eq!(batcher.take().blocks(), blocks);
    }

    #[test]
    fn batches_fit_the_window_of_the_server() {
        let mut batcher = Batcher::new(100, 3);
        for second in 1..=3 {
            assert!(!batcher.is_full());
            batcher.add(&series("x"), at(second), Value::Int(0));
        }
        assert!(batcher.is_full());
        assert_eq!(batcher.take().points(), 3);
    }

    #[test]
    fn full_dictionaries_start_over() {
        let mut batcher = Batcher::new(2, BATCH_POINTS);
        let (x, y) = (series("x"), series("y"));
        batcher.add(&x, at(1), Value::Int(0));
        assert!(!batcher.is_full());
        batcher.add(&y, at(1), Value::Int(0));
        assert!(batcher.is_full());
        assert!(!batcher.take().starts_dictionary);
        batcher.add(&y, at(2), Value::Int(0));
        let next = batcher.take();
        assert!(next.starts_dictionary);
        assert_eq!(
            (next.new_series.len(), next.ints.series.as_slice()),
            (1, &[0][..])
        );
    }
}
