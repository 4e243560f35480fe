//! Results of queries as streams in Arrow's IPC format, which pandas, DuckDB, Polars and others read as a table.
//!
//! ```text
//!   column      type                                   of a point
//!   metric      dictionary of string                   the metric
//!   timestamp   timestamp, milliseconds                UTC
//!   value       double, nullable                       the value, of an integer the nearest double; null: the fill policy `null`
//!   integer     int64, nullable                        the value, if it is an integer
//!   tags        map of string to dictionary of string  the tags that all series of the group share
//!   query       int32                                  the sub-query, from 0
//!   series      int32                                  the number of the group in the result, from 0
//! ```
//!
//! `tsdb scan --parquet` writes the same first five columns. One column for each tag key would be handier, but the schema comes first,
//! and the keys are known only when all series are. A row for each point in place of a column for each series lets points be sent in the
//! order in which a query computes them: [`BatchWriter`] keeps one record batch, whatever the number of points and series.
//!
//! ```text
//!   stream    schema | dictionaries that changed | record batch | dictionaries … | end
//!   message   FF FF FF FF | bytes of the metadata (4) | metadata: a FlatBuffer | body: buffers, each padded to 8 bytes
//!   end       FF FF FF FF | 00 00 00 00                             a stream without it is incomplete
//! ```
//!
//! A dictionary that changed is sent whole: not all readers know the additions (`isDelta`). Little endian throughout.
//!
//! ```
//! use oxtsdb_arrow_stream::{BatchWriter, END, Row, Series, Value, schema};
//!
//! let series = Series::new(0, 0, "sys.cpu.user", [("host", "web01")]);
//! let mut rows = (0..3).map(|n| Row { time_ms: 1_767_571_200_000 + n * 1000, value: Value::Int(n) });
//! let mut batch = BatchWriter::default();
//! batch.fill(&series, &mut rows);
//! let stream = [schema(), batch.take(), END.to_vec()].concat();
//! assert!(stream.starts_with(b"\xff\xff\xff\xff"));
//! ```
//!
//! Source: <https://arrow.apache.org/docs/format/Columnar.html>, format version V5.

mod batch;
mod columns;
mod flat;
mod message;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use batch::{BatchWriter, MAX_ROWS, Row, Series, Value};
pub use message::{END, schema};

/// The media type of a stream.
pub const MEDIA_TYPE: &str = "application/vnd.apache.arrow.stream";
