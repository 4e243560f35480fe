//! Lines become points and rollups, in batches that the reader passes on.

use std::sync::Arc;

use oxtsdb_client::{Aggregate, Point, Rollup, SeriesName, Timestamp, Value};
use oxtsdb_schema::Value as Stored;
use oxtsdb_schema::rollup::AggregateWord;
use rustc_hash::FxHashMap;

use super::line::{self, Line, LineError};

/// Points and rollups of a batch.
const BATCH_POINTS: usize = 4096;

/// Text of the lines of a batch, which bounds its memory.
const BATCH_BYTES: usize = 4 << 20;

/// Text of the series that are kept, which bounds the memory of long imports.
const SERIES_BYTES: usize = 128 << 20;

/// Points and rollups of one file.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The file, by its place among the arguments.
    pub(super) file: usize,
    /// The points.
    pub(super) points: Vec<Point>,
    /// The line of each point, from 1.
    pub(super) lines: Vec<u64>,
    /// The rollups.
    pub(super) rollups: Vec<Rollup>,
    /// The line of each rollup, from 1.
    pub(super) rollup_lines: Vec<u64>,
    bytes: usize,
}

/// Collects the points of lines.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    /// By metric and tags as they stand in the line.
    series: FxHashMap<Box<str>, SeriesName>,
    series_bytes: usize,
    /// A look-up key that is built again and again.
    key: String,
    batch: Batch,
}

impl Batcher {
    /// Starts a file. The batch before has to be taken.
    pub(super) fn begin(&mut self, file: usize) {
        self.batch.file = file;
    }

    /// Adds a line of the file; an empty one adds nothing.
    ///
    /// # Errors
    ///
    /// If it is neither a point nor a rollup.
    pub(super) fn add(&mut self, text: &[u8], number: u64) -> Result<(), LineError> {
        let text = str::from_utf8(text).map_err(|_| LineError::NotUtf8)?;
        let Some(line) = line::parse(text)? else {
            return Ok(());
        };
        let point = Point {
            series: self.series(&line)?,
            timestamp: Timestamp::from_millis(line.timestamp_ms),
            value: match line.value {
                Stored::Int(int) => Value::Int(int),
                Stored::Float(float) => Value::Double(float.into()),
                Stored::Double(double) => Value::Double(double),
            },
        };
        match line.aggregate {
            None => {
                self.batch.points.push(point);
                self.batch.lines.push(number);
            }
            Some(word) => {
                let aggregate = aggregate(word, self.batch.rollups.last());
                self.batch.rollups.push(Rollup { aggregate, point });
                self.batch.rollup_lines.push(number);
            }
        }
        self.batch.bytes += text.len();
        Ok(())
    }

    /// Whether the batch has to be taken before another line is added.
    pub(super) fn is_full(&self) -> bool {
        let Batch { points, rollups, .. } = &self.batch;
        points.len() + rollups.len() >= BATCH_POINTS || self.batch.bytes >= BATCH_BYTES
    }

    /// The batch, unless it is empty.
    pub(super) fn take(&mut self) -> Option<Batch> {
        let next = Batch {
            file: self.batch.file,
            ..Batch::default()
        };
        let batch = std::mem::replace(&mut self.batch, next);
        let is_empty = batch.points.is_empty() && batch.rollups.is_empty();
        (!is_empty).then_some(batch)
    }

    fn series(&mut self, line: &Line<'_>) -> Result<SeriesName, LineError> {
        self.key.clear();
        self.key.push_str(line.metric);
        self.key.push(' ');
        self.key.push_str(line.tags);
        if let Some(series) = self.series.get(self.key.as_str()) {
            return Ok(series.clone());
        }
        let series = SeriesName::new(line.metric, line::tags(line.tags)?);
        if self.series_bytes >= SERIES_BYTES {
            self.series.clear();
            self.series_bytes = 0;
        }
        self.series_bytes += self.key.len();
        self.series.insert(self.key.as_str().into(), series.clone());
        Ok(series)
    }
}

/// The aggregate of a word; the last rollup's if it is the same.
fn aggregate(word: &str, last: Option<&Rollup>) -> Arc<Aggregate> {
    let word = AggregateWord::parse(word);
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let aggregate = Aggregate {
        interval: owned(word.interval),
        aggregator: owned(word.aggregator),
        group_by: owned(word.group_by),
    };
    match last {
        Some(last) if *last.aggregate == aggregate => Arc::clone(&last.aggregate),
        _ => Arc::new(aggregate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_an_aggregate_become_rollups() {
        let mut batcher = Batcher::default();
        let lines = [
            "rollup 1h-sum m 3600 7 a=x",
            "m 3600 1 a=x",
            "rollup 1h-sum:max m 7200 0.5 a=x",
            "rollup 3600 1 a=x",
        ];
        for (line, number) in lines.iter().zip(1..) {
            batcher.add(line.as_bytes(), number).unwrap();
        }
        let batch = batcher.take().unwrap();
        assert_eq!(
            (&batch.lines[..], &batch.rollup_lines[..]),
            (&[2, 4][..], &[1, 3][..])
        );
        let aggregates = batch.rollups.iter().map(|rollup| {
            let aggregate = &*rollup.aggregate;
            [&aggregate.interval, &aggregate.aggregator, &aggregate.group_by].map(String::as_str)
        });
        let aggregates: Vec<[&str; 3]> = aggregates.collect();
        assert_eq!(aggregates, [["1h", "sum", ""], ["1h", "sum", "max"]]);
        assert_eq!(batch.points[1].series, SeriesName::new("rollup", [("a", "x")]));
        assert_eq!(batch.rollups[0].point.value, Value::Int(7));
    }

    #[test]
    fn lines_become_points_with_their_line_numbers() {
        let mut batcher = Batcher::default();
        batcher.begin(3);
        for (line, number) in ["m 1 1 a=x b=y", "m 2 2.5 a=x b=y", "", "m 3 3 a=y"]
            .iter()
            .zip(1..)
        {
            batcher.add(line.as_bytes(), number).unwrap();
        }
        let batch = batcher.take().unwrap();
        assert_eq!((batch.file, &batch.lines[..]), (3, &[1, 2, 4][..]));
        let values: Vec<Value> = batch.points.iter().map(|point| point.value).collect();
        assert_eq!(values, [Value::Int(1), Value::Double(2.5), Value::Int(3)]);
        assert_eq!(
            batch.points[1].series,
            SeriesName::new("m", [("a", "x"), ("b", "y")])
        );
        assert!(batcher.take().is_none());
    }

    #[test]
    fn rejected_lines_add_nothing() {
        let mut batcher = Batcher::default();
        batcher.add(b"m 1 1 a", 1).unwrap_err();
        batcher.add(b"m 1 1 a=b a=c", 2).unwrap_err();
        batcher.add(b"m 1 \xff a=b", 3).unwrap_err();
        assert!(batcher.take().is_none());
        assert!(batcher.series.is_empty());
    }

    #[test]
    fn batches_are_bounded() {
        let mut batcher = Batcher::default();
        for number in 1..=4096 {
            assert!(!batcher.is_full());
            batcher.add(b"m 1 1 a=1", number).unwrap();
        }
        assert!(batcher.is_full());
    }
}
