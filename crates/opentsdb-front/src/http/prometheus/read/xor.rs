//! Chunks of samples in Prometheus' encoding `XOR`: Gorilla's encoding, with times in milliseconds.
//!
//! ```text
//!   header      the number of samples, 16 bits
//!   sample 1    time: varint of zigzag; value: 64 bits
//!   sample 2    the difference of the times: varint; value
//!   others      the difference of the differences, dod; value
//!
//!   dod         0: 0 │ 10 and 14 bits │ 110 and 17 bits │ 1110 and 20 bits │ 1111 and 64 bits
//!   value       XOR with the value before it
//!               0: 0 │ 10 and the bits of the window of the value before it
//!                    │ 11, leading zeros: 5 bits, length of the window: 6 bits (64 is 0), and its bits
//! ```
//!
//! Source: Prometheus 3, `tsdb/chunkenc/xor.go` and `bstream.go`.

/// Samples of a chunk. Prometheus' own chunks have as many.
pub(super) const CHUNK_SAMPLES: usize = 120;

/// More leading zeros than this are not counted: the number has 5 bits.
const MOST_LEADING: u32 = 31;

/// Writes a chunk of up to [`CHUNK_SAMPLES`] samples behind what `out` has: milliseconds and value, ascending by time.
pub(super) fn write(samples: impl ExactSizeIterator<Item = (i64, f64)>, out: &mut Vec<u8>) {
    debug_assert!(samples.len() <= CHUNK_SAMPLES, "{} samples", samples.len());
    let count = u16::try_from(samples.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    let mut bits = BitWriter { out, free: 0 };
    let (mut last_ms, mut last_difference, mut last) = (0_i64, 0_i64, 0_u64);
    let mut window = None;
    for (place, (time_ms, value)) in samples.enumerate() {
        let value = value.to_bits();
        let difference = time_ms.wrapping_sub(last_ms);
        match place {
            0 => {
                bits.varint(((time_ms << 1) ^ (time_ms >> 63)).cast_unsigned());
                bits.write(value, 64);
            }
            1 => {
                bits.varint(difference.cast_unsigned());
                bits.value(last ^ value, &mut window);
            }
            _ => {
                bits.difference(difference.wrapping_sub(last_difference));
                bits.value(last ^ value, &mut window);
            }
        }
        last_difference = if place == 0 { 0 } else { difference };
        (last_ms, last) = (time_ms, value);
    }
}

/// Leading and trailing zeros of the bits of a value that are written.
type Window = Option<(u32, u32)>;

/// Bits, the highest one of a byte first.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Bits of the last byte that are not written.
    free: u32,
}

impl BitWriter<'_> {
    /// Writes the lowest `count` bits of a number.
    fn write(&mut self, number: u64, mut count: u32) {
        while count > 0 {
            if self.free == 0 {
                self.out.push(0);
                self.free = 8;
            }
            let taken = count.min(self.free);
            count -= taken;
            self.free -= taken;
            let [.., bits] = (number >> count).to_be_bytes();
            if let Some(last) = self.out.last_mut() {
                *last |= (bits & (0xff >> (8 - taken))) << self.free;
            }
        }
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.write(number | 0x80, 8);
            number >>= 7;
        }
        self.write(number, 8);
    }

    /// Writes the difference of two differences.
    fn difference(&mut self, difference: i64) {
        let number = difference.cast_unsigned();
        let fits = |bits: u32| {
            let half = 1_i64 << (bits - 1);
            (1 - half..=half).contains(&difference)
        };
        if difference == 0 {
            self.write(0, 1);
        } else if fits(14) {
            self.write(0b10, 2);
            self.write(number, 14);
        } else if fits(17) {
            self.write(0b110, 3);
            self.write(number, 17);
        } else if fits(20) {
            self.write(0b1110, 4);
            self.write(number, 20);
        } else {
            self.write(0b1111, 4);
            self.write(number, 64);
        }
    }

    /// Writes the XOR of two values.
    fn value(&mut self, xor: u64, window: &mut Window) {
        if xor == 0 {
            self.write(0, 1);
            return;
        }
        let (leading, trailing) = (xor.leading_zeros().min(MOST_LEADING), xor.trailing_zeros());
        let (leading, trailing) = match *window {
            Some(window) if leading >= window.0 && trailing >= window.1 => {
                self.write(0b10, 2);
                window
            }
            _ => {
                *window = Some((leading, trailing));
                self.write(0b11, 2);
                self.write(leading.into(), 5);
                self.write((64 - leading - trailing).into(), 6);
                (leading, trailing)
            }
        };
        self.write(xor >> trailing, 64 - leading - trailing);
    }
}

#[cfg(test)]
pub(super) mod tests;
