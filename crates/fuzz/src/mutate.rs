//! Random changes of inputs.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// Lengths, counts and limits that decoders get wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX >> 1,
    u64::MAX,
];
/// Most changes of one input.
const CHANGES: usize = 6;

/// One of the inputs, changed.
pub(crate) fn next_input(inputs: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut input = inputs.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..=CHANGES) {
        let other = inputs.choose(random).map_or(&[][..], Vec::as_slice);
        change(&mut input, other, random);
    }
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    let at = random.random_range(0..=input.len());
    // Mostly short ranges.
    let bits = random.random_range(0..8);
    let length = random.random_range(0..=1usize << bits);
    let end = (at + length).min(input.len());
    match random.random_range(0..9) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.random();
            }
        }
        2 => drop(input.drain(at..end)),
        3 => input.truncate(at),
        // Random bytes.
        4 => {
            let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
            input.splice(at..at, bytes);
        }
        // A part again, several times.
        5 => {
            let part = input[at..end].repeat(random.random_range(1..8));
            input.splice(at..at, part);
        }
        // A part of another input, in place of this or before it.
        6 | 7 => {
            let start = random.random_range(0..=other.len());
            let stop = random.random_range(start..=other.len());
            let replaced = if random.random() { at..end } else { at..at };
            input.splice(replaced, other[start..stop].iter().copied());
        }
        _ => {
            let number = NUMBERS.choose(random).copied().unwrap_or_default();
            let number = number.wrapping_add(random.random_range(0..3)).wrapping_sub(1);
            let width = [1, 2, 4, 8].choose(random).copied().unwrap_or(1);
            let bytes = number.to_be_bytes();
            for (byte, number) in input[at..].iter_mut().zip(&bytes[8 - width..]) {
                *byte = *number;
            }
        }
    }
}
