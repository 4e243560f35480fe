//! Estimates of the reads of a plan.
//!
//! Lists of series have existing ones, with or without points in the range, so their number is an upper bound.

use std::fmt;

/// The precision of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Exact, unless series are written concurrently.
    Exact,
    /// An upper bound.
    AtMost,
    /// Extrapolated from samples.
    About,
}

/// A figure with its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The figure.
    pub value: u64,
    /// Its precision.
    pub certainty: Certainty,
    /// A lower bound; only this can reject a query before it runs.
    pub at_least: u64,
}

/// The estimated reads of a plan; `None` where they cannot be estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Matching series.
    pub series: Option<Figure>,
    /// Rows that are read, or have their keys visited by a scan.
    pub rows: Option<Figure>,
    /// Bytes of these rows in the store.
    pub bytes: Option<Figure>,
    /// Points and bytes in columns.
    pub columns: Option<ColumnFigures>,
}

/// The points and bytes that a plan reads from columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnFigures {
    /// Points.
    pub points: Figure,
    /// Points in memory, included in `points`.
    pub memory_points: Figure,
    /// Blocks of points in files.
    pub blocks: Figure,
    /// Files that can have such blocks.
    pub files: Figure,
}

impl Figure {
    /// A figure of a precision.
    pub(crate) const fn new(value: u64, certainty: Certainty) -> Self {
        Self {
            value,
            certainty,
            at_least: match certainty {
                Certainty::Exact => value,
                Certainty::AtMost | Certainty::About => 0,
            },
        }
    }

    /// An upper bound.
    pub(crate) const fn at_most(value: u64) -> Self {
        match value {
            0 => Self::new(0, Certainty::Exact),
            value => Self::new(value, Certainty::AtMost),
        }
    }

    /// An extrapolation.
    pub(crate) const fn about(value: u64) -> Self {
        match value {
            0 => Self::new(0, Certainty::Exact),
            value => Self::new(value, Certainty::About),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.certainty {
            Certainty::Exact => "",
            Certainty::AtMost => "at most ",
            Certainty::About => "about ",
        })?;
        write!(f, "{}", self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_figures_are_lower_bounds() {
        let figure = |certainty| Figure::new(7, certainty);
        assert_eq!(figure(Certainty::Exact).at_least, 7);
        assert_eq!(figure(Certainty::About).at_least, 0);
        assert_eq!(figure(Certainty::AtMost).at_least, 0);
        assert_eq!(figure(Certainty::AtMost).to_string(), "at most 7");
    }
}
