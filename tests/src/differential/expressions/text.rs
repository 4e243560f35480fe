//! Parts of both kinds of expressions.

use rand::rngs::StdRng;

use crate::differential::downsampling::specification;

/// Aggregators of the sub-queries in expressions.
pub(super) const AGGREGATORS: [&str; 12] = [
    "sum", "sum", "max", "min", "avg", "zimsum", "mimmax", "count", "none", "p90", "dev", "first",
];

/// Windows of a fixed length: calls support calendar windows only in UTC, `exp` does not support them.
pub(super) fn fixed_windows(random: &mut StdRng, seconds: i64, may_fill: bool) -> String {
    loop {
        let text = specification(random, seconds, may_fill);
        if !text.contains("all") && !text.contains("c-") {
            return text;
        }
    }
}
