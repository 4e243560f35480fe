//! Selects the series of a segment that pass tests of their tags.
//!
//! The series of the test with the fewest are visited one after the other, and are checked by the columns of the
//! other tests. Only if no test names values, all series of the segment are.

use oxtsdb_schema::{TagkUid, TagvUid};

use super::{Column, NONE, Segment, to_u32};
use crate::{SeriesNumber, TagTest};

/// A test of a column.
#[derive(Debug)]
struct Check<'a> {
    column: &'a Column,
    /// Indices of values, ascending.
    values: Vec<u32>,
    pass: Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// One of the values.
    In,
    /// Another value than these.
    NotIn,
    /// No value.
    Absent,
}

impl Check<'_> {
    fn passes(&self, position: u32) -> bool {
        let value = self.column.value_of[position as usize];
        match self.pass {
            Pass::In => self.has(value),
            Pass::NotIn => value != NONE && !self.has(value),
            Pass::Absent => value == NONE,
        }
    }

    fn has(&self, value: u32) -> bool {
        self.values.binary_search(&value).is_ok()
    }

    /// How many series have one of the values; `None` unless only those pass.
    fn series(&self) -> Option<usize> {
        let values = (self.pass == Pass::In).then_some(&self.values)?;
        Some(values.iter().map(|value| self.positions_of(*value).len()).sum())
    }

    fn positions_of(&self, value: u32) -> &[u32] {
        self.column.positions_of(value as usize)
    }
}

/// How many series the check leaves that leaves the fewest, and its index.
fn fewest(checks: &[Check<'_>]) -> Option<(usize, usize)> {
    let counts = checks.iter().enumerate();
    counts
        .filter_map(|(index, check)| Some((check.series()?, index)))
        .min()
}

impl Segment {
    /// Appends the series that pass all tests, ascending.
    pub(in crate::parts::series) fn select(&self, tests: &[TagTest], selected: &mut Vec<SeriesNumber>) {
        if let Some(checks) = self.checks(tests) {
            let fewest = fewest(&checks).map(|(_, check)| check);
            self.select_by(fewest, checks, selected);
        }
    }

    /// As [`Self::select`], if one of the tests leaves at most `most` series, or there are no more, and no test names more
    /// values.
    pub(in crate::parts::series) fn select_few(
        &self,
        tests: &[TagTest],
        most: usize,
        selected: &mut Vec<SeriesNumber>,
    ) -> Option<()> {
        let is_long = |test: &TagTest| match test {
            TagTest::In(_, values) | TagTest::NotIn(_, values) => values.len() > most,
            TagTest::Has(_) | TagTest::Lacks(_) | TagTest::Exactly(_) => false,
        };
        if tests.iter().any(is_long) {
            return None;
        }
        let Some(checks) = self.checks(tests) else {
            return Some(());
        };
        let check = match fewest(&checks) {
            Some((series, check)) if series <= most => Some(check),
            _ if self.len() <= most => None,
            _ => return None,
        };
        self.select_by(check, checks, selected);
        Some(())
    }

    /// Appends the series that pass all checks; with the index of that with the fewest series, if one has few.
    fn select_by(&self, fewest: Option<usize>, mut checks: Vec<Check<'_>>, selected: &mut Vec<SeriesNumber>) {
        let Some(fewest) = fewest else {
            self.select_from(0..to_u32(self.len()), &checks, selected);
            return;
        };
        let fewest = checks.swap_remove(fewest);
        if let [value] = *fewest.values {
            self.select_from(fewest.positions_of(value).iter().copied(), &checks, selected);
            return;
        }
        let values = fewest.values.iter();
        let mut positions: Vec<u32> = values
            .flat_map(|value| fewest.positions_of(*value))
            .copied()
            .collect();
        positions.sort_unstable();
        self.select_from(positions.into_iter(), &checks, selected);
    }

    fn select_from(
        &self,
        positions: impl Iterator<Item = u32>,
        checks: &[Check<'_>],
        selected: &mut Vec<SeriesNumber>,
    ) {
        let passes = |position: &u32| checks.iter().all(|check| check.passes(*position));
        let positions = positions.filter(passes);
        selected.extend(positions.map(|position| self.series[position as usize]));
    }

    /// The tests by column; `None` if no series passes one of them.
    fn checks(&self, tests: &[TagTest]) -> Option<Vec<Check<'_>>> {
        let mut checks = Vec::new();
        for test in tests {
            match test {
                TagTest::In(tagk, values) => checks.push(self.check(*tagk, values, Pass::In)?),
                TagTest::NotIn(tagk, values) => checks.push(self.check(*tagk, values, Pass::NotIn)?),
                TagTest::Has(tagk) => checks.push(self.check(*tagk, &[], Pass::NotIn)?),
                TagTest::Lacks(tagk) => checks.extend(self.check(*tagk, &[], Pass::Absent)),
                TagTest::Exactly(tagks) => {
                    for tagk in tagks {
                        checks.push(self.check(*tagk, &[], Pass::NotIn)?);
                    }
                    let others = self.columns.iter();
                    let others =
                        others.filter(|column| tagks.iter().all(|tagk| tagk.uid().number() != column.tagk));
                    checks.extend(others.map(|column| Check {
                        column,
                        values: Vec::new(),
                        pass: Pass::Absent,
                    }));
                }
            }
        }
        Some(checks)
    }

    /// A test of a tag key; `None` if no series has it.
    fn check(&self, tagk: TagkUid, values: &[TagvUid], pass: Pass) -> Option<Check<'_>> {
        let column = self.column(tagk.uid().number())?;
        let places = values
            .iter()
            .filter_map(|value| column.values.binary_search(&value.uid().number()).ok());
        let mut values: Vec<u32> = places.map(to_u32).collect();
        values.sort_unstable();
        values.dedup();
        Some(Check { column, values, pass })
    }
}
