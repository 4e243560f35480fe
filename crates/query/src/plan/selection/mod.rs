//! Selects the rows of a metric by their keys.

pub mod matches;
pub mod matching;
pub mod row_selection;
pub mod tag_test;
