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
mod subject;
mod writes;

use futures::future::BoxFuture;

use self::subject::Subject;
use crate::RowStore;

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
