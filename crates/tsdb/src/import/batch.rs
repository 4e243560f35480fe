//! Lines become columns: a dictionary of names and series, and numbers that refer to it.

use oxtsdb_schema::Value;
use rustc_hash::FxHashMap;

use super::line::{self, Line, LineError};

/// Points of a batch, which is sent as one frame, unless the server's window is smaller.
pub(super) const BATCH_POINTS: usize = 4096;

/// Text of the lines of a batch. It bounds the frame, also if all its names have to be declared.
const BATCH_BYTES: usize = 4 << 20;

/// Text of the names of one dictionary; servers bound what a stream may declare.
const DICTIONARY_NAME_BYTES: usize = 32 << 20;

/// Text of the series of one dictionary, which bounds our own memory.
const DICTIONARY_SERIES_BYTES: usize = 256 << 20;

/// Points with what has to be declared for them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The dictionary begins anew: nothing before this batch may be referred to.
    pub(super) fresh: bool,
    /// New names.
    pub(super) names: Vec<Box<str>>,
    /// New series.
    pub(super) series: Vec<SeriesNames>,
    /// Which file the lines are from.
    pub(super) file: usize,
    /// Points with integers.
    pub(super) ints: Column<i64>,
    /// Points with numbers.
    pub(super) doubles: Column<f64>,
    bytes: usize,
}

/// A series: numbers of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeriesNames {
    /// The metric.
    pub(super) metric: u32,
    /// Key, value, key, value, ...
    pub(super) tags: Box<[u32]>,
}

/// Points, column by column; all have the same length.
#[derive(Debug)]
pub(super) struct Column<T> {
    /// Numbers of series.
    pub(super) series: Vec<u32>,
    /// When, milliseconds.
    pub(super) timestamps_ms: Vec<i64>,
    /// What.
    pub(super) values: Vec<T>,
    /// Numbers of lines, from 1.
    pub(super) lines: Vec<u64>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self {
            series: Vec::new(),
            timestamps_ms: Vec::new(),
            values: Vec::new(),
            lines: Vec::new(),
        }
    }
}

impl<T> Column<T> {
    fn push(&mut self, series: u32, timestamp_ms: i64, value: T, line: u64) {
        self.series.push(series);
        self.timestamps_ms.push(timestamp_ms);
        self.values.push(value);
        self.lines.push(line);
    }
}

impl Batch {
    /// How many points.
    pub(super) fn points(&self) -> usize {
        self.ints.lines.len() + self.doubles.lines.len()
    }

    /// The line of a point, counted through integers and then numbers.
    pub(super) fn line(&self, point: usize) -> Option<u64> {
        let ints = &self.ints.lines;
        ints.get(point)
            .or_else(|| self.doubles.lines.get(point.checked_sub(ints.len())?))
            .copied()
    }

    /// The lowest line number.
    pub(super) fn first_line(&self) -> u64 {
        let first = |lines: &[u64]| lines.first().copied().unwrap_or(u64::MAX);
        first(&self.ints.lines).min(first(&self.doubles.lines))
    }

    /// The highest line number.
    pub(super) fn last_line(&self) -> u64 {
        let last = |lines: &[u64]| lines.last().copied().unwrap_or(0);
        last(&self.ints.lines).max(last(&self.doubles.lines))
    }
}

/// Names and series that have numbers.
#[derive(Debug, Default)]
struct Dictionary {
    names: FxHashMap<Box<str>, u32>,
    name_bytes: usize,
    /// By metric and tags as they stand in the line.
    series: FxHashMap<Box<str>, u32>,
    series_bytes: usize,
    /// A look-up key that is built again and again.
    key: String,
}

/// Turns lines into batches.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    dictionary: Dictionary,
    batch: Batch,
    max_series: usize,
    max_points: usize,
}

impl Batcher {
    /// Declares at most `max_series` series before it begins a fresh dictionary, and makes batches of
    /// at most `max_points`, which the server's window holds.
    pub(super) fn new(max_series: usize, max_points: usize) -> Self {
        Self {
            max_series: max_series.max(1),
            max_points: max_points.clamp(1, BATCH_POINTS),
            ..Self::default()
        }
    }

    /// The lines that follow are of another file. What was added before has to be taken first.
    pub(super) fn begin(&mut self, file: usize) {
        self.batch.file = file;
    }

    /// Whether there is nothing to take.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.points() == 0
    }

    /// Adds a line of the file that the batch is of.
    ///
    /// # Errors
    ///
    /// If it is no point; nothing was added then.
    pub(super) fn add(&mut self, text: &[u8], number: u64) -> Result<(), LineError> {
        let text = str::from_utf8(text).map_err(|_| LineError::NotUtf8)?;
        let Some(line) = line::parse(text)? else {
            return Ok(());
        };
        let series = self.series(&line)?;
        match line.value {
            Value::Int(int) => self.batch.ints.push(series, line.timestamp_ms, int, number),
            Value::Float(float) => {
                let double = f64::from(float);
                self.batch.doubles.push(series, line.timestamp_ms, double, number);
            }
            Value::Double(double) => self.batch.doubles.push(series, line.timestamp_ms, double, number),
        }
        self.batch.bytes += text.len();
        Ok(())
    }

    /// Whether the batch should be sent before another line is added.
    pub(super) fn is_full(&self) -> bool {
        self.batch.points() >= self.max_points
            || self.batch.bytes >= BATCH_BYTES
            || (self.dictionary_is_full() && self.batch.points() > 0)
    }

    /// The batch; the next one is of `file`.
    pub(super) fn take(&mut self, file: usize) -> Batch {
        let fresh = self.dictionary_is_full();
        if fresh {
            self.dictionary = Dictionary::default();
        }
        let next = Batch {
            fresh,
            file,
            ..Batch::default()
        };
        std::mem::replace(&mut self.batch, next)
    }

    fn dictionary_is_full(&self) -> bool {
        self.dictionary.series.len() >= self.max_series
            || self.dictionary.name_bytes >= DICTIONARY_NAME_BYTES
            || self.dictionary.series_bytes >= DICTIONARY_SERIES_BYTES
    }

    fn series(&mut self, line: &Line<'_>) -> Result<u32, LineError> {
        let Self {
            dictionary, batch, ..
        } = self;
        dictionary.key.clear();
        dictionary.key.push_str(line.metric);
        dictionary.key.push(' ');
        dictionary.key.push_str(line.tags);
        if let Some(number) = dictionary.series.get(dictionary.key.as_str()) {
            return Ok(*number);
        }
        let tags = line::tags(line.tags)?;
        let metric = dictionary.name(line.metric, batch);
        let tags = tags
            .into_iter()
            .flat_map(|(key, value)| [key, value])
            .map(|name| dictionary.name(name, batch))
            .collect();
        let number = u32::try_from(dictionary.series.len()).unwrap_or(u32::MAX);
        dictionary.series_bytes += dictionary.key.len();
        dictionary.series.insert(dictionary.key.as_str().into(), number);
        batch.series.push(SeriesNames { metric, tags });
        Ok(number)
    }
}

impl Dictionary {
    fn name(&mut self, name: &str, batch: &mut Batch) -> u32 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.name_bytes += name.len();
        self.names.insert(name.into(), number);
        batch.names.push(name.into());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lines: &[&str]) -> Batch {
        let mut batcher = Batcher::new(100, BATCH_POINTS);
        for (line, number) in lines.iter().zip(1..) {
            batcher.add(line.as_bytes(), number).unwrap();
        }
        batcher.take(0)
    }

    #[test]
    fn names_and_series_are_declared_once_in_the_order_of_the_points() {
        let batch = batch(&["m 1 1 a=x b=y", "m 2 2.5 a=x b=y", "", "m 3 3 a=y b=y"]);
        let names: Vec<&str> = batch.names.iter().map(|name| &**name).collect();
        assert_eq!(names, ["m", "a", "x", "b", "y"]);
        assert_eq!(batch.series.len(), 2);
        assert_eq!(*batch.series[1].tags, [1, 4, 3, 4]);
        assert_eq!(batch.ints.series, [0, 1]);
        assert_eq!(batch.doubles.values, [2.5]);
        let lines: Vec<_> = (0..4).map(|point| batch.line(point)).collect();
        assert_eq!(lines, [Some(1), Some(4), Some(2), None]);
        assert_eq!((batch.first_line(), batch.last_line()), (1, 4));
    }

    #[test]
    fn a_bad_line_declares_nothing() {
        let mut batcher = Batcher::new(100, BATCH_POINTS);
        batcher.add(b"m 1 1 a", 1).unwrap_err();
        batcher.add(b"m 1 1 a=b a=c", 2).unwrap_err();
        batcher.add(b"m 1 \xff a=b", 3).unwrap_err();
        let batch = batcher.take(0);
        assert_eq!((batch.names.len(), batch.series.len(), batch.points()), (0, 0, 0));
    }

    #[test]
    fn a_batch_fits_the_window_of_the_server() {
        let mut batcher = Batcher::new(100, 3);
        for number in 1..=3 {
            assert!(!batcher.is_full());
            batcher.add(b"m 1 1 a=1", number).unwrap();
        }
        assert!(batcher.is_full());
        assert_eq!(batcher.take(0).points(), 3);
    }

    #[test]
    fn a_full_dictionary_begins_anew() {
        let mut batcher = Batcher::new(2, BATCH_POINTS);
        batcher.add(b"m 1 1 a=1", 1).unwrap();
        assert!(!batcher.is_full());
        batcher.add(b"m 1 1 a=2", 2).unwrap();
        assert!(batcher.is_full());
        assert!(!batcher.take(0).fresh);
        batcher.add(b"m 1 1 a=1", 3).unwrap();
        let next = batcher.take(0);
        assert!(next.fresh);
        assert_eq!((next.names.len(), next.ints.series.as_slice()), (3, &[0][..]));
    }
}
