//! Bloom filters: about one absent key in a hundred is not recognized.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 7;

/// The hash of a key.
pub(super) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The filter of keys with these hashes.
pub(super) fn build(hashes: &[u64]) -> Vec<u8> {
    let mut bits = vec![0_u8; (hashes.len() * BITS_PER_KEY).div_ceil(8).max(8)];
    let count = bits.len() as u64 * 8;
    for hash in hashes {
        for bit in probes(*hash, count) {
            if let Some(byte) = bits.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
    }
    bits
}

/// Whether a filter may have been built with a hash.
pub(super) fn may_contain(filter: &Bytes, hash: u64) -> bool {
    let count = filter.len() as u64 * 8;
    let has = |bit: usize| filter.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    count == 0 || probes(hash, count).all(has)
}

#[expect(clippy::cast_possible_truncation, reason = "less than the bits of a filter")]
fn probes(hash: u64, count: u64) -> impl Iterator<Item = usize> {
    let step = (hash >> 32) | 1;
    (0..u64::from(PROBES)).map(move |probe| (hash.wrapping_add(probe.wrapping_mul(step)) % count) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_keys_and_few_others() {
        let hashes: Vec<u64> = (0..10_000_u32).map(|key| hash(&key.to_be_bytes())).collect();
        let filter = Bytes::from(build(&hashes));
        assert!(hashes.iter().all(|hash| may_contain(&filter, *hash)));
        let others = (10_000..20_000_u32).map(|key| hash(&key.to_be_bytes()));
        let wrong = others.filter(|hash| may_contain(&filter, *hash)).count();
        assert!(wrong < 200, "{wrong}");
    }
}
