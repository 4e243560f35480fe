//! Encoding of a sequence of integers in few bits.
//!
//! ```text
//!   order (2 bits) shift (6 bits) | framing (1) | heads | frames
//!   frame   smallest (varint) | width (1) | residuals, `width` bits each
//! ```
//!
//! Residuals are the numbers (order 0), their differences (order 1), or the differences of those (order 2),
//! whichever is smallest; the heads are the initial values of the differences. The `shift` low bits that are 0
//! in every residual are omitted. A frame encodes the distance of each residual from the smallest one. Framing
//! says whether a frame has 128 residuals or all of them.
//!
//! The caller knows the number of integers. Bits are packed starting with the most significant one.

use super::super::varint::{self, Reader, zigzag};

/// Residuals in a frame, unless one frame has all of them.
const FRAME: usize = 128;

/// Appends the encoded numbers.
pub(super) fn encode(bytes: &mut Vec<u8>, numbers: &[i64]) {
    if numbers.is_empty() {
        return;
    }
    let mut best: Option<Plan> = None;
    let mut residuals = numbers.to_vec();
    for order in 0..=2_u8.min(u8::try_from(numbers.len() - 1).unwrap_or(2)) {
        if order > 0 {
            difference(&mut residuals, usize::from(order));
        }
        let tail = &residuals[usize::from(order)..];
        let shift = tail
            .iter()
            .fold(0, |bits, residual| bits | residual)
            .trailing_zeros()
            .min(63);
        for in_one in [false, true] {
            let plan = Plan {
                order,
                shift,
                in_one,
                bits: cost(tail, shift, in_one),
            };
            if best.is_none_or(|best| plan.bits < best.bits) {
                best = Some(plan);
            }
        }
        if best.is_some_and(|best| best.order + 1 < order) {
            break;
        }
    }
    if let Some(plan) = best {
        write(bytes, numbers, plan);
    }
}

#[derive(Clone, Copy)]
struct Plan {
    order: u8,
    shift: u32,
    in_one: bool,
    bits: usize,
}

/// Replaces all but the first `order` numbers by the differences to their predecessors.
fn difference(numbers: &mut [i64], order: usize) {
    for index in (order..numbers.len()).rev() {
        numbers[index] = numbers[index].wrapping_sub(numbers[index - 1]);
    }
}

fn frames(residuals: &[i64], in_one: bool) -> impl Iterator<Item = &[i64]> {
    residuals.chunks(if in_one { residuals.len().max(1) } else { FRAME })
}

/// The smallest residual of a frame, and the bits of the distance to the greatest.
fn extent(frame: &[i64], shift: u32) -> (i64, u32) {
    let (smallest, greatest) = frame.iter().fold((i64::MAX, i64::MIN), |(low, high), number| {
        (low.min(*number), high.max(*number))
    });
    let (smallest, greatest) = (smallest >> shift, greatest >> shift);
    let distance = greatest.wrapping_sub(smallest).cast_unsigned();
    (smallest, u64::BITS - distance.leading_zeros())
}

fn cost(residuals: &[i64], shift: u32, in_one: bool) -> usize {
    frames(residuals, in_one)
        .map(|frame| {
            let (smallest, width) = extent(frame, shift);
            let head = (u64::BITS - zigzag(smallest).leading_zeros()).max(1).div_ceil(7) as usize;
            8 * (head + 1) + frame.len() * width as usize
        })
        .sum()
}

fn write(bytes: &mut Vec<u8>, numbers: &[i64], plan: Plan) {
    let order = usize::from(plan.order);
    let mut residuals = numbers.to_vec();
    for order in 1..=order {
        difference(&mut residuals, order);
    }
    let shift = u8::try_from(plan.shift).unwrap_or(63);
    bytes.push(plan.order << 6 | shift);
    bytes.push(u8::from(plan.in_one));
    let (heads, tail) = residuals.split_at(order);
    for head in heads {
        varint::put(bytes, zigzag(*head));
    }
    for frame in frames(tail, plan.in_one) {
        let (smallest, width) = extent(frame, plan.shift);
        varint::put(bytes, zigzag(smallest));
        bytes.push(u8::try_from(width).unwrap_or(64));
        pack(
            bytes,
            width,
            frame
                .iter()
                .map(|number| (number >> plan.shift).wrapping_sub(smallest).cast_unsigned()),
        );
    }
}

/// Appends numbers of `width` bits each.
#[expect(clippy::cast_possible_truncation, reason = "bytes are taken off the top")]
pub(super) fn pack(bytes: &mut Vec<u8>, width: u32, numbers: impl Iterator<Item = u64>) {
    let (mut pending, mut count) = (0_u128, 0_u32);
    for number in numbers {
        pending = pending << width | u128::from(number);
        count += width;
        while count >= 8 {
            count -= 8;
            bytes.push((pending >> count) as u8);
        }
    }
    if count > 0 {
        bytes.push((pending << (8 - count)) as u8);
    }
}

/// Decodes numbers of `width` bits each, filling `numbers`.
pub(super) fn unpack(reader: &mut Reader<'_>, width: u32, numbers: &mut [i64]) -> Option<()> {
    if width == 0 {
        numbers.fill(0);
        return Some(());
    }
    if width > 64 {
        return None;
    }
    let bits = width as usize;
    let packed = reader.bytes(numbers.len().checked_mul(bits)?.div_ceil(8))?;
    let done = unpack_eights(packed, width, numbers);
    for (index, number) in numbers.iter_mut().enumerate().skip(done) {
        *number = number_at(packed, index * bits, width)?;
    }
    Some(())
}

/// Decodes the number at a bit offset.
#[expect(clippy::cast_possible_truncation, reason = "shifted down to at most 64 bits")]
fn number_at(packed: &[u8], bit: usize, width: u32) -> Option<i64> {
    let rest = packed.get(bit / 8..)?;
    let window = match rest.first_chunk() {
        Some(window) => *window,
        // Near the end: padded with zeros.
        None => {
            let mut window = [0; 16];
            window.get_mut(..rest.len())?.copy_from_slice(rest);
            window
        }
    };
    Some(((u128::from_be_bytes(window) << (bit % 8) >> (128 - width)) as u64).cast_signed())
}

/// Decodes groups of eight numbers of up to 16 bits, which begin and end on byte boundaries. Returns how many
/// numbers were decoded.
fn unpack_eights(packed: &[u8], width: u32, numbers: &mut [i64]) -> usize {
    // A constant width in each instance makes all shifts constant.
    macro_rules! of_width {
        ($($width:literal)*) => {
            match width {
                $($width => eights::<$width>(packed, numbers),)*
                _ => 0,
            }
        };
    }
    of_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}

#[expect(clippy::cast_possible_truncation, reason = "masked to at most 16 bits")]
fn eights<const WIDTH: usize>(packed: &[u8], numbers: &mut [i64]) -> usize {
    let (packed, _) = packed.as_chunks::<WIDTH>();
    let (numbers, _) = numbers.as_chunks_mut::<8>();
    for (bytes, numbers) in packed.iter().zip(numbers.iter_mut()) {
        let mut window = [0; 16];
        window[16 - WIDTH..].copy_from_slice(bytes);
        let window = u128::from_be_bytes(window);
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = (window >> (WIDTH * (7 - index))) as i64 & ((1 << WIDTH) - 1);
        }
    }
    numbers.len() * 8
}

/// Decodes `count` numbers; `None` if the bytes are invalid.
pub(super) fn decode(reader: &mut Reader<'_>, count: usize) -> Option<Vec<i64>> {
    let mut numbers = Vec::new();
    decode_into(reader, count, &mut numbers)?;
    Some(numbers)
}

/// As [`decode`], replacing the content of `numbers`.
pub(super) fn decode_into(reader: &mut Reader<'_>, count: usize, numbers: &mut Vec<i64>) -> Option<()> {
    numbers.clear();
    if count == 0 {
        return Some(());
    }
    numbers.resize(count, 0);
    let first = reader.byte()?;
    let (order, shift) = (usize::from(first >> 6), u32::from(first & 63));
    let frame = match reader.byte()? {
        0 => FRAME,
        1 => count,
        _ => return None,
    };
    if order > 2 {
        return None;
    }
    let (heads, residuals) = numbers.split_at_mut_checked(order)?;
    for head in heads {
        *head = reader.signed()?;
    }
    for residuals in residuals.chunks_mut(frame) {
        let smallest = reader.signed()?;
        let width = u32::from(reader.byte()?);
        unpack(reader, width, residuals)?;
        for residual in residuals {
            *residual = smallest.wrapping_add(*residual) << shift;
        }
    }
    // Sums up the differences.
    for order in (1..=order).rev() {
        let (heads, rest) = numbers.split_at_mut(order);
        let mut last = heads[order - 1];
        for number in rest {
            last = last.wrapping_add(*number);
            *number = last;
        }
    }
    Some(())
}

/// Skips `count` encoded numbers.
pub(super) fn skip(reader: &mut Reader<'_>, count: usize) -> Option<()> {
    if count == 0 {
        return Some(());
    }
    let order = usize::from(reader.byte()? >> 6);
    let in_one = reader.byte()? == 1;
    let mut rest = count.checked_sub(order)?;
    for _ in 0..order {
        reader.signed()?;
    }
    while rest > 0 {
        reader.signed()?;
        let width = usize::from(reader.byte()?);
        let length = if in_one { rest } else { FRAME.min(rest) };
        reader.bytes(length.checked_mul(width)?.div_ceil(8))?;
        rest -= length;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(numbers: &[i64]) -> usize {
        let mut bytes = Vec::new();
        encode(&mut bytes, numbers);
        let mut reader = Reader(&bytes);
        assert_eq!(decode(&mut reader, numbers.len()).as_deref(), Some(numbers));
        assert!(reader.0.is_empty(), "nothing is left over");
        let mut reader = Reader(&bytes);
        assert_eq!(skip(&mut reader, numbers.len()), Some(()));
        assert!(reader.0.is_empty(), "skip consumes all bytes");
        bytes.len()
    }

    #[test]
    fn encodes_regular_sequences_compactly() {
        assert!(bytes_of(&[7; 3_600]) <= 5);
        assert!(
            bytes_of(
                &(0..3_600)
                    .map(|n| 1_700_000_000_000 + 10_000 * n)
                    .collect::<Vec<_>>()
            ) <= 16
        );
        let steps: Vec<i64> = (0..1_280).map(|n| n * n % 256 * 1_000).collect();
        assert!(
            bytes_of(&steps) <= 1_280 * 15 / 8 + 50,
            "the low bits that all lack are not stored"
        );
        assert_eq!(bytes_of(&[]), 0);
    }

    #[test]
    fn extremes_round_trip() {
        bytes_of(&[i64::MIN, i64::MAX, 0, i64::MIN, -1, i64::MAX]);
        bytes_of(&[i64::MIN; 300]);
        bytes_of(&[i64::MIN]);
        bytes_of(&[i64::MAX, i64::MIN]);
    }

    proptest! {
        #[test]
        fn arbitrary_numbers_round_trip(numbers in vec(any::<i64>(), 0..300)) {
            bytes_of(&numbers);
        }

        #[test]
        fn random_walks_round_trip(bits in 0..63_u32, steps in vec(any::<i64>(), 0..300)) {
            let mut sum = 0_i64;
            let walk: Vec<i64> = steps.iter().map(|step| { sum = sum.wrapping_add(step >> bits); sum }).collect();
            bytes_of(&walk);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200), count in 0..1_000_usize) {
            drop(decode(&mut Reader(&bytes), count));
            skip(&mut Reader(&bytes), count);
        }
    }
}
