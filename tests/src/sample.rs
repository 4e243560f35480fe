//! One point, in the form of each front end.

use std::collections::HashMap;
use std::fmt;

use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::{Columns, DeltaTimestamps};
use serde_json::{Value, json};

/// A value as it was written or read.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// Any other number.
    Double(f64),
}

impl Number {
    /// As a floating point number.
    #[expect(clippy::cast_precision_loss, reason = "tests compare small integers this way")]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Double(value) => value,
        }
    }
}

/// Equal in type and in every bit, so that 1 is not 1.0 and -0.0 not 0.0.
impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::Int(_), Self::Double(_)) | (Self::Double(_), Self::Int(_)) => false,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            // With a dot or an exponent: without one it would be an integer.
            Self::Double(value) => write!(f, "{value:?}"),
        }
    }
}

/// A point: one value of one series at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Metric name.
    pub metric: String,
    /// Tags in the order in which they are sent.
    pub tags: Vec<(String, String)>,
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// The value.
    pub value: Number,
}

impl Sample {
    /// A point with an integer.
    pub fn int(metric: &str, tags: &[(&str, &str)], timestamp_ms: i64, value: i64) -> Self {
        Self::new(metric, tags, timestamp_ms, Number::Int(value))
    }

    /// A point.
    pub fn new(metric: &str, tags: &[(&str, &str)], timestamp_ms: i64, value: Number) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            metric: metric.to_owned(),
            tags: tags.iter().map(owned).collect(),
            timestamp_ms,
            value,
        }
    }

    /// The same point of another metric.
    #[must_use]
    pub fn with_metric(&self, metric: &str) -> Self {
        Self {
            metric: metric.to_owned(),
            ..self.clone()
        }
    }

    /// For `/api/put`. The number goes as text, so that both sides see the same digits.
    pub fn to_json(&self) -> Value {
        let tags: serde_json::Map<String, Value> = self
            .tags
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
            .collect();
        json!({
            "metric": self.metric,
            "timestamp": self.opentsdb_timestamp(),
            "value": self.value.to_string(),
            "tags": tags,
        })
    }

    /// For `tsdb import`, without the end of the line.
    pub fn to_import_line(&self) -> String {
        let mut line = format!("{} {} {}", self.metric, self.opentsdb_timestamp(), self.value);
        for (key, value) in &self.tags {
            line.push_str(&format!(" {key}={value}"));
        }
        line
    }

    /// For telnet, with the end of the line.
    pub fn to_telnet_line(&self) -> String {
        format!("put {}\n", self.to_import_line())
    }

    /// OpenTSDB distinguishes seconds and milliseconds by size: whole seconds are sent as seconds.
    fn opentsdb_timestamp(&self) -> i64 {
        if self.timestamp_ms % 1000 == 0 {
            self.timestamp_ms / 1000
        } else {
            self.timestamp_ms
        }
    }
}

/// Makes messages of the compact form. Symbols and series live as long as this value: as long as a
/// stream, or as one request.
#[derive(Debug, Default)]
pub struct ColumnsBuilder {
    symbols: HashMap<String, u32>,
    series: HashMap<Vec<u32>, u32>,
}

impl ColumnsBuilder {
    /// A message with all points, in their order; a block for each run of one type of value.
    pub fn columns(&mut self, samples: &[Sample]) -> Columns {
        let mut columns = Columns {
            first_symbol: count(self.symbols.len()),
            first_series: count(self.series.len()),
            ..Columns::default()
        };
        for run in samples.chunk_by(|a, b| is_int(a) == is_int(b)) {
            let series: Vec<u32> = run
                .iter()
                .map(|sample| self.series_number(sample, &mut columns))
                .collect();
            let timestamps: Vec<i64> = run.iter().map(|sample| sample.timestamp_ms).collect();
            let mut block = Block {
                series,
                delta_timestamps: DeltaTimestamps::encode(&timestamps),
                ..Block::default()
            };
            for sample in run {
                match sample.value {
                    Number::Int(value) => block.int_values.push(value),
                    Number::Double(value) => block.values.push(value),
                }
            }
            columns.blocks.push(block);
        }
        columns
    }

    fn series_number(&mut self, sample: &Sample, columns: &mut Columns) -> u32 {
        let mut key = vec![self.symbol(&sample.metric, columns)];
        for (tagk, tagv) in &sample.tags {
            key.push(self.symbol(tagk, columns));
            key.push(self.symbol(tagv, columns));
        }
        if let Some(number) = self.series.get(&key) {
            return *number;
        }
        let number = count(self.series.len());
        columns.new_series.push(SeriesDeclaration {
            metric_symbol: key.first().copied().unwrap_or_default(),
            tag_symbols: key.get(1..).unwrap_or_default().to_vec(),
            tsuid: Default::default(),
        });
        self.series.insert(key, number);
        number
    }

    fn symbol(&mut self, text: &str, columns: &mut Columns) -> u32 {
        if let Some(number) = self.symbols.get(text) {
            return *number;
        }
        let number = count(self.symbols.len());
        self.symbols.insert(text.to_owned(), number);
        columns.new_symbols.push(text.to_owned());
        number
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a test has fewer names than 2^32")
}

fn is_int(sample: &Sample) -> bool {
    matches!(sample.value, Number::Int(_))
}

/// A span of whole seconds, as messages have it.
pub fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}
