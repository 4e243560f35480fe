//! The index of a build without the feature `text-search`: there is none.

use std::path::Path;

use oxtsdb_schema::UidWidths;

use super::document::Document;
use super::{Found, Search, SearchError, State};
use crate::meta::changes::Subject;

/// Never made.
#[derive(Debug)]
pub(super) enum Index {}

impl Index {
    /// Fails.
    pub(super) fn open(
        _folder: &Path,
        _identity: &str,
        _widths: UidWidths,
    ) -> Result<(Self, State), SearchError> {
        Err(SearchError::Failed {
            detail: "this build has no text search".to_owned(),
        })
    }

    pub(super) fn put(&self, _documents: &[Document], _pass: u64) -> Result<(), SearchError> {
        match *self {}
    }

    pub(super) fn remove(&self, _subjects: &[Subject]) -> Result<(), SearchError> {
        match *self {}
    }

    pub(super) fn remove_before(&self, _pass: u64) -> Result<(), SearchError> {
        match *self {}
    }

    pub(super) fn commit(&self, _state: &State) -> Result<(), SearchError> {
        match *self {}
    }

    pub(super) fn search(&self, _search: &Search) -> Result<Found, SearchError> {
        match *self {}
    }
}
