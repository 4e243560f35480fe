//! What both kinds of expressions are made of.

use rand::rngs::StdRng;

use crate::differential::downsampling::specification;

/// Aggregators; whatever they are, expressions compute with their results.
pub(super) const AGGREGATORS: [&str; 12] = [
    "sum", "sum", "max", "min", "avg", "zimsum", "mimmax", "count", "none", "p90", "dev", "first",
];

/// Windows of a fixed length: calls cannot ask for others in any zone but UTC, and `exp` for none.
pub(super) fn fixed_windows(random: &mut StdRng, seconds: i64, may_fill: bool) -> String {
    loop {
        let text = specification(random, seconds, may_fill);
        if !text.contains("all") && !text.contains("c-") {
            return text;
        }
    }
}
