//! OpenTSDB's storage formats: the content of its HBase tables, as types and pure functions.
//!
//! No I/O, no async, no clock. Each module implements one format, with its layout at the top and its source
//! named.
//!
//! | module | format |
//! |---|---|
//! | [`name`] | names of metrics, tag keys and tag values (ISO-8859-1) |
//! | [`uid`], [`uid_table`] | UIDs, and the families, qualifiers and counters of table `tsdb-uid` |
//! | [`PerKind`], [`UidSet`], [`AssignedUid`], [`KindState`] | values of UIDs that crates share |
//! | [`tsuid`] | metric UID and tag pairs: the identity of a series |
//! | [`timestamp`] | seconds or milliseconds, and the hour a point belongs to |
//! | [`value`] | integers of 1, 2, 4, 8 bytes and floats of 4, 8; their text forms |
//! | [`qualifier`] | a point's offset within its hour, and the type of its value |
//! | [`salt`], [`row_key`], [`data_table`] | keys of table `tsdb` |
//! | [`annotation`] | annotations: their cells in table `tsdb` |
//! | [`histogram`] | histograms: their cells in table `tsdb`, their text form, merging, percentiles |
//! | [`rollup`] | rollups and pre-aggregates: their cells, and the setting of tables and intervals |
//! | [`row`] | all cells of one hour of one series, decoded to points; points encoded as one cell; compaction of a row |
//! | [`uid_meta`], [`ts_meta`], [`document`] | metadata of UIDs and series, as JSON |
//! | [`java`] | what Java decides: texts of doubles, hashes of strings, the order of hash maps |
//! | [`tree`] | table `tsdb-tree`: definitions, rules, branches and leaves of trees |
//! | [`stored_json`] | JSON documents (metadata, annotations, trees) as OpenTSDB serialises them |
//!
//! All integers are big endian. `Ord`, where implemented, is HBase's order (unsigned bytes).

#![warn(clippy::indexing_slicing)]

pub mod annotation;
pub mod data_table;
pub mod document;
#[cfg(test)]
mod golden;
mod hex_text;
pub mod histogram;
pub mod java;
pub mod name;
mod per_kind;
pub mod qualifier;
pub mod rollup;
pub mod row;
pub mod row_key;
pub mod salt;
pub mod stored_json;
pub mod timestamp;
pub mod tree;
pub mod ts_meta;
pub mod tsuid;
pub mod uid;
mod uid_assignment;
pub mod uid_meta;
mod uid_set;
pub mod uid_table;
pub mod value;

pub use annotation::{Annotation, AnnotationError};
pub use histogram::{Histogram, HistogramCodecs, HistogramError};
pub use name::{Name, NameError, NameRules};
pub use per_kind::PerKind;
pub use qualifier::Qualifier;
pub use rollup::{RollupConfig, RollupInterval, RowSpan};
pub use row::{CellKind, CellRef, DuplicatePolicy, Points, RowError, RowStats};
pub use row_key::{RowKey, RowKeyLayout, RowKeyRef};
pub use salt::SaltLayout;
pub use timestamp::{BaseTime, HOUR_SECONDS, Timestamp};
pub use tsuid::Tsuid;
pub use uid::{MetricUid, TagkUid, TagvUid, Uid, UidKind, UidWidth, UidWidths};
pub use uid_assignment::{AssignedUid, KindState};
pub use uid_meta::UidMeta;
pub use uid_set::UidSet;
pub use value::Value;
