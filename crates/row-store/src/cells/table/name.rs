//! Names of table files.

use std::fmt;

const EXTENSION: &str = ".cells";

/// The commits of a table, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CommitRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl CommitRange {
    /// The range of a file name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (first, last) = name.strip_suffix(EXTENSION)?.split_once('-')?;
        let range = Self {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
        };
        (range.to_string() == name && range.first <= range.last).then_some(range)
    }

    /// Whether all commits of another range are in this one.
    pub(crate) const fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl fmt::Display for CommitRange {
    /// The file name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}-{:010}{EXTENSION}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_their_ranges() {
        let range = CommitRange { first: 17, last: 42 };
        assert_eq!(range.to_string(), "0000000017-0000000042.cells");
        assert_eq!(CommitRange::parse("0000000017-0000000042.cells"), Some(range));
        for name in [
            "17-42.cells",
            "0000000043-0000000042.cells",
            "0000000017.cells",
            "a-b.cells",
        ] {
            assert_eq!(CommitRange::parse(name), None, "{name}");
        }
    }
}
