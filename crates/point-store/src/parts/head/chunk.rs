//! A chunk: the points of one series, in the order of their arrival.
//!
//! ```text
//!   point     regular | irregular; varints have 7 bits a byte, the lowest first
//!   regular   zigzag of the value's difference, times 2 (varint)
//!             at the last step, of the last kind
//!   irregular flags and time (varint) | kind (1, if it follows) | value
//!             bit 0 set, bit 1: the kind follows, bit 2: the value has 8 bytes, above: zigzag of the second difference
//!   value     zigzag of the value's difference (varint), or its bits (8)
//! ```
//!
//! The difference of floating-point values is taken of their hundredfold, if both are integers: gauges have few digits.
//! The first point is relative to the instant that the shard began with, step 0, value 0 and an integer in seconds. A
//! step beyond 32 bits counts as 0 for the next difference, and so does a value of 8 bytes.

use super::arena::{Arena, Chain};
use crate::parts::part::Columns;
use crate::{Point, PointKind, TimeRange, ValueKind};
use oxtsdb_schema::timestamp::MAX_MILLIS;
use oxtsdb_storage_file::varint::{unzigzag, zigzag};

/// The most bytes of a point: 10 of flags and time, 1 of the kind, 10 of the value.
pub(super) const MAX_POINT_BYTES: usize = 21;

/// Integers up to this size are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The state that the next point is encoded relative to.
#[derive(Clone, Copy, Debug)]
struct Last {
    time_ms: i64,
    step: i32,
    kind: PointKind,
    /// Whether no point was older than its predecessor.
    ascends: bool,
    /// Whether the last value has 8 bytes.
    is_raw: bool,
    /// The last integer, the last hundredfold, or the bits of the last value.
    value: i64,
}

/// Points of one series. Each active series has one, so its fields are packed.
///
/// ```text
///   state     time (42 bits) | kind (3) | ascends (1) | raw (1) | all of the chain but its last block (13)
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// See [`Last::value`].
    value: i64,
    state: u64,
    step: i32,
    last_block: u32,
}

const _: () = assert!(size_of::<Chunk>() == 24, "a chunk is packed");
const _: () = assert!(
    MAX_MILLIS < 1 << (64 - TIME_SHIFT),
    "the time of a chunk has 42 bits"
);

const TIME_SHIFT: u32 = 22;
const KIND_SHIFT: u32 = 19;
const KIND_MASK: u64 = 7;
const ASCENDS: u64 = 1 << 18;
const IS_RAW: u64 = 1 << 17;
const CHAIN_MASK: u64 = (1 << Chain::STATE_BITS) - 1;

const KIND_FOLLOWS: u64 = 2;
const VALUE_HAS_8_BYTES: u64 = 4;

impl Last {
    const fn start(base_ms: i64) -> Self {
        Self {
            time_ms: base_ms,
            step: 0,
            kind: PointKind::START,
            ascends: true,
            is_raw: false,
            value: 0,
        }
    }

    /// The number that the next value is encoded relative to.
    #[inline]
    const fn base(&self) -> i64 {
        if self.is_raw { 0 } else { self.value }
    }

    /// The last point.
    #[inline]
    fn point(&self) -> Point {
        let bits = match self.kind.value() {
            ValueKind::Float | ValueKind::Double if !self.is_raw => divided(self.value).to_bits(),
            _ => self.value.cast_unsigned(),
        };
        Point {
            time_ms: self.time_ms,
            kind: self.kind,
            bits,
        }
    }

    fn advance(&mut self, time_ms: i64) {
        self.step = i32::try_from(time_ms - self.time_ms).unwrap_or(0);
        self.time_ms = time_ms;
    }
}

impl Chunk {
    /// A chunk without points; `base_ms` is an instant close to the first one.
    pub(super) fn new(chain: Chain, base_ms: i64) -> Self {
        Self::pack(&Last::start(base_ms), chain)
    }

    #[inline]
    fn pack(last: &Last, chain: Chain) -> Self {
        let (last_block, chain) = chain.pack();
        let ascends = if last.ascends { ASCENDS } else { 0 };
        let is_raw = if last.is_raw { IS_RAW } else { 0 };
        // Times are from 0 to `MAX_MILLIS`.
        let time = last.time_ms.cast_unsigned() << TIME_SHIFT;
        Self {
            value: last.value,
            state: time | u64::from(last.kind.byte()) << KIND_SHIFT | ascends | is_raw | chain,
            step: last.step,
            last_block,
        }
    }

    /// The state that the next point is encoded relative to.
    #[inline]
    fn state(&self) -> Last {
        let kind = u8::try_from(self.state >> KIND_SHIFT & KIND_MASK).ok();
        Last {
            time_ms: (self.state >> TIME_SHIFT).cast_signed(),
            step: self.step,
            kind: kind.and_then(PointKind::from_byte).unwrap_or(PointKind::START),
            ascends: self.state & ASCENDS != 0,
            is_raw: self.state & IS_RAW != 0,
            value: self.value,
        }
    }

    #[inline]
    pub(super) fn chain(&self) -> Chain {
        Chain::unpack(self.last_block, self.state & CHAIN_MASK)
    }

    /// Whether the next point needs another chunk.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        Arena::is_full(&self.chain(), MAX_POINT_BYTES)
    }

    /// The newest point, if no point was late.
    pub(super) fn last(&self) -> Option<Point> {
        let last = self.state();
        last.ascends.then(|| last.point())
    }

    /// The least and greatest instants of a chunk with points. `base_ms` is the argument of [`Chunk::new`], `bytes` a
    /// scratch buffer.
    pub(super) fn extent(&self, arena: &Arena, base_ms: i64, bytes: &mut Vec<u8>) -> (i64, i64) {
        arena.read(&self.chain(), bytes);
        let mut times = Decoder::new(bytes, base_ms).map(|point| point.time_ms);
        let first = times.next().unwrap_or(base_ms);
        let last = self.state();
        if last.ascends {
            return (first, last.time_ms);
        }
        times.fold((first, first), |(least, greatest), time_ms| {
            (least.min(time_ms), greatest.max(time_ms))
        })
    }

    /// Appends a point.
    #[inline]
    pub(super) fn append(&mut self, arena: &mut Arena, point: &Point) {
        let mut buffer = [0; MAX_POINT_BYTES];
        let mut length = 0;
        let (mut last, mut chain) = (self.state(), self.chain());
        // Times have 42 bits, so this needs 44.
        let second_difference = point.time_ms - last.time_ms - i64::from(last.step);
        let value = match point.kind.value() {
            ValueKind::Int => Some(point.bits.cast_signed()),
            ValueKind::Float | ValueKind::Double => hundredfold(point.bits),
        };
        let difference = value.map(|value| zigzag(value.wrapping_sub(last.base())));
        match difference {
            Some(difference)
                if second_difference == 0 && point.kind == last.kind && difference >> 63 == 0 =>
            {
                put(&mut buffer, &mut length, difference << 1);
            }
            _ => {
                let mut flags = 1;
                if point.kind != last.kind {
                    flags |= KIND_FOLLOWS;
                }
                if difference.is_none() {
                    flags |= VALUE_HAS_8_BYTES;
                }
                put(&mut buffer, &mut length, zigzag(second_difference) << 3 | flags);
                if flags & KIND_FOLLOWS != 0 {
                    buffer[length] = point.kind.byte();
                    length += 1;
                }
                if let Some(difference) = difference {
                    put(&mut buffer, &mut length, difference);
                } else {
                    buffer[length..length + 8].copy_from_slice(&point.bits.to_be_bytes());
                    length += 8;
                }
            }
        }
        last.ascends &= point.time_ms >= last.time_ms;
        last.advance(point.time_ms);
        last.kind = point.kind;
        last.is_raw = value.is_none();
        last.value = value.unwrap_or(point.bits.cast_signed());
        arena.append(&mut chain, &buffer[..length]);
        *self = Self::pack(&last, chain);
    }
}

/// Appends the points of a chunk's bytes that are in a range, in the order of their arrival. `base_ms` is the argument
/// of [`Chunk::new`].
pub(super) fn decode(bytes: &[u8], base_ms: i64, range: TimeRange, points: &mut Columns) {
    let mut decoder = Decoder::new(bytes, base_ms);
    while let Some(point) = decoder.next() {
        if range.contains(point.time_ms) {
            points.push(point);
        }
        decoder.next_regular(range, points);
    }
}

/// Decodes the bytes of a chunk: its points in the order of their arrival.
#[derive(Debug)]
struct Decoder<'a> {
    rest: &'a [u8],
    last: Last,
}

impl<'a> Decoder<'a> {
    const fn new(bytes: &'a [u8], base_ms: i64) -> Self {
        Self {
            rest: bytes,
            last: Last::start(base_ms),
        }
    }

    /// Appends the following points that are in a range, up to the next irregular one.
    fn next_regular(&mut self, range: TimeRange, points: &mut Columns) {
        let (mut rest, mut value) = (self.rest, self.last.base());
        let from = points.len();
        while let Some((short, after)) = four_short(rest) {
            let values = short.map(|number| {
                value = value.wrapping_add(unzigzag(number >> 1));
                value.cast_unsigned()
            });
            points.bits.extend_from_slice(&values);
            rest = after;
        }
        // Irregular points have bit 0 of their first byte.
        while rest.first().is_some_and(|first| first & 1 == 0) {
            value = value.wrapping_add(unzigzag(get_short(&mut rest) >> 1));
            points.bits.push(value.cast_unsigned());
        }
        let count = points.bits.len() - from;
        if count == 0 {
            return;
        }
        let Last {
            time_ms, step, kind, ..
        } = self.last;
        let times_ms = (1_i64..)
            .map(|number| time_ms + number * i64::from(step))
            .take(count);
        self.rest = rest;
        self.last.is_raw = false;
        self.last.value = value;
        self.last.time_ms = time_ms + count as i64 * i64::from(step);
        if range.contains(time_ms + i64::from(step)) && range.contains(self.last.time_ms) {
            points.times_ms.extend(times_ms);
        } else {
            // Ascending or descending: points in the range follow each other.
            let before = times_ms.clone().take_while(|time_ms| !range.contains(*time_ms));
            let first = before.count();
            points.times_ms.extend(
                times_ms
                    .skip(first)
                    .take_while(|time_ms| range.contains(*time_ms)),
            );
            points.bits.drain(from..from + first);
            points.bits.truncate(points.times_ms.len());
        }
        points.kinds.resize(points.times_ms.len(), kind);
        if kind.value() != ValueKind::Int {
            for bits in &mut points.bits[from..] {
                *bits = divided(bits.cast_signed()).to_bits();
            }
        }
    }
}

impl Iterator for Decoder<'_> {
    type Item = Point;

    #[inline]
    fn next(&mut self) -> Option<Point> {
        let Self { rest, last } = self;
        if rest.is_empty() {
            return None;
        }
        let first = get_short(rest);
        if first & 1 == 0 {
            last.time_ms += i64::from(last.step);
            last.value = last.base().wrapping_add(unzigzag(first >> 1));
            last.is_raw = false;
            return Some(last.point());
        }
        let time_ms = last.time_ms + i64::from(last.step) + unzigzag(first >> 3);
        if first & KIND_FOLLOWS != 0 {
            last.kind = PointKind::from_byte(byte(rest)).unwrap_or(PointKind::START);
        }
        last.advance(time_ms);
        if first & VALUE_HAS_8_BYTES == 0 {
            last.value = last.base().wrapping_add(unzigzag(get(rest)));
            last.is_raw = false;
        } else {
            let (bits, after) = rest.split_at(8.min(rest.len()));
            *rest = after;
            let bits = bits.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            last.value = bits.cast_signed();
            last.is_raw = true;
        }
        Some(last.point())
    }
}

/// The integer that gives exactly these bits when divided by 100.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "within the range in which integers are exact"
)]
fn hundredfold(bits: u64) -> Option<i64> {
    let scaled = (f64::from_bits(bits) * 100.0).round_ties_even();
    if scaled.is_nan() || scaled.abs() >= EXACT {
        return None;
    }
    let scaled = scaled as i64;
    (divided(scaled).to_bits() == bits).then_some(scaled)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "within the range in which integers are exact"
)]
fn divided(scaled: i64) -> f64 {
    scaled as f64 / 100.0
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lowest 7 bits are taken")]
fn put(buffer: &mut [u8; MAX_POINT_BYTES], length: &mut usize, mut number: u64) {
    while number >= 0x80 {
        buffer[*length] = number as u8 | 0x80;
        *length += 1;
        number >>= 7;
    }
    buffer[*length] = number as u8;
    *length += 1;
}

#[inline]
fn byte(rest: &mut &[u8]) -> u8 {
    let (first, after) = rest.split_first().unwrap_or((&0, &[]));
    *rest = after;
    *first
}

/// As [`get`], for numbers that mostly take one or two bytes: choosing between both takes no branch, which would be
/// predicted wrong half of the time.
#[inline]
fn get_short(rest: &mut &[u8]) -> u64 {
    match **rest {
        [first, second, ..] if first & second < 0x80 => {
            let has_two = first >> 7;
            *rest = &rest[1 + usize::from(has_two)..];
            let second = u64::from(second) << 7;
            u64::from(first & 0x7f) | (second & u64::from(has_two).wrapping_neg())
        }
        _ => get(rest),
    }
}

/// The next four regular points, if each takes one or two bytes. They are taken from one load: the place of a point
/// depends on the length of the one before it, and a shift takes less time than a load.
#[inline]
fn four_short(rest: &[u8]) -> Option<([u64; 4], &[u8])> {
    const CONTINUES: u64 = 0x8080_8080_8080_8080;
    let mut word = u64::from_be_bytes(*rest.first_chunk()?);
    if word & (word << 8) & CONTINUES != 0 {
        return None;
    }
    let mut length = 4;
    let mut irregular = 0;
    let numbers = std::array::from_fn(|_| {
        let has_two = word >> 63;
        let (first, second) = (word >> 56, word >> 48 & 0x7f);
        irregular |= first;
        length += has_two;
        word <<= 8 + 8 * has_two;
        first & 0x7f | (second << 7 & has_two.wrapping_neg())
    });
    (irregular & 1 == 0).then_some((numbers, &rest[usize::try_from(length).ok()?..]))
}

#[inline]
fn get(rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let byte = byte(rest);
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            return number;
        }
    }
}
