//! Matches the series of a metric, once for all of their rows.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_schema::{TagvUid, Uid, UidKind};

use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::{NameTest, ValueTest};
use crate::series_index::SeriesList;

/// Series that are matched before other tasks run, and have their names resolved together.
const CHUNK: usize = 4096;

/// The matching series of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    /// How many there are.
    pub count: usize,
    /// Their tags, in the order of the list; `None` if there are more than requested.
    pub series: Option<Vec<Box<[u8]>>>,
}

impl Selection {
    /// The matching series of a list, at most `at_most`. A series with a value that has no name is among them: reading
    /// its rows reports the error.
    ///
    /// # Errors
    ///
    /// [`QueryError::Names`].
    pub async fn matching(
        &self,
        list: &SeriesList,
        at_most: usize,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Matching, QueryError> {
        let mut matching = Matching {
            count: 0,
            series: Some(Vec::new()),
        };
        let mut all = list.iter();
        while all.len() > 0 {
            let chunk = all.by_ref().take(CHUNK);
            let mut chunk: Vec<&[u8]> = chunk.filter(|tags| self.0.may_match_tags(tags)).collect();
            self.resolve_tags(&chunk, directory, deadline).await?;
            chunk.retain(|tags| self.0.may_match_tags(tags));
            matching.add(&chunk, at_most);
            tokio::task::consume_budget().await;
        }
        Ok(matching)
    }

    /// Whether each of some series, by its tags, matches. A series with a value that has no name does.
    ///
    /// # Errors
    ///
    /// [`QueryError::Names`].
    pub(crate) async fn passing(
        &self,
        series: &[Box<[u8]>],
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Vec<bool>, QueryError> {
        let matching = series.iter().map(|tags| &**tags);
        let matching: Vec<&[u8]> = matching.filter(|tags| self.0.may_match_tags(tags)).collect();
        self.resolve_tags(&matching, directory, deadline).await?;
        Ok(series.iter().map(|tags| self.0.may_match_tags(tags)).collect())
    }

    /// Whether a value was resolved that has no name.
    pub(crate) fn has_unnamed(&self) -> bool {
        self.0.tests.iter().any(|test| match &test.test {
            ValueTest::Name(test) | ValueTest::NameIfPresent(test) => test.matches.has_unnamed(),
            ValueTest::Any | ValueTest::In(_) | ValueTest::NotIn(_) => false,
        })
    }

    /// Rejects a resolved series, by its tags, with a value that needs a name and has none.
    ///
    /// # Errors
    ///
    /// [`QueryError::UidWithoutName`].
    pub(crate) fn check_named(&self, tags: &[u8]) -> Result<(), QueryError> {
        for test in &self.0.tests {
            if let ValueTest::Name(name_test) | ValueTest::NameIfPresent(name_test) = &test.test
                && let Some(value) = self.0.value_of(tags, test.tagk)
                && name_test.matches.get(&value).is_none()
            {
                return Err(QueryError::UidWithoutName {
                    kind: UidKind::Tagv,
                    uid: value.into(),
                });
            }
        }
        Ok(())
    }

    /// Resolves the names that the filters need for these series.
    async fn resolve_tags(
        &self,
        series: &[&[u8]],
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<(), QueryError> {
        for test in &self.0.tests {
            let (ValueTest::Name(name_test) | ValueTest::NameIfPresent(name_test)) = &test.test else {
                continue;
            };
            let values = series.iter().filter_map(|tags| self.0.value_of(tags, test.tagk));
            name_test.resolve(values, directory, deadline).await?;
        }
        Ok(())
    }
}

impl NameTest {
    /// Resolves the names of values that are not resolved yet.
    ///
    /// # Errors
    ///
    /// [`QueryError::Names`].
    pub(crate) async fn resolve(
        &self,
        values: impl Iterator<Item = TagvUid> + Send,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<(), QueryError> {
        let unresolved = self.matches.unresolved(values);
        for uids in unresolved.chunks(CHUNK) {
            let names = directory.names(UidKind::Tagv, uids, deadline).await?;
            self.add(uids, &names);
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    /// Tests the names of values, as far as they have some.
    pub(super) fn add(&self, uids: &[Uid], names: &[Option<Arc<str>>]) {
        let matches = |name: &Option<Arc<str>>| name.as_ref().map(|name| (self.predicate)(name));
        let matches: Vec<_> = names.iter().map(matches).collect();
        self.matches.add(uids.iter().copied().zip(matches));
    }
}

impl Matching {
    fn add(&mut self, tags: &[&[u8]], at_most: usize) {
        self.count += tags.len();
        if self.count > at_most {
            self.series = None;
        }
        if let Some(series) = &mut self.series {
            series.extend(tags.iter().map(|tags| Box::from(*tags)));
        }
    }
}
