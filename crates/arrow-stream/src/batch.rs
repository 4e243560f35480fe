//! The record batch that is being filled.

use std::sync::Arc;

use bytes::BufMut as _;

use crate::columns::{Buffers, Dictionary, Nullable, Offsets, Texts, index};
use crate::message::{METRICS, TAG_VALUES, write_batch, write_dictionary};

/// Rows of a batch at most.
pub const MAX_ROWS: usize = 8192;

/// Bytes of a batch from which on it is full: with many tags, or long ones.
const FULL_BYTES: usize = 1 << 20;

/// Bytes of a row beside its tags: three numbers of 8 bytes, two of them with a bit for nulls, and four of 4 bytes.
const ROW_BYTES: usize = 3 * 8 + 1 + 4 * 4;

/// Bytes of a dictionary from which on the next batch begins a new one, which then has its own texts only.
const DICTIONARY_BYTES: usize = 64 << 10;

/// A group of series: one series of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The sub-query, from 0.
    pub query: usize,
    /// Its number in the result, from 0.
    pub number: usize,
    /// Metric, or another name of the result.
    pub metric: Arc<str>,
    /// Key and value of the tags.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

impl Series {
    /// A series with tags of any form.
    pub fn new<T: Into<Arc<str>>>(
        query: usize,
        number: usize,
        metric: impl Into<Arc<str>>,
        tags: impl IntoIterator<Item = (T, T)>,
    ) -> Self {
        Self {
            query,
            number,
            metric: metric.into(),
            tags: tags
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        }
    }
}

/// A point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Milliseconds since the epoch.
    pub time_ms: i64,
    /// The value.
    pub value: Value,
}

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer, which is in the column `integer`, and as the nearest double in `value`.
    Int(i64),
    /// Floating point.
    Double(f64),
    /// Null.
    Null,
}

/// Encodes rows as record batches of about a megabyte at most.
#[derive(Debug, Default)]
pub struct BatchWriter {
    metrics: Dictionary,
    tag_values: Dictionary,
    rows: usize,
    /// Tags of all rows.
    tags: usize,
    metric: Vec<u8>,
    timestamp: Vec<u8>,
    value: Nullable,
    integer: Nullable,
    tags_of_row: Offsets,
    tag_key: Texts,
    tag_value: Vec<u8>,
    query: Vec<u8>,
    series: Vec<u8>,
}

impl BatchWriter {
    /// Adds rows of a series until there are no more, or the batch is full.
    pub fn fill(&mut self, series: &Series, rows: &mut dyn Iterator<Item = Row>) {
        let metric = self.metrics.place(&series.metric);
        let tags = series.tags.iter();
        let tags: Vec<_> = tags
            .map(|(key, value)| (key, self.tag_values.place(value)))
            .collect();
        while !self.is_full()
            && let Some(Row { time_ms, value }) = rows.next()
        {
            self.metric.put_i32_le(metric);
            self.timestamp.put_i64_le(time_ms);
            let (double, integer) = match value {
                #[expect(clippy::cast_precision_loss, reason = "column `integer` has it exactly")]
                Value::Int(integer) => (Some(integer as f64), Some(integer)),
                Value::Double(double) => (Some(double), None),
                Value::Null => (None, None),
            };
            self.value.push(double.map(f64::to_bits));
            self.integer.push(integer.map(i64::cast_unsigned));
            for (key, value) in &tags {
                self.tag_key.push(key);
                self.tag_value.put_i32_le(*value);
            }
            self.tags += tags.len();
            self.tags_of_row.push(self.tags);
            self.query.put_i32_le(index(series.query));
            self.series.put_i32_le(index(series.number));
            self.rows += 1;
        }
    }

    /// Whether it takes no more rows.
    pub fn is_full(&self) -> bool {
        self.rows >= MAX_ROWS || self.bytes() >= FULL_BYTES
    }

    /// The memory that it takes, in bytes; the messages of [`BatchWriter::take`] take as much at most, and a kilobyte.
    pub fn bytes(&self) -> usize {
        let dictionaries = self.metrics.bytes() + self.tag_values.bytes();
        dictionaries + self.rows * ROW_BYTES + self.tags * size_of::<i32>() + self.tag_key.bytes()
    }

    /// The messages of its rows, which it then has no more; empty without rows.
    pub fn take(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.rows == 0 {
            return out;
        }
        if let Some(buffers) = self.metrics.unsent() {
            write_dictionary(&mut out, METRICS, &buffers);
        }
        if let Some(buffers) = self.tag_values.unsent() {
            write_dictionary(&mut out, TAG_VALUES, &buffers);
        }
        write_batch(&mut out, &self.buffers());
        self.clear();
        out
    }

    /// The columns, in the order of the schema, each before its parts.
    fn buffers(&self) -> Buffers<'_> {
        let mut buffers = Buffers::new(self.rows);
        buffers.column(self.rows, &[&self.metric]);
        buffers.column(self.rows, &[&self.timestamp]);
        self.value.add_to(&mut buffers);
        self.integer.add_to(&mut buffers);
        buffers.column(self.rows, &[self.tags_of_row.buffer()]);
        // The entries of the map: keys and values.
        buffers.column(self.tags, &[]);
        buffers.column(self.tags, &self.tag_key.buffers());
        buffers.column(self.tags, &[&self.tag_value]);
        buffers.column(self.rows, &[&self.query]);
        buffers.column(self.rows, &[&self.series]);
        buffers
    }

    fn clear(&mut self) {
        (self.rows, self.tags) = (0, 0);
        for column in [
            &mut self.metric,
            &mut self.timestamp,
            &mut self.tag_value,
            &mut self.query,
            &mut self.series,
        ] {
            column.clear();
        }
        self.value.clear();
        self.integer.clear();
        self.tags_of_row.clear();
        self.tag_key.clear();
        for dictionary in [&mut self.metrics, &mut self.tag_values] {
            if dictionary.bytes() >= DICTIONARY_BYTES {
                dictionary.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
