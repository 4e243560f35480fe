//! Scales of values: from a value to its height in the plot.

use crate::axis::{Axis, ValueScale};

/// Values beyond are drawn outside of the plot: differences of larger ones are infinite.
const LARGEST: f64 = 1e300;
/// The shortest axis: steps of shorter ones are not exact.
const SHORTEST: f64 = 1e-290;
/// The smallest value of a logarithmic axis.
const SMALLEST_POSITIVE: f64 = 1e-300;

/// The smallest and the largest value that are drawn on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    pub(crate) lower: f64,
    pub(crate) upper: f64,
}

impl Extent {
    /// Returns the extent of some values; `None` of none.
    pub(crate) fn from_values(values: impl Iterator<Item = f64>) -> Option<Self> {
        values
            .filter(|value| value.is_finite())
            .fold(None, |extent, value| {
                Some(match extent {
                    None => Self {
                        lower: value,
                        upper: value,
                    },
                    Some(Self { lower, upper }) => Self {
                        lower: lower.min(value),
                        upper: upper.max(value),
                    },
                })
            })
    }

    pub(crate) fn union(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            lower: self.lower.min(other.lower),
            upper: self.upper.max(other.upper),
        }
    }
}

/// The values at the ends of an axis, `lower < upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    pub(crate) kind: ValueScale,
    /// Whether the end may move to the next tick: it was not set.
    pub(crate) lower_moves: bool,
    pub(crate) upper_moves: bool,
}

impl Scale {
    /// Returns the scale of an axis with the values that are drawn on it.
    pub(crate) fn new(axis: &Axis, drawn: Option<Extent>) -> Self {
        let log = axis.scale == ValueScale::Logarithmic;
        let usable = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let clamp = |value: f64| value.clamp(if log { SMALLEST_POSITIVE } else { -LARGEST }, LARGEST);
        let set_lower = axis.lower.filter(usable).map(clamp);
        let set_upper = axis.upper.filter(usable).map(clamp);
        // A reversed range is a mistake of its writer.
        let (set_lower, set_upper) = match (set_lower, set_upper) {
            (Some(lower), Some(upper)) if lower > upper => (Some(upper), Some(lower)),
            (Some(lower), Some(upper)) if lower == upper => (Some(lower), None),
            both => both,
        };
        let empty = if log {
            Extent {
                lower: 1.0,
                upper: 10.0,
            }
        } else {
            Extent {
                lower: 0.0,
                upper: 1.0,
            }
        };
        let drawn = drawn.unwrap_or(empty);
        let mut lower = set_lower.unwrap_or_else(|| clamp(drawn.lower));
        let mut upper = set_upper.unwrap_or_else(|| clamp(drawn.upper));
        if set_lower.is_none() && !log && lower > 0.0 && lower < upper * 0.35 {
            // Near enough to 0 to show it.
            lower = 0.0;
        }
        let largest = lower.abs().max(upper.abs());
        if upper - lower <= (largest * 1e-12).max(if log { 0.0 } else { SHORTEST }) {
            // All values are equal, or the set end lies beyond all of them.
            let length = if largest <= SHORTEST { 1.0 } else { largest * 0.1 };
            match (set_lower, set_upper) {
                (Some(_), _) => {
                    upper = if log {
                        (lower * 10.0).min(LARGEST)
                    } else {
                        lower + length
                    }
                }
                (_, Some(_)) => {
                    lower = if log {
                        (upper / 10.0).max(SMALLEST_POSITIVE)
                    } else {
                        upper - length
                    }
                }
                _ if log => (lower, upper) = (lower / 2.0, upper * 2.0),
                _ => (lower, upper) = (lower - length, upper + length),
            }
        }
        if !(lower < upper && (upper - lower).is_finite() && (!log || lower > 0.0)) {
            (lower, upper) = (empty.lower, empty.upper);
        }
        Self {
            lower,
            upper,
            kind: axis.scale,
            lower_moves: set_lower.is_none(),
            upper_moves: set_upper.is_none(),
        }
    }

    /// Returns the height of a value, from 0.0 at the bottom to 1.0 at the top; outside of them for values out of range.
    pub(crate) fn height(&self, value: f64) -> f64 {
        match self.kind {
            ValueScale::Linear => (value - self.lower) / (self.upper - self.lower),
            ValueScale::Logarithmic => {
                let value = value.max(SMALLEST_POSITIVE);
                (value.ln() - self.lower.ln()) / (self.upper.ln() - self.lower.ln())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(axis: Axis, values: &[f64]) -> (f64, f64) {
        let scale = Scale::new(&axis, Extent::from_values(values.iter().copied()));
        (scale.lower, scale.upper)
    }

    #[test]
    fn set_ends_go_before_drawn_values() {
        let axis = |lower, upper| Axis {
            lower,
            upper,
            ..Axis::default()
        };
        assert_eq!(scale(axis(None, None), &[10.0, 20.0, f64::NAN]), (10.0, 20.0));
        assert_eq!(scale(axis(Some(0.0), None), &[10.0, 20.0]), (0.0, 20.0));
        assert_eq!(scale(axis(None, Some(15.0)), &[10.0, 20.0]), (10.0, 15.0));
        assert_eq!(scale(axis(Some(5.0), Some(1.0)), &[10.0, 20.0]), (1.0, 5.0));
        assert_eq!(scale(axis(Some(30.0), None), &[10.0, 20.0]), (30.0, 33.0));
        assert_eq!(
            scale(axis(Some(f64::NAN), Some(f64::INFINITY)), &[10.0, 20.0]),
            (10.0, 20.0)
        );
    }

    #[test]
    fn a_single_value_has_space_around_it() {
        assert_eq!(scale(Axis::default(), &[5.0]), (4.5, 5.5));
        assert_eq!(scale(Axis::default(), &[0.0]), (-1.0, 1.0));
        assert_eq!(scale(Axis::default(), &[]), (0.0, 1.0));
        let log = Axis {
            scale: ValueScale::Logarithmic,
            lower: Some(-1.0),
            ..Axis::default()
        };
        assert_eq!(scale(log.clone(), &[4.0]), (2.0, 8.0));
        assert_eq!(scale(log, &[]), (1.0, 10.0));
    }

    #[test]
    fn extremes_have_finite_lengths() {
        let (lower, upper) = scale(Axis::default(), &[f64::MIN, f64::MAX]);
        assert!((upper - lower).is_finite());
        let (lower, upper) = scale(Axis::default(), &[f64::MIN_POSITIVE, 1e-320]);
        assert!(lower < upper);
    }
}
