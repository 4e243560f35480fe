//! A set of UIDs: a bit for each number, in pages that exist where a number is in use.

use std::collections::BTreeMap;

/// Words of a page: 512 numbers.
const WORDS: usize = 8;

/// Numbers of a page.
const PAGE: u64 = 64 * WORDS as u64;

/// Memory of a page with its entry in the map, in bytes; an estimate.
const PAGE_BYTES: u64 = 96;

/// Numbers of UIDs. Sequential numbers take a fifth of a byte each, scattered ones up to 96 bytes.
#[derive(Debug, Default)]
pub struct UidSet {
    pages: BTreeMap<u64, [u64; WORDS]>,
}

impl UidSet {
    /// Adds a number. Returns whether it was not in the set.
    pub fn insert(&mut self, number: u64) -> bool {
        let page = self.pages.entry(number / PAGE).or_default();
        let (word, bit) = place(number);
        let Some(word) = page.get_mut(word) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        let page = self.pages.get(&(number / PAGE));
        page.and_then(|page| page.get(word))
            .is_some_and(|word| word & bit != 0)
    }

    /// Memory, in bytes.
    pub fn byte_len(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.iter().flat_map(|(page, words)| {
            words.iter().enumerate().flat_map(move |(index, word)| {
                let first = page * PAGE + index as u64 * 64;
                (0..64)
                    .filter(move |bit| word >> bit & 1 == 1)
                    .map(move |bit| first + bit)
            })
        })
    }
}

/// The word of a number in its page, and its bit.
fn place(number: u64) -> (usize, u64) {
    let in_page = number % PAGE;
    let word = usize::try_from(in_page / 64).unwrap_or(WORDS);
    (word, 1 << (in_page % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn has_the_numbers_that_were_added() {
        let mut set = UidSet::default();
        let mut expected = BTreeSet::new();
        let mut state = 1_u64;
        for round in 0..5000 {
            // Knuth's linear congruential generator: dense numbers and scattered ones, some of them twice.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = if round % 2 == 0 {
                state >> 52
            } else {
                state >> (state >> 58)
            };
            assert_eq!(set.insert(number), expected.insert(number), "{number}");
        }
        for edge in [0, 511, 512, u64::MAX] {
            assert_eq!(set.insert(edge), expected.insert(edge), "{edge}");
        }
        assert!(set.iter().eq(expected.iter().copied()));
        assert!((0..5000).all(|number| set.contains(number) == expected.contains(&number)));
    }

    #[test]
    fn all_numbers_of_three_bytes_take_a_few_mebibytes() {
        let mut set = UidSet::default();
        (0..1 << 24).step_by(100).for_each(|number| {
            set.insert(number);
        });
        assert!(set.byte_len() <= 4 << 20, "{}", set.byte_len());
    }
}
