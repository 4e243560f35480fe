use proptest::prelude::*;

use super::write;

fn encoded(samples: &[(i64, f64)]) -> Vec<u8> {
    let mut out = Vec::new();
    write(samples.iter().copied(), &mut out);
    out
}

/// Bits of a chunk, the highest one of a byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn read(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |number, _| {
            let bit = self.bytes[self.at / 8] >> (7 - self.at % 8) & 1;
            self.at += 1;
            number << 1 | u64::from(bit)
        })
    }

    /// How many bits are 1 before the next 0, up to `most`.
    fn ones(&mut self, most: u32) -> u32 {
        (0..most).find(|_| self.read(1) == 0).unwrap_or(most)
    }

    fn varint(&mut self) -> u64 {
        let mut number = 0;
        for place in 0.. {
            let byte = self.read(8);
            number |= (byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                break;
            }
        }
        number
    }
}

/// The samples of a chunk: independent of the writer, one bit at a time.
pub(in super::super) fn decoded(chunk: &[u8]) -> Vec<(i64, f64)> {
    let mut bits = Bits { bytes: chunk, at: 0 };
    let count = bits.read(16);
    let mut samples: Vec<(i64, f64)> = Vec::new();
    let (mut difference, mut value, mut leading, mut length) = (0_i64, 0_u64, 0, 0);
    for place in 0..count {
        let last_ms = samples.last().map_or(0, |(time_ms, _)| *time_ms);
        let time_ms = match place {
            0 => {
                let zigzag = bits.varint();
                (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)
            }
            1 => {
                difference = bits.varint() as i64;
                last_ms.wrapping_add(difference)
            }
            _ => {
                let of_difference = match bits.ones(4) {
                    0 => 0,
                    4 => bits.read(64) as i64,
                    size => {
                        let count = [14, 17, 20][size as usize - 1];
                        let number = bits.read(count) as i64;
                        // The largest number of the bits is positive.
                        if number > 1 << (count - 1) {
                            number - (1 << count)
                        } else {
                            number
                        }
                    }
                };
                difference = difference.wrapping_add(of_difference);
                last_ms.wrapping_add(difference)
            }
        };
        if place == 0 {
            value = bits.read(64);
        } else if bits.read(1) == 1 {
            if bits.read(1) == 1 {
                leading = u32::try_from(bits.read(5)).unwrap();
                length = match u32::try_from(bits.read(6)).unwrap() {
                    0 => 64,
                    length => length,
                };
            }
            value ^= bits.read(length) << (64 - leading - length);
        }
        samples.push((time_ms, f64::from_bits(value)));
    }
    assert_eq!(bits.at.div_ceil(8), chunk.len());
    samples
}

/// Chunks of `chunkenc.NewXORChunk` of Prometheus 2.55.1 with these samples. Its writer begins a byte more behind a byte that it
/// writes as a whole, which no reader needs.
#[test]
fn chunks_are_prometheus_own() {
    for (samples, expected) in [
        (
            &[(1_700_000_000_000, 1.0)][..],
            "000180a0abfef9623ff000000000000000",
        ),
        (
            &[
                (1_700_000_000_000, 1.0),
                (1_700_000_015_000, 1.0),
                (1_700_000_030_000, 1.0),
                (1_700_000_045_000, 2.0),
            ],
            "000480a0abfef9623ff000000000000098750c25fff0",
        ),
        (
            &[
                (-1, 0.1),
                (1_700_000_000_123, -3.75),
                (1_700_000_000_124, 1e300),
                (1_700_000_900_000, 0.0),
                (1_700_001_900_000, 12.5),
                (1_700_001_900_001, 12.25),
            ],
            "0006013fb999999999999afcd095ffbc31c1fffdbcccccccccccdffffffe74301a9785af8e790f22001d677800000000006dd91cfc6fc8791000eb3b861c724029000000000001fffffffffffe17b830000c000000000000",
        ),
        (
            &[
                (1, f64::INFINITY),
                (2, 0.1),
                (9000, 0.2),
                (26_190, 0.300_000_000_000_000_04),
                (100_000, 5e-324),
                (300_000, 7.0),
                (900_000, 7.5),
                (5_000_000_000_000, 1.0),
            ],
            "0008027ff000000000000001c3f404999999999999b8464b00700000000000014001001aaaaaaaaaaaaf9ba598beff4cccccccccccd787b3bb0ff0070000000000007986a020004000000000001e000009184e44d9417fee000000000000",
        ),
    ] {
        let encoded = hex::encode(encoded(samples));
        let rest = expected.strip_prefix(&encoded);
        assert!(matches!(rest, Some("" | "00")), "{samples:?}: {encoded}");
        assert_eq!(decoded(&hex::decode(encoded).unwrap()), samples);
    }
}

fn values() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        (-100..100_i32).prop_map(f64::from),
        (0..8_u64, 0..64_u32).prop_map(|(bits, shift)| f64::from_bits(bits << shift)),
    ]
}

fn differences() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(15_000),
        (0..64_u32, -2..3_i64).prop_map(|(shift, more)| (1_i64 << shift.min(40)) + more),
    ]
}

proptest! {
    #[test]
    fn chunks_decode_to_their_samples(
        first in -2_000_000_000_000..2_000_000_000_000_i64,
        others in prop::collection::vec((differences(), values()), 0..120),
    ) {
        let mut time_ms = first;
        let samples: Vec<_> = others
            .iter()
            .map(|(difference, value)| {
                time_ms += difference;
                (time_ms, *value)
            })
            .collect();
        let bits = |samples: &[(i64, f64)]| -> Vec<_> {
            samples.iter().map(|(time_ms, value)| (*time_ms, value.to_bits())).collect()
        };
        prop_assert_eq!(bits(&decoded(&encoded(&samples))), bits(&samples));
    }
}
