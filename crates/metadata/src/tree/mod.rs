//! Trees: series sorted into a hierarchy by rules. Table `tsdb-tree`.
//!
//! ```text
//!   new series ──► process ─┐                    ┌─► facts (names, custom fields) ◄── uids
//!   tsdb-meta ───► sync ────┼─► place ───────────┼─► evaluate (rules; pure)
//!   TSUIDs ──────► test     ┘   (store)          └─► table
//!   edits ───────► define ──► table              branch, problems, delete ──► table
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`rule`], [`evaluate`] | checks rules, applies them to a series |
//! | [`edit`], [`define`] | definitions and rules: create, change by compare-and-put, delete |
//! | `facts` | resolves the names and custom fields that rules use |
//! | [`place`] | stores branches, leaves, collisions and series that did not match |
//! | [`process`], [`sync`], [`mod@test`] | series as they appear, all series, single series without storing |
//! | [`branch`], [`problems`] | reads branches, collisions and series that did not match |
//! | [`delete`] | deletes what was placed, and the definition |
//!
//! Cells are OpenTSDB's, and both may work on one table. Unlike OpenTSDB's, this implementation loses nothing: a lost
//! compare-and-put of a new definition is noticed, collisions of new series are stored, and so are series that did not match.
//!
//! Source: OpenTSDB 2.4, packages `tree` and `tsd.TreeRpc`.

pub mod branch;
pub mod define;
pub mod delete;
pub mod edit;
mod enabled;
pub mod error;
pub mod evaluate;
mod facts;
pub mod place;
pub mod problems;
pub mod process;
pub mod rule;
pub mod sync;
mod table;
pub mod test;

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{RowStore, TableName};

pub use enabled::ReadyTree;
pub use facts::CustomFields;

use crate::uids::Uids;
pub use problems::Problem;
pub use table::Tree;

use enabled::EnabledTrees;
use table::TreeTable;

/// How long the UID service may take for the names of a batch.
const NAMES_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads of the store that one operation runs at a time.
const CONCURRENT_CALLS: usize = 16;

/// Writes of the store that one operation has in flight. The embedded store commits them in groups, with one sync each.
pub const CONCURRENT_PUTS: usize = 64;

/// Trees and their branches. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Trees(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: TreeTable,
    meta_table: TableName,
    uids: Uids,
    /// `None`: rules over custom fields match nothing.
    custom_fields: Option<Arc<dyn CustomFields>>,
    /// Compiles and evaluates rules.
    compute: ComputePool,
    enabled: EnabledTrees,
    /// Held for reading while series are stored, and for writing by a deletion between switching a tree off and
    /// removing its rows.
    placing: tokio::sync::RwLock<()>,
}

impl Trees {
    /// The trees of an existing table. Reads nothing.
    pub fn new(
        store: Arc<dyn RowStore>,
        (table, meta_table): (TableName, TableName),
        uids: Uids,
        custom_fields: Option<Arc<dyn CustomFields>>,
        compute: ComputePool,
    ) -> Self {
        Self(Arc::new(Inner {
            table: TreeTable {
                store,
                name: table,
                compute: compute.clone(),
            },
            meta_table,
            uids,
            custom_fields,
            compute,
            enabled: EnabledTrees::default(),
            placing: tokio::sync::RwLock::default(),
        }))
    }

    /// The table.
    pub fn table_name(&self) -> &TableName {
        &self.0.table.name
    }

    /// Names and UIDs.
    pub fn uids(&self) -> &Uids {
        &self.0.uids
    }
}
