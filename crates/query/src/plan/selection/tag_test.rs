//! Filters over the UIDs of tag values.

use std::fmt;
use std::sync::Arc;

use oxtsdb_row_store::prefix_end;
use oxtsdb_schema::{TagkUid, TagvUid};
use rustc_hash::FxHashSet;

use crate::filter::Predicate;
use crate::plan::selection::matches::Matches;

/// A filter with its key as UID.
#[derive(Debug)]
pub struct TagTest {
    /// The tag key, which the series must have except with [`ValueTest::NameIfPresent`].
    pub tagk: TagkUid,
    /// Its value.
    pub test: ValueTest,
}

/// A filter of tag values as UIDs.
#[derive(Debug)]
pub enum ValueTest {
    /// Any value.
    Any,
    /// One of these values.
    In(FxHashSet<TagvUid>),
    /// Any other value than these.
    NotIn(FxHashSet<TagvUid>),
    /// A value with a name that matches.
    Name(NameTest),
    /// A value with a name that matches, or no tag with this key at all.
    NameIfPresent(NameTest),
}

/// A filter that needs names.
pub struct NameTest {
    pub(super) predicate: Predicate,
    /// Matches of the values that were tested, also by other queries.
    pub(crate) matches: Arc<Matches>,
}

impl TagTest {
    /// Whether a value passes, as far as its name is resolved.
    pub(super) fn passes(&self, value: &TagvUid) -> bool {
        match &self.test {
            ValueTest::Any => true,
            ValueTest::In(values) => values.contains(value),
            ValueTest::NotIn(values) => !values.contains(value),
            ValueTest::Name(test) | ValueTest::NameIfPresent(test) => test.matches.get(value).unwrap_or(true),
        }
    }

    /// Whether most values are expected to pass, judged by the resolved ones.
    pub(super) fn passes_most(&self) -> bool {
        match &self.test {
            ValueTest::Any | ValueTest::NotIn(_) => true,
            ValueTest::In(_) => false,
            ValueTest::Name(test) | ValueTest::NameIfPresent(test) => test.matches.pass_most(),
        }
    }

    /// Whether a row passes that does not have the key.
    pub(super) fn passes_without(&self) -> bool {
        matches!(self.test, ValueTest::NameIfPresent(_))
    }

    /// The bytes of the lowest value after `value` that may pass; `None` if there is none.
    pub(super) fn value_after(&self, value: &TagvUid) -> Option<Vec<u8>> {
        match &self.test {
            ValueTest::In(values) => {
                let next = values.iter().filter(|next| *next > value).min();
                next.map(|next| next.as_bytes().to_vec())
            }
            _ => {
                let next = prefix_end(value.as_bytes());
                // A carry over the first byte makes it shorter or empty: there is no greater value.
                (!next.is_empty()).then(|| {
                    let mut next = next;
                    next.resize(value.as_bytes().len(), 0);
                    next
                })
            }
        }
    }
}

impl NameTest {
    /// A test that keeps its results in `matches`.
    pub fn new(predicate: Predicate, matches: Arc<Matches>) -> Self {
        Self { predicate, matches }
    }
}

impl fmt::Debug for NameTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameTest")
            .field("matches", &self.matches)
            .finish_non_exhaustive()
    }
}
