//! Which of the series of a metric are wanted, told once for all of its rows.

use std::time::Instant;

use oxtsdb_schema::{TagvUid, Uid, UidKind};
use rustc_hash::FxHashSet;

use super::{Selection, ValueTest};
use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::series_index::SeriesList;

/// Series that are looked at before others may run, and whose names are looked up together.
const CHUNK: usize = 4096;

/// The series of a list that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    /// How many there are.
    pub count: usize,
    /// Their tags, in the order of the list; `None` if there are more than were asked for.
    pub series: Option<Vec<Box<[u8]>>>,
}

impl Selection {
    /// The series of a list that are wanted, `at_most` so many of them. A series with a value that has no
    /// name is among them: if it has rows, whoever reads them finds out.
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
            let mut chunk: Vec<&[u8]> = chunk.filter(|tags| self.0.may_keep_tags(tags)).collect();
            self.judge_tags(&chunk, directory, deadline).await?;
            chunk.retain(|tags| self.0.may_keep_tags(tags));
            found.add(&chunk, at_most);
            tokio::task::consume_budget().await;
        }
        Ok(found)
    }

    /// Looks up the names that the filters need for these series.
    async fn judge_tags(
        &self,
        series: &[&[u8]],
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<(), QueryError> {
        for test in &self.0.tests {
            let (ValueTest::Name(name_test) | ValueTest::NameIfThere(name_test)) = &test.test else {
                continue;
            };
            let unknown: FxHashSet<TagvUid> = {
                let verdicts = name_test.verdicts.read();
                let values = series.iter().filter_map(|tags| self.0.value_of(tags, test.tagk));
                values.filter(|value| !verdicts.contains_key(value)).collect()
            };
            if unknown.is_empty() {
                continue;
            }
            let unknown: Vec<Uid> = unknown.into_iter().map(Uid::from).collect();
            let names = directory.names(UidKind::Tagv, &unknown, deadline).await?;
            let mut verdicts = name_test.verdicts.write();
            for (uid, name) in unknown.into_iter().zip(names) {
                if let Some(name) = name {
                    verdicts.insert(TagvUid::new(uid), (name_test.passes)(&name));
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
