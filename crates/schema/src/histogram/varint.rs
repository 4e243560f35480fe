//! Counts of histograms: 64 bits in 1 to 9 bytes, the least significant 7 bits first.
//!
//! Source: Kryo 2.21, `Output.writeLong(value, true)` and `Input.readLong(true)`.

/// The longest form: eight bytes of 7 bits, and one of 8.
const LONGEST: usize = 9;

/// Appends a count. A negative one takes 9 bytes.
pub(super) fn write(count: i64, out: &mut Vec<u8>) {
    let mut rest = count.cast_unsigned();
    for _ in 1..LONGEST {
        let [.., low] = rest.to_be_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
    let [.., last] = rest.to_be_bytes();
    out.push(last);
}

/// Reads a count from the front of `bytes`; `None` if they end within it.
pub(super) fn read(bytes: &mut &[u8]) -> Option<i64> {
    let mut count = 0_u64;
    for place in 0..LONGEST {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let is_last = place == LONGEST - 1;
        let bits = if is_last { *byte } else { byte & 0x7f };
        count |= u64::from(bits) << (7 * place);
        if is_last || byte & 0x80 == 0 {
            break;
        }
    }
    Some(count.cast_signed())
}
