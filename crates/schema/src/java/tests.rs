use proptest::prelude::*;

use super::*;

#[test]
fn formats_floats_as_java() {
    for (value, text) in [
        (99.9_f32, "99.9"),
        (50.0, "50.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1e9, "1.0E9"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-0.001, "-0.001"),
        (1e-4, "1.0E-4"),
        (1.75, "1.75"),
        (16_777_216.0, "1.6777216E7"),
        (f32::MAX, "3.4028235E38"),
        (f32::NAN, "NaN"),
        (f32::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(float_to_string(value), text);
    }
}

#[test]
fn prints_doubles_as_opentsdb_does() {
    for (value, text) in [
        (1.0, "1.0"),
        (10_000_000.0, "1.0E7"),
        (9_999_999.5, "9999999.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (123_456_789.125, "1.23456789125E8"),
        (1e22, "1.0E22"),
        (-0.0, "-0.0"),
        (1e-320, "1.0E-320"),
        (3.402_823_5e38, "3.4028235E38"),
        (0.1, "0.1"),
        (100.0, "100.0"),
        (-1.5, "-1.5"),
        (1e10, "1.0E10"),
        (f64::from(1.1_f32), "1.100000023841858"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
        (f64::MAX, "1.7976931348623157E308"),
        (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
        (5e-324, "4.9E-324"),
        (-9.999e-4, "-9.999E-4"),
    ] {
        assert_eq!(double_to_string(value), text);
    }
}

#[test]
fn write_double_appends() {
    let mut out = b"[1,".to_vec();
    write_double(&mut out, 2e7);
    assert_eq!(out, b"[1,2.0E7");
}

proptest! {
    #[test]
    fn printed_doubles_parse_to_the_same_bits(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let text = double_to_string(value);
        if value.is_finite() {
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
            prop_assert!(text.contains('.'));
        }
    }

    #[test]
    fn short_decimals_are_the_shortest(thousandths in 1_u32..=u32::MAX, scale in 0_u32..8, next in -2_i64..3) {
        let value = f64::from(thousandths) / f64::from(10_u32.pow(scale));
        // Also those beside it, which have many digits.
        let value = f64::from_bits(value.to_bits().wrapping_add_signed(next));
        if (1e-3..1e7).contains(&value) {
            let mut shortest = ryu::Buffer::new();
            prop_assert_eq!(double_to_string(value), shortest.format_finite(value));
        }
    }

    #[test]
    fn ordinary_numbers_print_without_exponent(value in 1e-3..1e7_f64) {
        prop_assert!(!double_to_string(value).contains('E'));
        prop_assert!(double_to_string(value * 1e11).contains('E'));
    }
}

#[test]
fn hashes_are_javas() {
    assert_eq!(string_hash(""), 0);
    assert_eq!(string_hash("a"), 97);
    assert_eq!(string_hash("OpenTSDB"), -440_023_897);
    assert_eq!(string_hash("lax"), 0x0001_a1a3);
}

#[test]
fn keys_are_in_order_of_their_buckets() {
    let mut keys = ["d", "b", "a", "c"];
    sort_as_hash_map(&mut keys, 16);
    assert_eq!(keys, ["a", "b", "c", "d"]);
    // 97 is bucket 1 of 4, 100 bucket 0.
    let mut keys = ["a", "d"];
    sort_as_hash_map(&mut keys, 2);
    assert_eq!(keys, ["d", "a"]);
}

#[test]
fn a_copied_map_of_five_entries_has_eight_buckets() {
    assert_eq!(buckets_of_copy(5), 8);
    let mut keys = ["owner", "department", "z", "a", "mm"];
    let buckets = buckets_of_copy(keys.len());
    sort_as_hash_map(&mut keys, buckets);
    assert_eq!(keys, ["owner", "mm", "a", "z", "department"]);
}
