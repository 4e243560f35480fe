//! Integers from 0 to a greatest one, in fractions of bits.
//!
//! ```text
//!   group   number 0 + number 1 * radix + number 2 * radix^2 ...   radix = greatest + 1
//! ```
//!
//! A group of numbers is one number of a mixed radix: three numbers up to 200 take 23 bits instead of 24. Groups follow
//! each other without gaps, starting with the most significant bit; the last byte is padded with zeros. The size of
//! a group follows from the greatest number and the count.

use oxtsdb_storage_file::varint::Reader;

/// The most numbers of a group: more would save less than they take to decode.
const MAX_GROUP: usize = 8;
/// A number of this many bits is within 8 bytes at any bit offset.
const WINDOW_BITS: u32 = 57;

/// How numbers are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    /// Numbers of a group.
    group: usize,
    /// Bits of a group.
    bits: u32,
    radix: u64,
}

impl Packing {
    /// The shortest packing of `count` numbers up to `greatest`.
    pub(super) fn new(greatest: u64, count: usize) -> Self {
        let mut best = Self {
            group: 1,
            bits: u64::BITS - greatest.leading_zeros(),
            radix: greatest.wrapping_add(1),
        };
        // Powers of two have no fractions.
        if greatest == 0 || greatest >> (WINDOW_BITS / 2) != 0 || best.radix.is_power_of_two() {
            return best;
        }
        let radix = best.radix;
        let mut power = radix;
        for group in 2..=MAX_GROUP.min(count) {
            power *= radix;
            let bits = u64::BITS - (power - 1).leading_zeros();
            // Groups are read as one window, and divided exactly: a power more must not overflow.
            if bits > WINDOW_BITS || power.checked_mul(radix).is_none() {
                break;
            }
            let packing = Self { group, bits, radix };
            if packing.bit_len(count) < best.bit_len(count) {
                best = packing;
            }
        }
        best
    }

    /// Bits of `count` numbers.
    pub(super) const fn bit_len(&self, count: usize) -> usize {
        count.div_ceil(self.group).saturating_mul(self.bits as usize)
    }

    /// Appends numbers.
    #[expect(clippy::cast_possible_truncation, reason = "bytes are taken off the top")]
    pub(super) fn pack(&self, bytes: &mut Vec<u8>, numbers: &[u64]) {
        if self.bits == 0 {
            return;
        }
        let (mut pending, mut count) = (0_u128, 0_u32);
        for group in numbers.chunks(self.group) {
            let number = group.iter().rev().fold(0, |sum: u64, digit| {
                sum.wrapping_mul(self.radix).wrapping_add(*digit)
            });
            pending = pending << self.bits | u128::from(number);
            count += self.bits;
            while count >= 8 {
                count -= 8;
                bytes.push((pending >> count) as u8);
            }
        }
        if count > 0 {
            bytes.push((pending << (8 - count)) as u8);
        }
    }

    /// Takes the bytes of `count` numbers.
    pub(super) fn read<'b>(&self, reader: &mut Reader<'b>, count: usize) -> Option<&'b [u8]> {
        reader.bytes(self.bit_len(count).div_ceil(8))
    }

    /// The index of the first number of a group.
    pub(super) const fn group_start(&self, index: usize) -> usize {
        index - index % self.group
    }

    /// Decodes the numbers from index `from` on, the first index of a group, filling `numbers`. `packed` are the bytes
    /// that [`Packing::read`] took for these numbers and all before them, or more.
    pub(super) fn unpack(&self, packed: &[u8], from: usize, numbers: &mut [i64]) {
        if self.bits == 0 {
            return numbers.fill(0);
        }
        match self.group {
            1 => {
                for (index, number) in (from..).zip(numbers) {
                    *number = self.number_at(packed, index).cast_signed();
                }
            }
            2 => self.unpack_groups::<2>(packed, from, numbers),
            3 => self.unpack_groups::<3>(packed, from, numbers),
            4 => self.unpack_groups::<4>(packed, from, numbers),
            5 => self.unpack_groups::<5>(packed, from, numbers),
            6 => self.unpack_groups::<6>(packed, from, numbers),
            7 => self.unpack_groups::<7>(packed, from, numbers),
            _ => self.unpack_groups::<MAX_GROUP>(packed, from, numbers),
        }
    }

    fn unpack_groups<const SIZE: usize>(&self, packed: &[u8], from: usize, numbers: &mut [i64]) {
        let (groups, rest) = numbers.as_chunks_mut::<SIZE>();
        let (first, count) = (from / SIZE, groups.len());
        for (index, group) in (first..).zip(groups) {
            self.divide(self.number_at(packed, index), group);
        }
        if !rest.is_empty() {
            self.divide(self.number_at(packed, first + count), rest);
        }
    }

    /// Splits a group into its numbers. A group that no encoder writes gives any numbers.
    #[inline]
    fn divide(&self, mut group: u64, numbers: &mut [i64]) {
        // Rounded up: the quotient is exact for numbers below 2^64 / radix.
        let reciprocal = u128::from(u64::MAX / self.radix + 1);
        for number in numbers {
            let quotient = ((u128::from(group) * reciprocal) >> 64) as u64;
            *number = group
                .wrapping_sub(quotient.wrapping_mul(self.radix))
                .cast_signed();
            group = quotient;
        }
    }

    /// The group at an index. `packed` has it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "shifted down to at most 64 bits")]
    fn number_at(&self, packed: &[u8], index: usize) -> u64 {
        let bit = index * self.bits as usize;
        let rest = &packed[bit / 8..];
        if self.bits <= WINDOW_BITS
            && let Some(window) = rest.first_chunk()
        {
            return u64::from_be_bytes(*window) << (bit % 8) >> (u64::BITS - self.bits);
        }
        let mut window = [0; 16];
        let length = rest.len().min(16);
        window[..length].copy_from_slice(&rest[..length]);
        (u128::from_be_bytes(window) << (bit % 8) >> (u128::BITS - self.bits)) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn round_trip(numbers: &[u64]) -> usize {
        let greatest = numbers.iter().copied().max().unwrap_or(0);
        let packing = Packing::new(greatest, numbers.len());
        let mut bytes = Vec::new();
        packing.pack(&mut bytes, numbers);
        assert_eq!(bytes.len(), packing.bit_len(numbers.len()).div_ceil(8));
        let mut decoded = vec![0; numbers.len()];
        let mut reader = Reader(&bytes);
        let packed = packing.read(&mut reader, numbers.len()).unwrap();
        packing.unpack(packed, 0, &mut decoded);
        assert!(
            decoded
                .iter()
                .zip(numbers)
                .all(|(decoded, number)| decoded.cast_unsigned() == *number)
        );
        assert!(reader.0.is_empty());
        bytes.len()
    }

    #[test]
    fn groups_take_fractions_of_bits() {
        let numbers: Vec<u64> = (0..3_000).map(|number| number * 7 % 201).collect();
        assert_eq!(round_trip(&numbers), 1_000 * 23 / 8);
    }

    #[test]
    fn every_radix_round_trips_at_its_extremes() {
        for greatest in (0..5_000).chain([u64::MAX, u64::MAX - 1, 1 << 40, 1 << 57, 1 << 56]) {
            round_trip(&[greatest; 21]);
            round_trip(&[
                0,
                greatest,
                0,
                greatest / 2,
                greatest,
                greatest.saturating_sub(1),
                0,
            ]);
        }
    }

    proptest! {
        #[test]
        fn numbers_round_trip(bits in 0..64_u32, numbers in vec(any::<u64>(), 0..100)) {
            let numbers: Vec<u64> = numbers.iter().map(|number| number >> bits).collect();
            round_trip(&numbers);
        }

        #[test]
        fn any_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..100), greatest: u64, bits in 0..64_u32, count in 0..200_usize) {
            let mut numbers = vec![0; count];
            let packing = Packing::new(greatest >> bits, count);
            if let Some(packed) = packing.read(&mut Reader(&bytes), count) {
                packing.unpack(packed, 0, &mut numbers);
            }
        }
    }
}
