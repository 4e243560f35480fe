//! HBase's data model as a trait, and the backends behind it.
//!
//! ```text
//!   table ─ rows sorted by key (unsigned bytes)
//!             └ column families (versions kept, time to live)
//!                 └ qualifiers
//!                     └ cells: timestamp (ms) and value
//! ```
//!
//! [`RowStore`] lists the operations that OpenTSDB's four tables need, with HBase's names and
//! guarantees. [`conformance`] says the same as code: every backend passes that suite.
//! Tests of the trait's users make a store wait or fail with [`intercept`].
//!
//! | Backend | For |
//! |---|---|
//! | [`memory`] | tests, and the model that the others are compared with |
//! | [`embedded`] | one machine: journal with group commit, memory, row blocks on disk |
//! | [`hbase`] | a cluster: HBase through its Thrift gateway |

mod batch;
mod cell_list;
mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
mod damage;
pub mod embedded;
mod error;
pub mod hbase;
#[cfg(feature = "testing")]
pub mod intercept;
mod limits;
mod measure;
pub mod memory;
mod points;
mod row;
mod rules;
mod scan;
mod store;
mod table;
mod table_name;

pub use batch::{FamilyId, MutationRef, RowMutations, WriteBatch};
pub use clock::Clock;
pub use damage::{DamageLog, DamagedRange};
pub use error::{Retry, StoreError};
pub use measure::RangeMeasure;
pub use points::{PointColumns, PointValues};
pub use row::{CellRef, Row, RowBuilder};
pub use scan::{ColumnSelection, RowFilter, RowStream, Scan, prefix_end};
pub use store::{AtomicCommit, CellAddress, Condition, RowStore};
pub use table::{FamilyDef, TableDef};
pub use table_name::{TableName, TableNameError};
