//! The order of Java's hash maps.
//!
//! OpenTSDB takes tags and names of a combined series from the operand that comes first in a
//! `HashMap` of operands, so which one it is depends on their names.
//!
//! ```text
//!   bucket = (h ^ h >>> 16) & (buckets - 1),  h = c0 * 31^(n-1) + … + c(n-1) over UTF-16
//! ```
//!
//! Keys of one bucket are in the order in which they were put.
//!
//! Source: the Java Language Specification says what `String.hashCode` is, the documentation of
//! `HashMap` its default capacity of 16 and load of 0.75.

/// Puts keys into the order of a map that was made for `capacity` entries.
pub(super) fn sort(keys: &mut [&str], capacity: usize) {
    let mut buckets = capacity.next_power_of_two();
    while keys.len() * 4 > buckets * 3 {
        buckets *= 2;
    }
    let mask = u32::try_from(buckets - 1).unwrap_or(u32::MAX);
    keys.sort_by_key(|key| {
        let hash = hash(key);
        (hash ^ hash >> 16) & mask
    });
}

fn hash(text: &str) -> u32 {
    text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(unit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        assert_eq!(hash(""), 0);
        assert_eq!(hash("a"), 97);
        assert_eq!(hash("OpenTSDB").cast_signed(), -440_023_897);
    }

    #[test]
    fn keys_are_in_order_of_their_buckets() {
        let mut keys = ["d", "b", "a", "c"];
        sort(&mut keys, 16);
        assert_eq!(keys, ["a", "b", "c", "d"]);
        // 97 is bucket 1 of 4, 100 bucket 0.
        let mut keys = ["a", "d"];
        sort(&mut keys, 2);
        assert_eq!(keys, ["d", "a"]);
    }
}
