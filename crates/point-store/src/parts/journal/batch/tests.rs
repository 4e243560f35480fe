use proptest::prelude::*;

use super::*;

fn round_trip(batch: &PointBatch) -> EncodedBatch {
    let encoded = EncodedBatch::from_batch(batch);
    let mut decoded = PointBatch::default();
    assert!(encoded.decode(&mut decoded));
    assert_eq!(decoded, *batch);
    assert_eq!(encoded.len(), batch.len());
    encoded
}

fn batch(points: &[(u32, i64, PointKind, u64)]) -> PointBatch {
    let mut batch = PointBatch::default();
    for (series, time_ms, kind, bits) in points.iter().copied() {
        batch.push(SeriesNumber(series), Point { time_ms, kind, bits });
    }
    batch
}

const INT: PointKind = PointKind::new(Resolution::Seconds, ValueKind::Int);
const FLOAT: PointKind = PointKind::new(Resolution::Millis, ValueKind::Float);
const DOUBLE: PointKind = PointKind::new(Resolution::Seconds, ValueKind::Double);

#[test]
fn encodes_as_documented() {
    let batch = batch(&[
        (3, 1_000, INT, 5),
        (4, 1_000, DOUBLE, (-12.5_f64).to_bits()),
        (4, 3_000, INT, 0),
        (4, 5_000, FLOAT, 0.25_f64.to_bits()),
        (1, 5_001, DOUBLE, (1.0_f64 / 3.0).to_bits()),
    ]);
    let expected: [&[u8]; 5] = [
        &[28 + 168, 6, 2, 10],
        &[9 + 84, 249, 1],
        &[28, 4, 0],
        &[14 + 3, 50],
        &[
            13 + 56 + 168,
            5,
            2,
            0x3f,
            0xd5,
            0x55,
            0x55,
            0x55,
            0x55,
            0x55,
            0x55,
        ],
    ];
    assert_eq!(round_trip(&batch).bytes, expected.concat());
}

#[test]
fn takes_three_bytes_for_a_series_in_order_or_an_import() {
    let decimals = |index: i32| (f64::from(1_000 + index) / 100.0).to_bits();
    let in_order =
        (0..1_000_i32).map(|index| (index.cast_unsigned(), 1_700_000_000_000, DOUBLE, decimals(index)));
    let import = (0..1_000_i32).map(|index| {
        (
            7,
            1_700_000_000_000 + i64::from(index) * 10_000,
            DOUBLE,
            decimals(index),
        )
    });
    for points in [in_order.collect::<Vec<_>>(), import.collect::<Vec<_>>()] {
        let encoded = round_trip(&batch(&points));
        assert!(encoded.byte_len() < 3_050, "{}", encoded.byte_len());
    }
}

#[test]
fn keeps_the_bits_of_unusual_values() {
    let values = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        1e15,
        9_007_199_254_740_993.0,
        -900_719_925_474.099_1,
        0.1 + 0.2,
        0.000_1,
        f64::from_bits(0x7ff0_0000_0000_0001),
    ];
    let kinds = (0..=u8::MAX).filter_map(PointKind::from_byte);
    let points = kinds.flat_map(|kind| values.map(|value| (u32::MAX, i64::MIN, kind, value.to_bits())));
    round_trip(&batch(&points.collect::<Vec<_>>()));
}

fn any_bits() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (-10_000_i64..10_000).prop_map(i64::cast_unsigned),
        any::<f64>().prop_map(f64::to_bits),
        any::<f32>().prop_map(|value| widen(value).to_bits()),
        (any::<i32>(), 0..7_i32)
            .prop_map(|(number, digits)| (f64::from(number) / 10_f64.powi(digits)).to_bits()),
        (-100_000_i32..=30_000, 0..5_i32)
            .prop_map(|(number, digits)| { widen(format!("{number}e-{digits}").parse().unwrap()).to_bits() }),
    ]
}

fn any_batch() -> impl Strategy<Value = PointBatch> {
    let kind = prop::sample::select((0..=u8::MAX).filter_map(PointKind::from_byte).collect::<Vec<_>>());
    let series = prop_oneof![any::<u32>(), 0..4_u32];
    let time_ms = prop_oneof![
        any::<i64>(),
        (0..4_i64).prop_map(|step| step * 10_000),
        0..4_000_i64
    ];
    prop::collection::vec((series, time_ms, kind, any_bits()), 0..50).prop_map(|points| batch(&points))
}

proptest! {
    #[test]
    fn batches_round_trip(batch in any_batch()) {
        round_trip(&batch);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(points in 0..100_usize, bytes: Vec<u8>) {
        let mut decoded = PointBatch::default();
        let encoded = EncodedBatch { points, bytes };
        let complete = encoded.decode(&mut decoded);
        prop_assert!(decoded.len() <= points);
        prop_assert!(!complete || decoded.len() == points);
    }

    /// A cut or changed encoding is rejected or decodes to as many points; the frame's checksum detects the rest.
    #[test]
    fn damaged_bytes_do_not_panic(batch in any_batch(), place: prop::sample::Index, bit in 0..8) {
        let mut encoded = EncodedBatch::from_batch(&batch);
        prop_assume!(!encoded.bytes.is_empty());
        let place = place.index(encoded.bytes.len());
        let mut decoded = PointBatch::default();
        let cut = EncodedBatch { points: batch.len(), bytes: encoded.bytes[..place].to_vec() };
        prop_assert!(!cut.decode(&mut decoded));
        encoded.bytes[place] ^= 1_u8 << bit;
        let _ = encoded.decode(&mut decoded);
    }
}

#[test]
fn does_not_reserve_more_than_the_bytes_can_hold() {
    let mut decoded = PointBatch::default();
    let encoded = EncodedBatch {
        points: usize::MAX,
        bytes: vec![0; 4],
    };
    assert!(!encoded.decode(&mut decoded));
}

/// Prints bytes and time per point: `cargo test --release -p oxtsdb-point-store encoding_costs -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn encoding_costs() {
    const BATCH: u32 = 1_000;
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        i64::try_from(state % below).unwrap()
    };
    let mut measure = |name: &str, series: u32, shuffled: bool, decimals: bool| {
        let mut order: Vec<u32> = (0..series).collect();
        for index in (1..order.len()).rev().filter(|_| shuffled) {
            order.swap(index, usize::try_from(random(index as u64 + 1)).unwrap());
        }
        let mut values: Vec<i64> = order.iter().map(|_| random(5_000)).collect();
        let mut batches = Vec::new();
        for step in 0..2_000_000 / i64::from(series) {
            for series in order.chunks(BATCH as usize) {
                let mut batch = PointBatch::with_capacity(series.len());
                for series in series {
                    let value = &mut values[*series as usize];
                    *value += random(201) - 100;
                    let (kind, bits) = if decimals && series % 2 == 1 {
                        (DOUBLE, (*value as f64 / 100.0).to_bits())
                    } else {
                        (INT, value.cast_unsigned())
                    };
                    let time_ms = 1_700_000_000_000 + step * 10_000;
                    batch.push(SeriesNumber(*series), Point { time_ms, kind, bits });
                }
                batches.push(batch);
            }
        }
        let points: usize = batches.iter().map(PointBatch::len).sum();
        let begin = std::time::Instant::now();
        let encoded: Vec<_> = batches.iter().map(EncodedBatch::from_batch).collect();
        let encode = begin.elapsed();
        let mut decoded = PointBatch::with_capacity(BATCH as usize);
        let begin = std::time::Instant::now();
        for batch in &encoded {
            decoded.clear();
            assert!(batch.decode(&mut decoded));
        }
        let decode = begin.elapsed();
        let bytes: usize = encoded.iter().map(EncodedBatch::byte_len).sum();
        println!(
            "{name}: {:.2} bytes, {:.1} ns to encode, {:.1} ns to decode a point",
            bytes as f64 / points as f64,
            encode.as_nanos() as f64 / points as f64,
            decode.as_nanos() as f64 / points as f64
        );
    };
    measure("1 M series in random order, integers", 1_000_000, true, false);
    measure("10 k series in order, integers and decimals", 10_000, false, true);
    measure(
        "10 k series in random order, integers and decimals",
        10_000,
        true,
        true,
    );
}
