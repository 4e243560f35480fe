//! Wildcard patterns: `*` stands for any text, also for none.
//!
//! OpenTSDB's are looser than they look. Stars at the beginning and at the end are taken off; the rest is split at its
//! stars into pieces. Then:
//!
//! 1. `*x`: the value must end with the last piece. `x*`: it must start with the first. With stars
//!    at both ends, **or only in the middle**, neither end is held.
//! 2. Each piece must be found somewhere after the *lengths* of the pieces before it, wherever those
//!    were found. So pieces may overlap, and may even be in another order: both `w*1*b` and `eb*0`
//!    match `web01`.
//!
//! Source: OpenTSDB 2.4, `TagVWildcardFilter`.

use super::error::FilterError;
use super::pattern::{Pattern, Predicate};
use crate::quirks::Quirks;

/// A pattern with at least one star.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Glob {
    text: String,
    open_start: bool,
    open_end: bool,
    pieces: Vec<String>,
}

impl Glob {
    /// Reads a pattern; `None` if it has no star.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !text.contains('*') {
            return None;
        }
        let inner = text.trim_matches('*');
        let pieces = if inner.is_empty() {
            Vec::new()
        } else {
            inner.split('*').map(str::to_owned).collect()
        };
        Some(Self {
            text: text.to_owned(),
            open_start: text.starts_with('*'),
            open_end: text.ends_with('*'),
            pieces,
        })
    }

    /// Whether the pattern is stars only, and so matches everything.
    pub(super) const fn is_any(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a value matches; `loosely`: as in OpenTSDB.
    pub(super) fn matches(&self, value: &str, loosely: bool) -> bool {
        if loosely {
            self.matches_loosely(value)
        } else {
            self.matches_strictly(value)
        }
    }

    /// Pieces one behind the other, the first and the last at the ends unless there is a star.
    fn matches_strictly(&self, value: &str) -> bool {
        let mut rest = value;
        let mut pieces = self.pieces.as_slice();
        if !self.open_start
            && let [first, others @ ..] = pieces
        {
            let Some(behind) = rest.strip_prefix(first.as_str()) else {
                return false;
            };
            (rest, pieces) = (behind, others);
        }
        if !self.open_end
            && let [others @ .., last] = pieces
        {
            let Some(before) = rest.strip_suffix(last.as_str()) else {
                return false;
            };
            (rest, pieces) = (before, others);
        }
        // The first place for each piece leaves the most text for the others.
        pieces.iter().all(|piece| match rest.split_once(piece.as_str()) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }

    fn matches_loosely(&self, value: &str) -> bool {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else {
            return true;
        };
        let ends_hold = match (self.open_start, self.open_end) {
            (true, false) => value.ends_with(last.as_str()),
            (false, true) => value.starts_with(first.as_str()),
            (true, true) | (false, false) => true,
        };
        // Lengths are of characters, not of bytes.
        let mut skipped = 0;
        ends_hold
            && self.pieces.iter().all(|piece| {
                let from = value
                    .char_indices()
                    .nth(skipped)
                    .map_or(value.len(), |(index, _)| index);
                skipped += piece.chars().count();
                value[from..].contains(piece.as_str())
            })
    }
}

impl Pattern for Glob {
    fn text(&self) -> &str {
        &self.text
    }

    fn matches_all(&self) -> bool {
        self.is_any()
    }

    fn matches_without_tag(&self) -> bool {
        self.is_any()
    }

    /// Stars at the ends do not count.
    fn is_same(&self, text: &str) -> bool {
        Self::parse(text).is_some_and(|other| self.pieces == other.pieces)
    }

    fn predicate(&self, quirks: Quirks) -> Result<Predicate, FilterError> {
        let glob = self.clone();
        Ok(Box::new(move |value| glob.matches(value, quirks.loose_globs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_loosely_or_strictly() {
        for (pattern, value, loosely, strictly) in [
            ("*", "", true, true),
            ("**", "web01", true, true),
            ("web*", "web01", true, true),
            ("web*", "db-web", false, false),
            ("*01", "web01", true, true),
            ("*01", "web010", false, false),
            ("*eb0*", "web01", true, true),
            ("*eb2*", "web01", false, false),
            ("w*1", "web01", true, true),
            // Neither end is held when the star is in the middle.
            ("e*0", "web01", true, false),
            // Pieces in another order.
            ("eb*0", "web01", true, false),
            ("w*1*b", "web01", true, false),
            // The second piece must be found after as many characters as the first has.
            ("web*w", "web01", false, false),
            ("a**b", "ab", true, true),
            ("é*b", "éb", true, true),
            ("ab*b", "ab", false, false),
            ("a*ab*b", "aabb", true, true),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches(value, true), loosely, "{pattern} {value}, loosely");
            assert_eq!(
                glob.matches(value, false),
                strictly,
                "{pattern} {value}, strictly"
            );
        }
    }

    #[test]
    fn a_pattern_has_a_star() {
        assert_eq!(Glob::parse("web01"), None);
        assert!(Glob::parse("***").unwrap().is_any());
        assert!(!Glob::parse("a*").unwrap().is_any());
    }
}
