//! Numbers of series, and tests of their tags.

use oxtsdb_schema::{TagkUid, TagvUid};

/// The number of a series within one store: dense from 0, given when the series is first seen, never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesNumber(pub u32);

impl SeriesNumber {
    /// As an index into an array of all series.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A test of the tags of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagTest {
    /// The series has the tag key with one of these values.
    In(TagkUid, Vec<TagvUid>),
    /// The series has the tag key with a value that is none of these.
    NotIn(TagkUid, Vec<TagvUid>),
    /// The series has the tag key.
    Has(TagkUid),
    /// The series does not have the tag key.
    Lacks(TagkUid),
    /// The series has these tag keys and no other.
    Exactly(Vec<TagkUid>),
}

impl TagTest {
    /// Whether a series with these tags passes; a plain implementation, for stores without an index.
    pub(crate) fn passes(&self, tags: &[(TagkUid, TagvUid)]) -> bool {
        let value = |tagk: &TagkUid| tags.iter().find(|(key, _)| key == tagk).map(|(_, value)| value);
        match self {
            Self::In(tagk, values) => value(tagk).is_some_and(|value| values.contains(value)),
            Self::NotIn(tagk, values) => value(tagk).is_some_and(|value| !values.contains(value)),
            Self::Has(tagk) => value(tagk).is_some(),
            Self::Lacks(tagk) => value(tagk).is_none(),
            Self::Exactly(tagks) => {
                tagks.iter().all(|tagk| value(tagk).is_some())
                    && tags.iter().all(|(key, _)| tagks.contains(key))
            }
        }
    }
}
