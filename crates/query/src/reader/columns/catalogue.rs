//! Matches the series of a plan by the catalogue of the store that has their columns.
//!
//! ```text
//!   literal values ──► catalogue ──► few series: the names of their values ──► series that pass
//!   otherwise: the names of the key's values that no query has resolved ──► tests over UIDs ──► catalogue ──► series
//! ```
//!
//! A name is resolved once for each value, not for each series, and its match is kept for later queries. A series with
//! a value that has no name matches: naming the result reports the error.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_point_store::{PointStore, SeriesNumber, TagTest as SeriesTest};
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Tsuid, UidWidths};
use rustc_hash::FxHashSet;

use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::plan::selection::matches::Passing;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::{NameTest, ValueTest};

/// Number of series with the literal values of a query up to which only the names of their own values are resolved, not
/// the names of all values of a key.
const FEW: usize = 4096;

/// Number of series that are tested inline, in less than 0.1 ms; a hand-over to another thread takes as long.
const FEW_INLINE: usize = 1024;

/// Finds series in a catalogue.
pub(super) struct Catalogue<'a> {
    pub(super) store: &'a Arc<dyn PointStore>,
    pub(super) directory: &'a dyn NameDirectory,
    pub(super) compute: &'a ComputePool,
    pub(super) widths: &'a UidWidths,
    pub(super) deadline: Option<Instant>,
}

impl Catalogue<'_> {
    /// The series of a metric that match, ascending.
    ///
    /// # Errors
    ///
    /// Errors of the name directory.
    pub(super) async fn by_metric(
        &self,
        metric: MetricUid,
        selection: &Selection,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let tests = selection.tests();
        let has_names = tests.iter().any(|test| matches!(test.test, ValueTest::Name(_)));
        let has_literals = tests.iter().any(|test| matches!(test.test, ValueTest::In(_)));
        if has_names && has_literals {
            let series = self.select(metric, self.series_tests(selection, false)).await?;
            if series.len() <= FEW {
                return self.matching(series, selection).await;
            }
        }
        for test in tests {
            if let ValueTest::Name(names) = &test.test {
                self.resolve(metric, test.tagk, names).await?;
            }
        }
        self.select(metric, self.series_tests(selection, true)).await
    }

    /// Resolves the names of all values of a tag key.
    async fn resolve(&self, metric: MetricUid, tagk: TagkUid, test: &NameTest) -> Result<(), QueryError> {
        let (uid, store) = (metric.as_bytes(), Arc::clone(self.store));
        // First: the values of series that come later are resolved later.
        let series = store.series_count(uid);
        if test.matches.is_complete(metric, series) {
            return Ok(());
        }
        let values = self
            .compute
            .run(move || store.tag_values(metric.as_bytes(), tagk))
            .await?;
        test.resolve(values.into_iter(), self.directory, self.deadline)
            .await?;
        test.matches.set_complete(metric, series);
        Ok(())
    }

    /// The series of TSUIDs that match, ascending.
    ///
    /// # Errors
    ///
    /// As [`Catalogue::by_metric`].
    pub(super) async fn by_tsuids(
        &self,
        tsuids: &[Tsuid],
        selection: &Selection,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let mut series: Vec<SeriesNumber> = tsuids
            .iter()
            .filter_map(|tsuid| self.store.find(tsuid.as_bytes()))
            .collect();
        series.sort_unstable();
        series.dedup();
        self.matching(series, selection).await
    }

    async fn select(
        &self,
        metric: MetricUid,
        tests: Vec<SeriesTest>,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        if let Some(few) = self.store.select_few(metric.as_bytes(), &tests, FEW_INLINE) {
            return Ok(few);
        }
        let store = Arc::clone(self.store);
        let select = move || store.select(metric.as_bytes(), &tests);
        Ok(self.compute.run(select).await?)
    }

    /// Returns the series of a list that pass all tests.
    async fn matching(
        &self,
        series: Vec<SeriesNumber>,
        selection: &Selection,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let mut matching = Vec::with_capacity(series.len());
        for series in series.chunks(FEW) {
            let mut tags = Vec::with_capacity(series.len());
            let mut key = Vec::new();
            for series in series {
                self.store.key(*series, &mut key);
                tags.push(Box::from(
                    key.get(self.widths.metric.bytes()..).unwrap_or_default(),
                ));
            }
            let passing = selection.passing(&tags, self.directory, self.deadline).await?;
            let passing = series.iter().zip(passing).filter(|(_, passes)| *passes);
            matching.extend(passing.map(|(series, _)| *series));
            tokio::task::consume_budget().await;
        }
        Ok(matching)
    }

    /// The tests of a selection for the catalogue; with `resolved` also tests by name, as far as names are resolved.
    fn series_tests(&self, selection: &Selection, resolved: bool) -> Vec<SeriesTest> {
        let mut tests = Vec::with_capacity(selection.tests().len() + 1);
        for test in selection.tests() {
            let tagk = test.tagk;
            let list = |values: &FxHashSet<TagvUid>| values.iter().copied().collect();
            tests.extend(match &test.test {
                ValueTest::Any => Some(SeriesTest::Has(tagk)),
                ValueTest::In(values) => Some(SeriesTest::In(tagk, list(values))),
                ValueTest::NotIn(values) => Some(SeriesTest::NotIn(tagk, list(values))),
                ValueTest::Name(names) if resolved => Some(match names.matches.passing(self.widths.tagv) {
                    Passing::In(values) => SeriesTest::In(tagk, values),
                    Passing::NotIn(values) => SeriesTest::NotIn(tagk, values),
                }),
                ValueTest::Name(_) => Some(SeriesTest::Has(tagk)),
                ValueTest::NameIfPresent(_) => None,
            });
        }
        if selection.tag_count().is_some() {
            let mut keys: Vec<TagkUid> = selection.tests().iter().map(|test| test.tagk).collect();
            keys.dedup();
            tests.push(SeriesTest::Exactly(keys));
        }
        tests
    }
}

#[cfg(test)]
mod tests;
