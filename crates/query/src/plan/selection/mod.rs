//! Selects the rows of a metric by their keys.

pub(crate) mod matches;
pub(crate) mod matching;
pub(crate) mod row_selection;
pub(crate) mod tag_test;
