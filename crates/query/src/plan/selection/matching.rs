//! Matches the series of a metric, once for all of their rows.

use std::time::Instant;

use oxtsdb_schema::{TagvUid, Uid, UidKind};
use rustc_hash::FxHashSet;

use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::ValueTest;
use crate::series_index::SeriesList;

/// Series that are matched before other tasks run, and whose names are resolved together.
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
    /// The matching series of a list, `at_most` so many of them. A series with a value that has no name is
    /// among them: reading its rows reports the error.
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
        let mut found = Matching {
            count: 0,
            series: Some(Vec::new()),
        };
        let mut all = list.iter();
        while all.len() > 0 {
            let chunk = all.by_ref().take(CHUNK);
            let mut chunk: Vec<&[u8]> = chunk.filter(|tags| self.0.may_match_tags(tags)).collect();
            self.resolve_tags(&chunk, directory, deadline).await?;
            chunk.retain(|tags| self.0.may_match_tags(tags));
            found.add(&chunk, at_most);
            tokio::task::consume_budget().await;
        }
        Ok(found)
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
            let unknown: FxHashSet<TagvUid> = {
                let matches = name_test.matches.read();
                let values = series.iter().filter_map(|tags| self.0.value_of(tags, test.tagk));
                values.filter(|value| !matches.contains_key(value)).collect()
            };
            if unknown.is_empty() {
                continue;
            }
            let unknown: Vec<Uid> = unknown.into_iter().map(Uid::from).collect();
            let names = directory.names(UidKind::Tagv, &unknown, deadline).await?;
            let mut matches = name_test.matches.write();
            for (uid, name) in unknown.into_iter().zip(names) {
                if let Some(name) = name {
                    matches.insert(TagvUid::new(uid), (name_test.predicate)(&name));
                }
            }
        }
        Ok(())
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
