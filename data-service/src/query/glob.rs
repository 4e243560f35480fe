//! OpenTSDB's wildcard patterns, which are looser than they look.
//!
//! Stars at the beginning and at the end are taken off; what is left is split at its stars into
//! pieces. Then:
//!
//! 1. `*x`: the value must end with the last piece. `x*`: it must start with the first. With stars
//!    at both ends, **or only in the middle**, neither end is held.
//! 2. Each piece must be found somewhere after the *lengths* of the pieces before it, wherever those
//!    were found. So pieces may overlap, and may even be in another order: both `w*1*b` and `eb*0`
//!    match `web01`.
//!
//! Source: OpenTSDB 2.4, `TagVWildcardFilter`.

/// A pattern with at least one star.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    text: String,
    open_start: bool,
    open_end: bool,
    pieces: Vec<String>,
}

impl Glob {
    /// Reads a pattern; `None` if it has no star.
    pub fn parse(text: &str) -> Option<Self> {
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

    /// The pattern as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern is stars only, and so matches everything.
    pub const fn is_any(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether a value matches.
    pub fn matches(&self, value: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_loosely_as_in_opentsdb() {
        for (pattern, value, expected) in [
            ("*", "", true),
            ("**", "web01", true),
            ("web*", "web01", true),
            ("web*", "db-web", false),
            ("*01", "web01", true),
            ("*01", "web010", false),
            ("*eb0*", "web01", true),
            ("*eb2*", "web01", false),
            ("w*1", "web01", true),
            // Neither end is held when the star is in the middle.
            ("e*0", "web01", true),
            // Pieces in another order.
            ("eb*0", "web01", true),
            ("w*1*b", "web01", true),
            // The second piece must be found after as many characters as the first has.
            ("web*w", "web01", false),
            ("a**b", "ab", true),
            ("é*b", "éb", true),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn a_pattern_has_a_star() {
        assert_eq!(Glob::parse("web01"), None);
        assert!(Glob::parse("***").unwrap().is_any());
        assert!(!Glob::parse("a*").unwrap().is_any());
    }
}
