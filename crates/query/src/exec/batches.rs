//! Batches of groups: a sub-query reads one batch after the other if its points do not fit into its memory at once.
//!
//! ```text
//!   series by group   a a a │ b │ c c │ d d d d │ e │ …
//!   batches           ├─────────┤├──────────────┤├──
//! ```
//!
//! Each batch is a sub-query of its own, over the series of whole groups that ascend as in the result. Time slices are
//! the other way to read with little memory: they need results that are sent as soon as they are final, or one group.

use std::sync::Arc;

use oxtsdb_point_store::SeriesNumber;
use oxtsdb_schema::RowKeyLayout;

use crate::error::QueryError;
use crate::exec::group::Grouping;
use crate::reader::access_path::AccessPath;

/// Memory of a series while the batches are cut, in bytes: its number, and the key of its group.
pub(super) const SERIES_BYTES: u64 = 64;

/// Series of whole groups.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) path: Arc<dyn AccessPath>,
    pub(super) is_one_group: bool,
}

/// Cuts a path that lists its series into batches, in the order of the groups. `fits` says whether a path is small enough;
/// a group is not cut.
///
/// # Errors
///
/// Keys of the store that are no series.
pub(super) fn cut(
    path: &Arc<dyn AccessPath>,
    grouping: &Grouping,
    layout: &RowKeyLayout,
    fits: &dyn Fn(&dyn AccessPath) -> bool,
) -> Result<Vec<Batch>, QueryError> {
    let mut series: Vec<(Box<[u8]>, SeriesNumber)> = Vec::new();
    let mut key = Vec::new();
    path.each_listed(&mut |number, tsuid| {
        grouping.write_ordered_key(tsuid, layout, &mut key);
        series.push((key.as_slice().into(), number));
    })?;
    series.sort_unstable();
    let mut batches = Vec::new();
    let mut rest = vec![series.as_slice()];
    while let Some(part) = rest.pop() {
        let numbers = part.iter().map(|(_, number)| *number).collect();
        let Some(path) = path.with_series(numbers) else {
            continue;
        };
        let middle = middle(part);
        match middle.filter(|_| !fits(&*path)) {
            Some(middle) => {
                let (front, back) = part.split_at(middle);
                rest.extend([back, front]);
            }
            None => batches.push(Batch {
                path,
                is_one_group: middle.is_none(),
            }),
        }
    }
    Ok(batches)
}

/// The border between two groups that is nearest to the middle; `None` if there is one group.
fn middle(series: &[(Box<[u8]>, SeriesNumber)]) -> Option<usize> {
    let (key, _) = series.get(series.len() / 2)?;
    let start = series.partition_point(|(other, _)| other < key);
    let end = series.partition_point(|(other, _)| other <= key);
    if start > 0 {
        return Some(start);
    }
    (end < series.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_between_groups_is_found_if_there_is_one() {
        let middle_of = |keys: &[u8]| {
            let series: Vec<_> = keys
                .iter()
                .map(|key| (Box::from([*key]), SeriesNumber(0)))
                .collect();
            middle(&series)
        };
        assert_eq!(middle_of(&[]), None);
        assert_eq!(middle_of(&[1]), None);
        assert_eq!(middle_of(&[1, 1, 1]), None);
        assert_eq!(middle_of(&[1, 2]), Some(1));
        assert_eq!(middle_of(&[1, 1, 1, 2]), Some(3));
        assert_eq!(middle_of(&[1, 2, 2, 2]), Some(1));
        assert_eq!(middle_of(&[1, 2, 3, 4, 5, 6]), Some(3));
    }
}
