//! OpenTSDB's bytes: what its tables in HBase hold, as types and pure functions.
//!
//! No I/O, no async, no clock: whoever reads and writes cells calls this crate to know what they
//! mean. Each module is one format, with its layout at the top and its source named.
//!
//! | module | bytes |
//! |---|---|
//! | [`name`] | names of metrics, tag keys and tag values (ISO-8859-1) |
//! | [`uid`], [`uid_table`] | UIDs, and the families, qualifiers and counters of table `tsdb-uid` |
//! | [`tsuid`] | metric UID and tag pairs: the identity of a series |
//! | [`timestamp`] | seconds or milliseconds, and the hour a point belongs to |
//! | [`value`] | integers of 1, 2, 4, 8 bytes and floats of 4, 8; the texts they are read from |
//! | [`qualifier`] | a point's place in its hour, and the type of its value |
//! | [`salt`], [`row_key`], [`data_table`] | keys of table `tsdb` |
//! | [`row`] | all cells of one hour of one series, read as points; points written as one cell |
//! | [`java`] | doubles as Java prints them |
//!
//! All integers are big endian. `Ord` is HBase's order (unsigned bytes) wherever a type has it.
#![warn(clippy::indexing_slicing)]

pub mod data_table;
#[cfg(test)]
mod golden;
mod hex_text;
pub mod java;
pub mod name;
pub mod qualifier;
pub mod row;
pub mod row_key;
pub mod salt;
pub mod timestamp;
pub mod tsuid;
pub mod uid;
pub mod uid_table;
pub mod value;

pub use name::{Name, NameError, NameRules};
pub use qualifier::Qualifier;
pub use row::{CellKind, CellRef, DuplicatePolicy, Points, RowError, RowStats};
pub use row_key::{RowKey, RowKeyLayout, RowKeyRef};
pub use salt::SaltLayout;
pub use timestamp::{BaseTime, HOUR_SECONDS, Timestamp};
pub use tsuid::Tsuid;
pub use uid::{MetricUid, TagkUid, TagvUid, Uid, UidKind, UidWidth, UidWidths};
pub use value::Value;
