//! The guarantees of [`RowStore`] as executable checks.
//!
//! A backend's test is one call of [`suite`] or [`ordered_suite`]. The checks use only the trait and assume only what
//! HBase guarantees: each run creates its own tables, cells timestamped by the store may share a millisecond, expiry
//! may take seconds, and a put with an older explicit timestamp may stay hidden behind an earlier delete.

#![expect(clippy::unwrap_used, reason = "a check that fails panics")]

mod conditions;
mod errors;
mod reads;
mod subject;
mod writes;

use futures::future::BoxFuture;

use self::subject::Subject;
use crate::RowStore;

/// A check: its name and its code.
type Check = (&'static str, for<'a> fn(&'a Subject<'a>) -> BoxFuture<'a, ()>);

/// Lists async functions as checks.
macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), |subject| Box::pin($module::$name(subject)))),*]
    };
}

const CHECKS: &[Check] = checks![
    writes::put_is_readable,
    writes::keys_qualifiers_and_values_are_binary,
    writes::later_put_with_equal_timestamp_wins,
    writes::get_returns_the_newest_version,
    writes::family_keeps_its_max_versions,
    writes::cells_expire,
    writes::batch_writes_many_rows,
    writes::repeated_batch_has_no_further_effect,
    writes::empty_batch_has_no_effect,
    writes::stores_large_values,
    writes::stores_long_qualifiers,
    writes::row_holds_many_cells,
    writes::deletes_a_column,
    writes::deletes_a_column_up_to_a_timestamp,
    writes::deletes_a_family,
    writes::deletes_a_row,
    writes::put_after_a_delete_is_visible,
    writes::row_writes_are_atomic,
    conditions::increment_starts_from_zero,
    conditions::increment_wraps,
    conditions::concurrent_increments_return_distinct_sums,
    conditions::check_for_absence_has_one_winner,
    conditions::check_and_put_compares_the_newest_version,
    conditions::empty_value_counts_as_absent,
    conditions::append_extends_the_value,
    conditions::concurrent_appends_are_all_applied,
    conditions::commit_is_atomic,
    conditions::commit_requires_all_conditions,
    reads::get_rows_keeps_the_requested_order,
    reads::get_selects_columns,
    reads::cells_of_a_row_ascend,
    reads::parts_of_a_row_have_all_cells_of_the_family,
    reads::scan_ascends_within_its_range,
    reads::reversed_scan_descends,
    reads::prefix_scan_covers_all_keys_of_the_prefix,
    reads::damage_skipping_scan_of_an_intact_range_is_complete,
    reads::scan_applies_its_limit,
    reads::scan_applies_its_filter,
    reads::scan_seeks_to_filter_hints,
    reads::scan_in_any_order_returns_the_same_rows,
    reads::scan_resumes_after_a_row,
    reads::scan_selects_columns,
    reads::scan_returns_versions,
    reads::empty_range_has_no_rows,
    reads::measures_a_range,
    reads::denies_no_row_that_was_written,
    reads::tables_are_isolated,
    errors::create_table_is_idempotent,
    errors::tables_are_listed,
    errors::rejects_unknown_tables,
    errors::rejects_unknown_families,
    errors::rejects_row_keys_out_of_bounds,
    errors::increment_rejects_cells_that_are_not_counters,
    errors::store_is_healthy,
];

/// Runs the checks that all stores pass, printing the name of each to standard error.
///
/// # Panics
///
/// If the store fails a check.
pub async fn suite(store: &dyn RowStore) {
    for (name, check) in CHECKS {
        eprintln!("conformance: {name}");
        check(&Subject { store, check: name }).await;
    }
}

/// As [`suite`], for a store that also keeps the order of concurrent writes.
///
/// # Panics
///
/// If the store fails a check.
pub async fn ordered_suite(store: &dyn RowStore) {
    suite(store).await;
    let check = "concurrent_writes_keep_their_order";
    writes::concurrent_writes_keep_their_order(&Subject { store, check }).await;
}
