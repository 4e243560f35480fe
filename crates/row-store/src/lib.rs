//! HBase's data model as a trait, with backends in memory, on local disk and on HBase.
//!
//! ```text
//!   table ─ rows, sorted by key (unsigned bytes)
//!             └ column families (maximum versions, time to live)
//!                 └ qualifiers
//!                     └ cells: timestamp (ms) and value
//! ```
//!
//! [`RowStore`] has the operations that OpenTSDB's four tables need, with HBase's names and guarantees; its server
//! watches and closes a store through [`StoreControl`]. No method returns the kind of the backend: assembly chooses it,
//! and passes the properties that matter elsewhere as values, such as [`Writers`]. `conformance` states the same
//! guarantees as executable checks, which every backend passes. `intercept` lets tests delay, fail or replace the
//! operations of a store. Both need the feature `testing`. [`repair`] changes cells together on every store.
//!
//! | Backend | Purpose |
//! |---|---|
//! | [`memory`] | tests, and the reference that the other backends are compared with |
//! | [`cells`] | a single machine: plain cells in an LSM tree |
//! | [`hbase`] | a cluster: HBase over its own RPC, or through its Thrift gateways |

mod batch;
mod cell_list;
pub mod cells;
mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
mod damage;
mod error;
mod gateway_figures;
pub mod hbase;
#[cfg(feature = "testing")]
pub mod intercept;
mod limits;
mod measure;
pub mod memory;
pub mod repair;
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
pub use gateway_figures::GatewayFigures;
pub use measure::RangeMeasure;
pub use row::{CellRef, Row, RowBuilder};
pub use scan::{ColumnSelection, FetchMemory, KeyPart, KeyRange, RowFilter, RowStream, Scan, prefix_end};
pub use store::{AtomicCommit, CellAddress, Condition, RowStore, StoreControl, Writers};
pub use table::{FamilyDef, TableDef};
pub use table_name::{TableName, TableNameError};
