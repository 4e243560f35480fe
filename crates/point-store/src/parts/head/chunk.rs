//! A chunk: the points of one series, in the order of their arrival.
//!
//! ```text
//!   point   time (varint) | [kind (1)] | value
//!   time    zigzag of the second difference, times 2, plus 1 if the kind follows
//!   value   integer   zigzag of the difference to the last one (varint)
//!           floating  zigzag of the difference of its hundredfold, times 2, if that is an integer (varint);
//!                     otherwise 1 | its bits (8)
//! ```
//!
//! The first point is relative to time 0, step 0, value 0 and an integer in seconds. Steps beyond 32 bits count as the
//! nearest such step for the next difference. Varints have 7 bits a byte, the lowest first; a time needs up to 67 bits.

use super::arena::{Arena, Chain};
use crate::{Point, PointKind, ValueKind};

/// The most bytes of a point: 10 of the time, 1 of the kind, 10 of the value.
pub(super) const MAX_POINT_BYTES: usize = 21;

/// Integers up to this size are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What the next point is relative to.
#[derive(Clone, Copy, Debug)]
struct Last {
    time_ms: i64,
    step: i32,
    kind: PointKind,
    /// The last integer, or the last hundredfold.
    value: i64,
}

/// The points of one series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    last: Last,
    chain: Chain,
    points: u32,
}

impl Last {
    const START: Self = Self {
        time_ms: 0,
        step: 0,
        kind: PointKind::START,
        value: 0,
    };

    fn advance(&mut self, time_ms: i64) {
        let step = time_ms - self.time_ms;
        self.step = i32::try_from(step).unwrap_or(if step < 0 { i32::MIN } else { i32::MAX });
        self.time_ms = time_ms;
    }
}

impl Chunk {
    pub(super) fn new(arena: &mut Arena) -> Self {
        Self {
            last: Last::START,
            chain: arena.chain(),
            points: 0,
        }
    }

    pub(super) const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Whether the next point needs another chunk.
    pub(super) const fn is_full(&self) -> bool {
        Arena::is_full(&self.chain, MAX_POINT_BYTES) || self.points == u32::MAX
    }

    /// Appends a point.
    #[inline]
    pub(super) fn append(&mut self, arena: &mut Arena, point: &Point) {
        let mut buffer = [0; MAX_POINT_BYTES];
        let mut length = 0;
        let last = &mut self.last;
        // Times have 42 bits, so this needs 45.
        let second_difference = point.time_ms - last.time_ms - i64::from(last.step);
        let kind_follows = u64::from(point.kind != last.kind);
        put(
            &mut buffer,
            &mut length,
            zigzag(second_difference) << 1 | kind_follows,
        );
        if kind_follows == 1 {
            buffer[length] = point.kind.byte();
            length += 1;
        }
        last.advance(point.time_ms);
        last.kind = point.kind;
        let value = point.bits.cast_signed();
        match point.kind.value() {
            ValueKind::Int => {
                put(&mut buffer, &mut length, zigzag(value.wrapping_sub(last.value)));
                last.value = value;
            }
            ValueKind::Float | ValueKind::Double => match hundredfold(point.bits) {
                Some(scaled) => {
                    let difference = zigzag(scaled.wrapping_sub(last.value));
                    if difference < 1 << 62 {
                        put(&mut buffer, &mut length, difference << 1);
                        last.value = scaled;
                    } else {
                        put_bits(&mut buffer, &mut length, point.bits);
                    }
                }
                None => put_bits(&mut buffer, &mut length, point.bits),
            },
        }
        arena.append(&mut self.chain, &buffer[..length]);
        self.points += 1;
    }

    /// Appends the points in the order of their arrival to `points`. `bytes` is a scratch buffer.
    pub(super) fn read(&self, arena: &Arena, bytes: &mut Vec<u8>, points: &mut Vec<Point>) {
        arena.read(&self.chain, bytes);
        let mut last = Last::START;
        let mut rest = bytes.as_slice();
        points.reserve(self.points as usize);
        while !rest.is_empty() {
            let time = get(&mut rest);
            if time & 1 == 1 {
                last.kind = PointKind::from_byte(byte(&mut rest)).unwrap_or(PointKind::START);
            }
            let time_ms = last.time_ms + i64::from(last.step) + unzigzag(time >> 1);
            last.advance(time_ms);
            let bits = match last.kind.value() {
                ValueKind::Int => {
                    last.value = last.value.wrapping_add(unzigzag(get(&mut rest)));
                    last.value.cast_unsigned()
                }
                ValueKind::Float | ValueKind::Double => {
                    let value = get(&mut rest);
                    if value & 1 == 1 {
                        let (bits, after) = rest.split_at(8.min(rest.len()));
                        rest = after;
                        bits.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
                    } else {
                        last.value = last.value.wrapping_add(unzigzag(value >> 1));
                        divided(last.value).to_bits()
                    }
                }
            };
            points.push(Point {
                time_ms,
                kind: last.kind,
                bits,
            });
        }
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

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
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

fn put_bits(buffer: &mut [u8; MAX_POINT_BYTES], length: &mut usize, bits: u64) {
    buffer[*length] = 1;
    buffer[*length + 1..*length + 9].copy_from_slice(&bits.to_be_bytes());
    *length += 9;
}

fn byte(rest: &mut &[u8]) -> u8 {
    let (first, after) = rest.split_first().unwrap_or((&0, &[]));
    *rest = after;
    *first
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
