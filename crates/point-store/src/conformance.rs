//! The guarantees of [`PointStore`] as executable checks.
//!
//! The test of an implementation is one call of [`suite`]. Each check uses a new store.

#![expect(clippy::unwrap_used, reason = "a check that fails panics")]

mod appends;
mod deletes;
mod fixture;
mod lifetime;
mod random;
mod reads;
mod series;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;

use self::fixture::Fixture;
use crate::PointStore;

/// The guarantees that a store of rows cannot give; a store of columns gives all.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// An index of series and points: numbers are durable, reads are estimated.
    pub has_index: bool,
    /// An instant is one point, whatever its type, width and resolution; the bits of all values are kept. HBase has a
    /// column for each qualifier and orders writes by milliseconds.
    pub replaces_kinds: bool,
    /// Points are stored if the future of their append is dropped. The queue to a store of rows drops them.
    pub keeps_dropped_appends: bool,
}

impl Promises {
    /// All guarantees.
    pub const ALL: Self = Self {
        has_index: true,
        replaces_kinds: true,
        keeps_dropped_appends: true,
    };
}

/// Opens the stores under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Creates an empty store; its UIDs have 3 bytes each.
    async fn create(&self) -> Arc<dyn PointStore>;

    /// Opens the store that was created last again, after it was closed; `None` if the implementation does not keep
    /// its points or their numbers.
    async fn reopen(&self) -> Option<Arc<dyn PointStore>>;

    /// The guarantees of the stores.
    fn promises(&self) -> Promises {
        Promises::ALL
    }
}

/// A check: its name and its code.
type Check = (&'static str, for<'a> fn(&'a Fixture<'a>) -> BoxFuture<'a, ()>);

/// Lists async functions as checks.
macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), |fixture| Box::pin($module::$name(fixture)))),*]
    };
}

const CHECKS: &[Check] = checks![
    series::numbers_are_dense_and_stable,
    series::keys_that_are_no_tsuids_are_rejected,
    series::lists_metrics_and_their_series_in_order_of_keys,
    series::selects_series_by_their_tags,
    series::concurrent_callers_get_the_same_numbers,
    appends::points_of_all_kinds_are_readable,
    appends::rejects_batches_that_cannot_be_stored,
    appends::keeps_the_bits_of_all_values,
    appends::empty_batch_has_no_effect,
    appends::later_point_of_a_batch_wins,
    appends::newest_point_wins_with_another_kind,
    appends::points_out_of_order_are_read_in_order,
    appends::appends_take_effect_in_the_order_of_calls,
    appends::dropped_append_keeps_its_place,
    appends::many_points_of_many_series,
    reads::range_includes_both_ends,
    reads::series_are_returned_in_the_order_of_the_request,
    reads::series_without_points_are_absent,
    reads::long_series_ascends,
    reads::estimates_follow_series_and_range,
    reads::dropped_read_ends,
    reads::last_points_are_the_newest_in_the_range,
    deletes::deletes_a_range_of_some_series,
    deletes::point_after_a_delete_is_visible,
    deletes::delete_of_nothing_has_no_effect,
    deletes::series_stay_known_without_points,
    lifetime::store_is_healthy,
    lifetime::closed_store_is_unavailable,
    lifetime::reopened_store_has_series_and_points,
    lifetime::reopened_store_keeps_deletes,
    lifetime::reopened_store_has_series_of_an_empty_append,
    random::random_operations_agree_with_a_map,
];

/// Runs all checks, printing the name of each to standard error.
///
/// # Panics
///
/// If a store fails a check.
pub async fn suite(subject: &dyn Subject) {
    for (name, check) in CHECKS {
        eprintln!("conformance: {name}");
        let store = subject.create().await;
        check(&Fixture { subject, store }).await;
    }
}
