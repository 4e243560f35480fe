//! Which rows of a metric match, decided by their keys.

pub mod matches;
pub mod matching;
pub mod row_selection;
pub mod tag_test;
