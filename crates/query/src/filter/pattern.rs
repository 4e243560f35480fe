//! The trait of patterns: filter arguments that match names by their text.

use std::fmt;

use super::error::FilterError;
use crate::quirks::Quirks;

/// Tests whether a name matches.
pub type Predicate = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The argument of a filter type that matches names by their text.
pub(crate) trait Pattern: fmt::Debug + Send + Sync {
    /// The pattern as it was parsed.
    fn text(&self) -> &str;

    /// Whether it matches every name.
    fn matches_all(&self) -> bool;

    /// Whether OpenTSDB also returns series without the tag, where it does not look up the tag's key.
    fn matches_without_tag(&self) -> bool {
        false
    }

    /// Whether it counts towards [`MAX_REGEXPS`](super::MAX_REGEXPS).
    fn is_regexp(&self) -> bool {
        false
    }

    /// Whether OpenTSDB takes a pattern of the same type with another text for the same filter.
    fn is_same(&self, text: &str) -> bool {
        self.text() == text
    }

    /// The test of a name.
    ///
    /// # Errors
    ///
    /// [`FilterError`] for a pattern that is too large.
    fn predicate(&self, quirks: Quirks) -> Result<Predicate, FilterError>;
}
