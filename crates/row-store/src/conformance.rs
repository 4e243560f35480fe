//! What every store must do, as code: the docs of [`RowStore`] say it in words.
//!
//! A backend's test is one call of [`suite`]. The checks use the trait alone and promise
//! themselves nothing that HBase does not promise: tables have names of their own in each run, cells that the store
//! dates may have the same millisecond, a time to live is met within seconds, and a put with an
//! old timestamp of its own may stay hidden behind an earlier delete.

#![expect(clippy::unwrap_used, reason = "a check that fails panics")]

mod conditions;
mod errors;
mod reads;
mod writes;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use futures::future::BoxFuture;

use crate::{
    CellAddress, ColumnSelection, FamilyDef, FamilyId, RangeMeasure, Row, RowStore, Scan, TableDef,
    TableName, WriteBatch,
};

/// A check: its name, and the code.
type Check = (&'static str, for<'a> fn(&'a Subject<'a>) -> BoxFuture<'a, ()>);

/// Lists async functions as checks.
macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), |subject| Box::pin($module::$name(subject)))),*]
    };
}

const CHECKS: &[Check] = checks![
    writes::a_written_cell_is_read_back,
    writes::keys_qualifiers_and_values_are_binary,
    writes::the_later_of_two_puts_at_one_time_stays,
    writes::the_newest_version_is_read,
    writes::a_family_keeps_its_number_of_versions,
    writes::cells_expire,
    writes::a_batch_writes_many_rows,
    writes::a_batch_may_be_written_twice,
    writes::an_empty_batch_does_nothing,
    writes::values_may_be_big,
    writes::qualifiers_may_be_long,
    writes::a_row_may_have_many_cells,
    writes::a_column_is_deleted,
    writes::a_column_is_deleted_up_to_a_version,
    writes::a_family_is_deleted,
    writes::a_row_is_deleted,
    writes::a_put_after_a_delete_is_visible,
    writes::a_row_is_never_seen_in_part,
    writes::writes_under_way_together_keep_their_order,
    conditions::an_increment_counts_from_nothing,
    conditions::an_increment_wraps,
    conditions::concurrent_increments_give_distinct_sums,
    conditions::a_check_for_absence_has_one_winner,
    conditions::a_check_compares_the_newest_value,
    conditions::an_empty_value_counts_as_absent,
    conditions::an_append_extends_the_value,
    conditions::concurrent_appends_are_all_there,
    conditions::a_commit_is_all_or_nothing,
    conditions::a_commit_needs_all_its_conditions,
    reads::rows_are_read_in_the_order_asked,
    reads::columns_are_selected,
    reads::cells_of_a_row_ascend,
    reads::a_scan_ascends_within_its_range,
    reads::a_scan_descends_when_reversed,
    reads::a_prefix_ends_at_the_last_key_with_it,
    reads::a_scan_that_may_skip_damage_reads_all_where_there_is_none,
    reads::a_scan_obeys_its_limit,
    reads::a_scan_obeys_its_filter,
    reads::a_scan_goes_on_where_its_filter_says,
    reads::a_scan_is_taken_up_again,
    reads::a_scan_selects_columns,
    reads::a_scan_returns_versions,
    reads::packed_rows_have_the_same_cells,
    reads::an_empty_range_has_no_rows,
    reads::a_range_is_measured_by_its_keys,
    reads::a_table_has_its_own_rows,
    errors::a_table_is_made_once,
    errors::tables_are_listed,
    errors::a_table_must_exist,
    errors::a_family_must_exist,
    errors::a_row_key_has_1_to_32767_bytes,
    errors::a_counter_has_8_bytes,
    errors::the_store_is_healthy,
];

/// Runs all checks; the standard error names the one at work.
///
/// # Panics
///
/// When the store does not do what a check expects of it.
pub async fn suite(store: &dyn RowStore) {
    for (name, check) in CHECKS {
        eprintln!("conformance: {name}");
        check(&Subject { store, check: name }).await;
    }
}

/// The store under test, with short forms of what the checks do with it.
struct Subject<'a> {
    store: &'a dyn RowStore,
    check: &'static str,
}

impl Subject<'_> {
    /// A name for a table that no other run and no other check has.
    fn table_name(&self) -> TableName {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        format!("conf_{nanos:x}_{number}_{}", self.check).parse().unwrap()
    }

    /// A new table with families `a` and `b`.
    async fn table(&self) -> Table<'_> {
        self.table_with(vec![FamilyDef::new("a"), FamilyDef::new("b")])
            .await
    }

    async fn table_with(&self, families: Vec<FamilyDef>) -> Table<'_> {
        let name = self.table_name();
        let def = TableDef {
            name: name.clone(),
            families,
        };
        assert!(self.store.create_table(&def).await.unwrap(), "the table is new");
        Table {
            store: self.store,
            name,
        }
    }
}

/// A table of the store under test.
struct Table<'a> {
    store: &'a dyn RowStore,
    name: TableName,
}

impl Table<'_> {
    fn batch(&self) -> (WriteBatch, FamilyId, FamilyId) {
        let mut batch = WriteBatch::new(self.name.clone());
        let (a, b) = (batch.family("a"), batch.family("b"));
        (batch, a, b)
    }

    async fn write(&self, batch: WriteBatch) {
        self.store.write(batch).await.unwrap();
    }

    /// Puts one cell of family `a`.
    async fn put(&self, row: &[u8], qualifier: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::new(self.name.clone());
        let a = batch.family("a");
        batch.row(row).put(a, qualifier, value);
        self.write(batch).await;
    }

    async fn put_at(&self, row: &[u8], qualifier: &[u8], timestamp_ms: i64, value: &[u8]) {
        let mut batch = WriteBatch::new(self.name.clone());
        let a = batch.family("a");
        batch.row(row).put_at(a, qualifier, timestamp_ms, value);
        self.write(batch).await;
    }

    async fn row(&self, row: &[u8]) -> Option<Row> {
        self.store
            .get(&self.name, row, &ColumnSelection::All)
            .await
            .unwrap()
    }

    /// The newest value of a cell of family `a`.
    async fn value(&self, row: &[u8], qualifier: &[u8]) -> Option<Vec<u8>> {
        let row = self.row(row).await?;
        row.get("a", qualifier).map(|cell| cell.value.to_vec())
    }

    async fn scan(&self, scan: Scan) -> Vec<Row> {
        let mut stream = self.store.scan(&self.name, scan).await.unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch.unwrap();
            assert!(!batch.is_empty(), "a batch of a scan is never empty");
            rows.extend(batch);
        }
        rows
    }

    async fn measure(&self, start: &str, stop: &str, limit: usize) -> Option<RangeMeasure> {
        let measure = self
            .store
            .measure(&self.name, start.as_bytes(), stop.as_bytes(), limit);
        measure.await.unwrap()
    }

    async fn keys(&self, scan: Scan) -> Vec<Vec<u8>> {
        self.scan(scan)
            .await
            .iter()
            .map(|row| row.key().to_vec())
            .collect()
    }

    fn cell(&self, row: &[u8], qualifier: &[u8]) -> CellAddress {
        CellAddress::new(row, "a", qualifier)
    }
}

/// Family, qualifier and value of the cells of a row.
fn contents(row: &Row) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    row.cells()
        .map(|cell| {
            (
                cell.family.to_owned(),
                cell.qualifier.to_vec(),
                cell.value.to_vec(),
            )
        })
        .collect()
}
