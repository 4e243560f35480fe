//! Matches the series of a plan by the catalogue of the store that has their columns.
//!
//! ```text
//!   tests over UIDs ──► catalogue ──► series ──┬─► few: the names of their values ──────────────► series that pass
//!                                              └─► many: the names of the key's values ─► tests over UIDs ─► catalogue
//! ```
//!
//! A name is resolved once for each value, not for each series. A series with a value that has no name matches: naming
//! the result reports the error.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_point_store::{PointStore, SeriesNumber, TagTest as SeriesTest};
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Tsuid};

use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::ValueTest;

/// Up to so many series, the names of their own values are resolved, not those of all values of a key.
const FEW: usize = 4096;

/// Finds series in a catalogue.
pub(super) struct Catalogue<'a> {
    pub(super) store: &'a Arc<dyn PointStore>,
    pub(super) directory: &'a dyn NameDirectory,
    pub(super) compute: &'a ComputePool,
    pub(super) metric_width: usize,
    pub(super) deadline: Option<Instant>,
}

impl Catalogue<'_> {
    /// The series of a metric that match, ascending.
    ///
    /// # Errors
    ///
    /// Those of the name directory.
    pub(super) async fn of_metric(
        &self,
        metric: MetricUid,
        selection: &Selection,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let found = self.select(metric, series_tests(selection, false)).await?;
        let by_name = |test: &ValueTest| matches!(test, ValueTest::Name(_) | ValueTest::NameIfPresent(_));
        let mut keys: Vec<TagkUid> = Vec::new();
        let tests = selection.tests().iter();
        keys.extend(tests.filter(|test| by_name(&test.test)).map(|test| test.tagk));
        if keys.is_empty() {
            return Ok(found);
        }
        if found.len() <= FEW {
            return self.matching(found, selection).await;
        }
        keys.dedup();
        for tagk in keys {
            let store = Arc::clone(self.store);
            let values = move || store.tag_values(metric.as_bytes(), tagk);
            let values = self.compute.run(values).await?;
            for values in values.chunks(FEW) {
                selection
                    .resolve_values(tagk, values, self.directory, self.deadline)
                    .await?;
            }
        }
        self.select(metric, series_tests(selection, true)).await
    }

    /// The series of TSUIDs that match, ascending.
    ///
    /// # Errors
    ///
    /// As [`Catalogue::of_metric`].
    pub(super) async fn of_tsuids(
        &self,
        tsuids: &[Tsuid],
        selection: &Selection,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let mut found: Vec<SeriesNumber> = tsuids
            .iter()
            .filter_map(|tsuid| self.store.find(tsuid.as_bytes()))
            .collect();
        found.sort_unstable();
        found.dedup();
        self.matching(found, selection).await
    }

    async fn select(
        &self,
        metric: MetricUid,
        tests: Vec<SeriesTest>,
    ) -> Result<Vec<SeriesNumber>, QueryError> {
        let store = Arc::clone(self.store);
        let select = move || store.select(metric.as_bytes(), &tests);
        Ok(self.compute.run(select).await?)
    }

    /// Those of some series that pass all tests.
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
                tags.push(Box::from(key.get(self.metric_width..).unwrap_or_default()));
            }
            let passing = selection.passing(&tags, self.directory, self.deadline).await?;
            let passing = series.iter().zip(passing).filter(|(_, passes)| *passes);
            matching.extend(passing.map(|(series, _)| *series));
            tokio::task::consume_budget().await;
        }
        Ok(matching)
    }
}

/// The tests of a selection for the catalogue; with `resolved` also those by name, as far as names are resolved.
fn series_tests(selection: &Selection, resolved: bool) -> Vec<SeriesTest> {
    let mut tests = Vec::with_capacity(selection.tests().len() + 1);
    for test in selection.tests() {
        let tagk = test.tagk;
        let list = |values: &mut dyn Iterator<Item = &TagvUid>| values.copied().collect();
        tests.extend(match &test.test {
            ValueTest::Any => Some(SeriesTest::Has(tagk)),
            ValueTest::In(values) => Some(SeriesTest::In(tagk, list(&mut values.iter()))),
            ValueTest::NotIn(values) => Some(SeriesTest::NotIn(tagk, list(&mut values.iter()))),
            ValueTest::Name(names) if resolved => Some(SeriesTest::NotIn(tagk, names.rejected())),
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
