//! Integers in few bits.
//!
//! ```text
//!   one number    number (signed)
//!   more          model (1) | divisor, if not 1 | heads (signed) | frames
//!   model         order (2 bits), one frame (bit 2), divisor (bit 3)
//!   frame         smallest (signed) | greatest distance | distances, see `packing`
//! ```
//!
//! Lengths are varints. By order, the residuals are
//!
//! | Order | Heads | Residuals |
//! |---|---|---|
//! | 0 | | the numbers |
//! | 1 | first number | differences |
//! | 2 | first number, first difference | differences of differences |
//! | 3 | first number, step | distances from the line through the first number |
//!
//! A line is right for instants of a steady clock with jitter: differences would have twice the jitter. A frame has
//! 128 residuals, or all of them. It stores how many times the divisor each residual is above the smallest one.
//! The encoder takes the shortest form. Sums wrap around. The caller knows the count.

use std::ops::Range;

use super::packing::Packing;
use oxtsdb_storage_file::varint::{self, Reader, zigzag};

/// Residuals of a frame, unless one frame has all of them.
const FRAME: usize = 128;
const LINE: u8 = 3;
const ONE_FRAME: u8 = 4;
const DIVISOR: u8 = 8;

/// Buffers of an encoder.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    residuals: Vec<i64>,
    best: Vec<i64>,
    distances: Vec<u64>,
}

/// A form of numbers.
#[derive(Clone, Copy, Debug)]
struct Plan {
    order: u8,
    one_frame: bool,
    divisor: u64,
    bits: usize,
    /// Extremes of the residuals.
    smallest: i64,
    greatest: i64,
}

/// Appends numbers.
pub(crate) fn encode(bytes: &mut Vec<u8>, numbers: &[i64], buffers: &mut Buffers) {
    if numbers.len() < 2 {
        numbers
            .iter()
            .for_each(|number| varint::put(bytes, zigzag(*number)));
        return;
    }
    let mut best: Option<(Plan, i64)> = None;
    let mut differences = None;
    let Buffers {
        residuals,
        best: best_residuals,
        distances,
    } = buffers;
    residuals.clear();
    residuals.extend_from_slice(numbers);
    for order in 0..LINE.min(u8::try_from(numbers.len()).unwrap_or(LINE)) {
        if order > 0 {
            difference(residuals, usize::from(order));
        }
        let plan = plan(residuals, order);
        if order == 1 {
            differences = Some(plan);
        }
        if best.is_none_or(|(best, _)| plan.bits < best.bits) {
            best = Some((plan, 0));
            best_residuals.clone_from(residuals);
        }
        // Differences that take more will take even more.
        if best.is_some_and(|(best, _)| best.order < order) {
            break;
        }
    }
    let steps = differences
        .into_iter()
        .flat_map(|differences| steps(numbers, &differences));
    for step in steps {
        distance_from_line(numbers, step, residuals);
        let plan = plan(residuals, LINE);
        if best.is_none_or(|(best, _)| plan.bits < best.bits) {
            best = Some((plan, step));
            best_residuals.clone_from(residuals);
        }
    }
    if let Some((plan, step)) = best {
        write(bytes, best_residuals, plan, step, distances);
    }
}

/// Replaces all but the first `order` numbers by the differences to their predecessors.
fn difference(numbers: &mut [i64], order: usize) {
    for index in (order..numbers.len()).rev() {
        numbers[index] = numbers[index].wrapping_sub(numbers[index - 1]);
    }
}

/// The steps of lines that the numbers may be near: their mean, and round numbers near it. None if the differences
/// vary by more than their size, which is no steady clock.
fn steps(numbers: &[i64], differences: &Plan) -> impl Iterator<Item = i64> + use<> {
    let count = i128::try_from(numbers.len() - 1).unwrap_or(1);
    let sum = i128::from(numbers[numbers.len() - 1]) - i128::from(numbers[0]);
    let mean = i64::try_from(sum / count).unwrap_or(0);
    let varied = distance(differences.smallest, differences.greatest);
    let steady = varied > 0 && varied < mean.unsigned_abs();
    let round = |unit: i64| mean.saturating_add(mean.signum() * unit / 2) / unit * unit;
    let steps = [round(1_000), round(10), mean];
    // Of a few numbers, differences are as short.
    let used = if steady && count >= 8 { steps.len() } else { 0 };
    (0..used)
        .filter(move |index| !steps[..*index].contains(&steps[*index]))
        .map(move |index| steps[index])
}

fn distance_from_line(numbers: &[i64], step: i64, residuals: &mut Vec<i64>) {
    residuals.clear();
    let mut line = numbers[0];
    residuals.push(line);
    residuals.extend(numbers[1..].iter().map(|number| {
        line = line.wrapping_add(step);
        number.wrapping_sub(line)
    }));
}

/// Numbers before the residuals. A line has its first number there, and its step apart.
const fn head_count(order: u8) -> usize {
    if order == LINE { 1 } else { order as usize }
}

/// The shortest form of residuals of an order.
fn plan(residuals: &[i64], order: u8) -> Plan {
    let tail = &residuals[head_count(order)..];
    let divisor = divisor(tail);
    let (mut framed, mut smallest, mut greatest) = (0, i64::MAX, i64::MIN);
    for frame in tail.chunks(FRAME) {
        let (low, high) = extent(frame);
        framed += cost(low, high, divisor, frame.len());
        (smallest, greatest) = (smallest.min(low), greatest.max(high));
    }
    let one = if tail.len() <= FRAME {
        framed
    } else {
        cost(smallest, greatest, divisor, tail.len())
    };
    let heads: usize = residuals[..head_count(order)]
        .iter()
        .map(|head| varint_bits(zigzag(*head)))
        .sum();
    Plan {
        order,
        one_frame: one <= framed,
        divisor,
        bits: one.min(framed) + heads + usize::from(order == LINE) * 16,
        smallest,
        greatest,
    }
}

fn extent(frame: &[i64]) -> (i64, i64) {
    frame.iter().fold((i64::MAX, i64::MIN), |(low, high), number| {
        (low.min(*number), high.max(*number))
    })
}

/// The distance of two numbers, `high` not below `low`.
const fn distance(low: i64, high: i64) -> u64 {
    high.wrapping_sub(low).cast_unsigned()
}

/// Bits of a frame, estimated: packings come close to the logarithm.
fn cost(low: i64, high: i64, divisor: u64, count: usize) -> usize {
    let distance = distance(low, high);
    let greatest = if divisor == 1 {
        distance
    } else {
        distance / divisor
    };
    varint_bits(zigzag(low)) + varint_bits(greatest) + (sixteenths(greatest) * count).div_ceil(128) * 8
}

/// Sixteenths of bits of a number from 0 to `greatest`: an approximation of the logarithm by straight lines.
const fn sixteenths(greatest: u64) -> usize {
    let radix = greatest.saturating_add(1);
    let whole = radix.ilog2();
    // The four bits behind the first one.
    let fraction = (radix << (u64::BITS - 1 - whole) >> (u64::BITS - 5)) & 15;
    whole as usize * 16 + fraction as usize
}

const fn varint_bits(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    8 * bits.div_ceil(7) as usize
}

/// The greatest number that divides the distances of all numbers.
fn divisor(numbers: &[i64]) -> u64 {
    let Some((first, rest)) = numbers.split_first() else {
        return 1;
    };
    let mut divisor = 0;
    for number in rest {
        let distance = number.abs_diff(*first);
        if divisor == 0 || distance % divisor != 0 {
            divisor = greatest_common_divisor(divisor, distance);
        }
        if divisor == 1 {
            break;
        }
    }
    divisor.max(1)
}

/// By halving and subtraction: of a short column, divisions would take most of the time.
const fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    if one == 0 || other == 0 {
        return one | other;
    }
    let twos = (one | other).trailing_zeros();
    one >>= one.trailing_zeros();
    while other != 0 {
        other >>= other.trailing_zeros();
        (one, other) = if one < other {
            (one, other - one)
        } else {
            (other, one - other)
        };
    }
    one << twos
}

fn write(bytes: &mut Vec<u8>, residuals: &[i64], plan: Plan, step: i64, distances: &mut Vec<u64>) {
    let (heads, tail) = residuals.split_at(head_count(plan.order));
    let one_frame = if plan.one_frame { ONE_FRAME } else { 0 };
    let divisor = if plan.divisor == 1 { 0 } else { DIVISOR };
    bytes.push(plan.order | one_frame | divisor);
    if divisor != 0 {
        varint::put(bytes, plan.divisor);
    }
    heads.iter().for_each(|head| varint::put(bytes, zigzag(*head)));
    if plan.order == LINE {
        varint::put(bytes, zigzag(step));
    }
    for frame in tail.chunks(if plan.one_frame { tail.len().max(1) } else { FRAME }) {
        let (low, high) = extent(frame);
        let greatest = distance(low, high) / plan.divisor;
        varint::put(bytes, zigzag(low));
        varint::put(bytes, greatest);
        distances.clear();
        if plan.divisor == 1 {
            distances.extend(frame.iter().map(|number| distance(low, *number)));
        } else {
            distances.extend(frame.iter().map(|number| distance(low, *number) / plan.divisor));
        }
        Packing::new(greatest, frame.len()).pack(bytes, distances);
    }
}

/// Decodes `count` numbers, replacing the content of `numbers`; `None` if the bytes are invalid.
pub(crate) fn decode(reader: &mut Reader<'_>, count: usize, numbers: &mut Vec<i64>) -> Option<()> {
    decode_range(reader, count, 0..count, numbers)
}

/// As [`decode`], but decodes only the numbers of a range of indexes, which lies within `count`. Frames outside are
/// skipped, except frames before it with differences that add up to its numbers.
pub(crate) fn decode_range(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: Range<usize>,
    numbers: &mut Vec<i64>,
) -> Option<()> {
    numbers.clear();
    if count < 2 {
        if count == 1 {
            numbers.push(reader.signed()?);
            numbers.truncate(wanted.len());
        }
        return Some(());
    }
    let model = reader.byte()?;
    let order = model & LINE;
    if model & !(LINE | ONE_FRAME | DIVISOR) != 0 {
        return None;
    }
    let divisor = if model & DIVISOR == 0 {
        1
    } else {
        reader.number()?.cast_signed()
    };
    let heads = head_count(order);
    for _ in 0..heads {
        numbers.push(reader.signed()?);
    }
    let line = Line {
        start: numbers.first().copied().unwrap_or_default(),
        step: if order == LINE { reader.signed()? } else { 0 },
    };
    // Differences are summed up from the first number on.
    let from = if matches!(order, 1 | 2) { 0 } else { wanted.start };
    let wanted_residuals = from.saturating_sub(heads)..wanted.end.saturating_sub(heads);
    // The index of the first of `numbers`.
    let mut first = 0;
    if from >= heads {
        numbers.clear();
        first = from;
    }
    numbers.reserve(wanted.end.saturating_sub(from));
    let residuals = count.checked_sub(heads)?;
    let frame = if model & ONE_FRAME == 0 { FRAME } else { count };
    for start in (0..residuals).step_by(frame) {
        let length = frame.min(residuals - start);
        let smallest = reader.signed()?;
        let packing = Packing::new(reader.number()?, length);
        let packed = packing.read(reader, length)?;
        let within = |index: usize| index.clamp(start, start + length) - start;
        let (low, high) = (within(wanted_residuals.start), within(wanted_residuals.end));
        if low >= high {
            continue;
        }
        let low = packing.group_start(low);
        if numbers.is_empty() {
            first = heads + start + low;
        }
        let at = numbers.len();
        numbers.resize(at + high - low, 0);
        let residuals = &mut numbers[at..];
        packing.unpack(packed, low, residuals);
        if divisor == 1 {
            residuals
                .iter_mut()
                .for_each(|residual| *residual = residual.wrapping_add(smallest));
        } else {
            residuals
                .iter_mut()
                .for_each(|residual| *residual = residual.wrapping_mul(divisor).wrapping_add(smallest));
        }
    }
    if order == LINE {
        line.add(numbers, first);
    } else {
        sum_up(numbers, order.into());
    }
    numbers.truncate(wanted.end.saturating_sub(first));
    numbers.drain(..wanted.start.saturating_sub(first).min(numbers.len()));
    Some(())
}

/// The line from which residuals are distances.
struct Line {
    start: i64,
    step: i64,
}

impl Line {
    /// Makes the numbers from an index on of their residuals. The first number of all is the start.
    fn add(&self, numbers: &mut [i64], first: usize) {
        let skipped = usize::from(first == 0);
        let mut line = self.step.wrapping_mul((first + skipped) as i64);
        line = line.wrapping_add(self.start);
        for number in numbers.iter_mut().skip(skipped) {
            *number = number.wrapping_add(line);
            line = line.wrapping_add(self.step);
        }
    }
}

/// Reverses the differences.
fn sum_up(numbers: &mut [i64], order: usize) {
    for order in (1..=order).rev() {
        let Some((heads, rest)) = numbers.split_at_mut_checked(order) else {
            return;
        };
        let mut last = heads[order - 1];
        for number in rest {
            last = last.wrapping_add(*number);
            *number = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(numbers: &[i64]) -> usize {
        let mut bytes = Vec::new();
        encode(&mut bytes, numbers, &mut Buffers::default());
        let mut reader = Reader(&bytes);
        let mut decoded = Vec::new();
        assert_eq!(decode(&mut reader, numbers.len(), &mut decoded), Some(()));
        assert_eq!(decoded, numbers);
        assert!(reader.0.is_empty(), "nothing is left over");
        for (from, to) in [
            (0, 0),
            (0, 1),
            (1, 2),
            (2, 9),
            (5, 140),
            (128, 129),
            (130, 257),
            (3, 300),
        ] {
            let wanted = from.min(numbers.len())..to.min(numbers.len());
            let mut reader = Reader(&bytes);
            assert_eq!(
                decode_range(&mut reader, numbers.len(), wanted.clone(), &mut decoded),
                Some(())
            );
            assert_eq!(decoded, numbers[wanted.clone()], "{wanted:?}");
            assert!(reader.0.is_empty(), "nothing is left over");
        }
        bytes.len()
    }

    #[test]
    fn encodes_regular_sequences_compactly() {
        assert!(bytes_of(&[7; 3_600]) <= 5);
        let times: Vec<i64> = (0..3_600).map(|n| 1_700_000_000_000 + 10_000 * n).collect();
        assert!(bytes_of(&times) <= 16);
        assert_eq!(bytes_of(&[]), 0);
        assert_eq!(bytes_of(&[5]), 1);
    }

    #[test]
    fn omits_common_divisors() {
        let steps: Vec<i64> = (0..1_280).map(|n| n * n % 256 * 1_000).collect();
        assert!(bytes_of(&steps) <= 1_280 + 10);
    }

    #[test]
    fn jitter_around_a_line_is_stored_once() {
        let times: Vec<i64> = (0..1_000)
            .map(|n| 1_700_000_000_123 + 10_000 * n + n * n * 7 % 41)
            .collect();
        assert!(
            bytes_of(&times) <= 1_000 * 11 / 16 + 20,
            "log2(41) = 5.36 bits each, packed in 5.5"
        );
    }

    #[test]
    fn extremes_round_trip() {
        bytes_of(&[i64::MIN, i64::MAX, 0, i64::MIN, -1, i64::MAX]);
        bytes_of(&[i64::MIN; 300]);
        bytes_of(&[i64::MIN]);
        bytes_of(&[i64::MAX, i64::MIN]);
        bytes_of(&[i64::MIN, i64::MAX, 5, 6, 7, 8, 9, 10, 11, 12, i64::MIN]);
        bytes_of(&[i64::MIN, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, i64::MAX]);
    }

    proptest! {
        #[test]
        fn divisors_are_those_of_euclid(one: u64, other: u64, factor in 1..1_000_u64, shift in 10..64_u32) {
            let (one, other) = ((one >> shift) * factor, (other >> shift) * factor);
            let (mut divisor, mut rest) = (one, other);
            while rest != 0 {
                (divisor, rest) = (rest, divisor % rest);
            }
            prop_assert_eq!(greatest_common_divisor(one, other), divisor);
        }

        #[test]
        fn arbitrary_numbers_round_trip(numbers in vec(any::<i64>(), 0..300)) {
            bytes_of(&numbers);
        }

        #[test]
        fn random_walks_round_trip(
            bits in 0..63_u32,
            scale in prop::sample::select(vec![1, 7, 1_000]),
            steps in vec(any::<i64>(), 0..300),
        ) {
            let mut sum = 0_i64;
            let walk: Vec<i64> = steps
                .iter()
                .map(|step| { sum = sum.wrapping_add((step >> bits).wrapping_mul(scale)); sum })
                .collect();
            bytes_of(&walk);
        }

        #[test]
        fn any_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200), count in 0..1_000_usize, from: u16, to: u16) {
            let _ = decode(&mut Reader(&bytes), count, &mut Vec::new());
            let (from, to) = (usize::from(from) % (count + 1), usize::from(to) % (count + 1));
            let _ = decode_range(&mut Reader(&bytes), count, from.min(to)..from.max(to), &mut Vec::new());
        }
    }
}
