use proptest::prelude::*;

use super::*;

#[test]
fn integers_take_the_fewest_bytes() {
    let lengths = |values: [i64; 2]| values.map(|int| Value::Int(int).encoded().as_bytes().len());
    assert_eq!(lengths([-128, 127]), [1, 1]);
    assert_eq!(lengths([-129, 128]), [2, 2]);
    assert_eq!(lengths([-32768, 32767]), [2, 2]);
    assert_eq!(lengths([-32769, 32768]), [4, 4]);
    assert_eq!(lengths([i64::from(i32::MIN), i64::from(i32::MAX)]), [4, 4]);
    assert_eq!(
        lengths([i64::from(i32::MIN) - 1, i64::from(i32::MAX) + 1]),
        [8, 8]
    );
    assert_eq!(lengths([i64::MIN, i64::MAX]), [8, 8]);
}

#[test]
fn rejects_non_finite_values_with_java_names() {
    let shown = |value| Value::number(value).unwrap_err().to_string();
    assert_eq!(shown(f64::NAN), "value is NaN or Infinite: NaN");
    assert_eq!(shown(f64::INFINITY), "value is NaN or Infinite: Infinity");
    assert_eq!(shown(f64::NEG_INFINITY), "value is NaN or Infinite: -Infinity");
    assert!(Value::double(f64::NAN).is_err());
    assert!(Value::float(f32::INFINITY).is_err());
}

#[test]
fn rejects_values_whose_length_contradicts_the_flags() {
    let shown = |flags, bytes| Value::decode(flags, bytes).unwrap_err().to_string();
    assert_eq!(
        shown(0x1, &[5]),
        "value `05` has 1 bytes, flags 0x1 are for an integer of 2 bytes"
    );
    assert_eq!(
        shown(0xb, &[0; 8]),
        "value `0000000000000000` has 8 bytes, flags 0xb are for a float of 4 bytes"
    );
    assert_eq!(
        shown(0x2, &[0; 3]),
        "value `000000` has 3 bytes, flags 0x2 are for no length that a value can have"
    );
    assert!(Value::decode(0, &[]).is_err());
}

#[test]
fn decodes_integers_wider_than_necessary() {
    assert_eq!(Value::decode(0x7, &[0, 0, 0, 0, 0, 0, 0, 9]), Ok(Value::Int(9)));
    assert_eq!(Value::decode(0xf7, &[0xff; 8]), Ok(Value::Int(-1)));
}

#[test]
fn syntax_decides_the_type() {
    assert_eq!(parse_telnet("42"), Ok(Value::Int(42)));
    assert_eq!(parse_telnet("+5"), Ok(Value::Int(5)));
    assert_eq!(parse_telnet("-0"), Ok(Value::Int(0)));
    assert_eq!(parse_telnet("0042"), Ok(Value::Int(42)));
    assert_eq!(parse_telnet("42.0"), Ok(Value::Float(42.0)));
    assert_eq!(parse_telnet("1e3"), Ok(Value::Float(1000.0)));
    assert_eq!(parse_http("42.0"), Ok(Value::Double(42.0)));
    assert_eq!(parse_http("0.5"), Ok(Value::Double(0.5)));
    assert_eq!(parse_import("1.1"), Ok(Value::Float(1.1)));
    assert_eq!(parse_import("300"), Ok(Value::Int(300)));
}

#[test]
fn doubles_round_trip_through_java_syntax() {
    let read = |text| parse_http(text).map(|value| value.as_f64());
    for (text, value) in [
        (".5", 0.5),
        ("5.", 5.0),
        ("+1.5", 1.5),
        ("1.", 1.0),
        ("1e5", 1e5),
        ("1E-5", 1e-5),
        ("1.e+2", 100.0),
        ("1.0f", 1.0),
        ("1.0F", 1.0),
        ("1.0d", 1.0),
        ("1.0D", 1.0),
        ("1e1d", 10.0),
        (" 1.5 ", 1.5),
        ("\t1.5\n", 1.5),
        ("0x1.8p1", 3.0),
        ("-0x.8P1", -1.0),
        ("0x1.p-1f", 0.5),
        ("0X1.fffffffffffff8p0", 2.0),
        ("0x1.0000000000000800000000001p0", 1.0 + f64::EPSILON),
        ("0x1.00000000000008p0", 1.0),
        ("0x0.8p-1074", 0.0),
        ("0x0.8000000000001p-1074", 5e-324),
        ("0x1.0p-1074", 5e-324),
        ("0x1.fffffffffffffp1023", f64::MAX),
        ("0x1.fffffffffffffp-1023", f64::MIN_POSITIVE),
        ("0x0.0p99999999999999999999", 0.0),
        ("1e-400", 0.0),
        ("0.0000000000000000000000001e25", 1.0),
    ] {
        assert_eq!(read(text), Ok(value), "{text:?}");
    }
    assert_eq!(read("-0.0").unwrap().to_bits(), (-0.0_f64).to_bits());
    assert_eq!(read("-0x0.0p0").unwrap().to_bits(), (-0.0_f64).to_bits());
}

#[test]
fn rounds_hexadecimal_floats_once() {
    // Halfway between two floats except for a bit that rounding to a double would lose.
    let value = parse_import("0x1.00000100000000000001p0").unwrap();
    assert_eq!(value, Value::Float(1.0 + f32::EPSILON));
    assert_eq!(parse_import("0x1.000001p0"), Ok(Value::Float(1.0)));
    assert_eq!(parse_import("0x1.0p-149"), Ok(Value::Float(f32::from_bits(1))));
    assert_eq!(parse_import("0x1.0p-150"), Ok(Value::Float(0.0)));
    assert_eq!(parse_import("-0x1.8p-150"), Ok(Value::Float(-f32::from_bits(1))));
    assert_eq!(parse_import("0x1.fffffep127"), Ok(Value::Float(f32::MAX)));
    assert!(parse_import("0x1.ffffffp127").is_err());
}

#[test]
fn rejects_other_texts_with_the_messages_of_opentsdb_and_java() {
    let shown = |text| parse_telnet(text).unwrap_err().to_string();
    assert_eq!(shown(""), "empty value");
    assert_eq!(shown("x"), "Invalid character 'x' in x");
    assert_eq!(shown("1d"), "Invalid character 'd' in 1d");
    assert_eq!(shown("0x10"), "Invalid character 'x' in 0x10");
    assert_eq!(shown("NaN"), "Invalid character 'N' in NaN");
    assert_eq!(shown("Infinity"), "Invalid character 'I' in Infinity");
    assert_eq!(shown(" 1"), "Invalid character ' ' in  1");
    assert_eq!(shown("--5"), "Invalid character '-' in --5");
    assert_eq!(shown("+"), "Just a sign, no value: +");
    assert_eq!(
        shown("12345678901234567890"),
        "Value too long: 12345678901234567890"
    );
    assert_eq!(shown("9223372036854775808"), "Overflow in 9223372036854775808");
    assert_eq!(shown("-9999999999999999999"), "Overflow in -9999999999999999999");
    assert_eq!(shown("1e400"), "value is NaN or Infinite: Infinity");
    assert_eq!(shown("-1e400"), "value is NaN or Infinite: -Infinity");
    assert_eq!(
        parse_import("1e39").unwrap_err().to_string(),
        "value is NaN or Infinite: Infinity"
    );
    assert_eq!(shown("1.2.3"), "multiple points");
    assert_eq!(shown("-..e5"), "multiple points");
    for text in [
        ".",
        "e",
        "1e",
        "e1",
        "1e+",
        "1e5e5",
        "1.0ff",
        "1.0x",
        "1 .0",
        "0x1.8",
        "0x.p1",
        "0x1.gp1",
        "0x1.8p",
        "0x1.8p1.0",
        "inf.",
        "nane",
        "1_0.0",
        "٣.٠",
        "0x1.+8p1",
        "+-1.0",
        "1.0 ",
        "1e５",
    ] {
        assert_eq!(shown(text), format!("For input string: \"{text}\""));
    }
}

#[test]
fn parses_integers_up_to_the_length_opentsdb_accepts() {
    assert_eq!(parse_integer("9223372036854775807"), Ok(i64::MAX));
    assert_eq!(parse_integer("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(parse_integer("0000000000000000001"), Ok(1));
    assert!(matches!(
        parse_integer("00000000000000000001"),
        Err(IntegerTextError::TooLong { .. })
    ));
    assert_eq!(parse_integer("+0000000000000000001"), Ok(1));
    assert_eq!(parse_integer(""), Err(IntegerTextError::Empty));
    // Ten characters, thirty bytes.
    assert!(matches!(
        parse_integer("１２３４５６７８９０"),
        Err(IntegerTextError::InvalidCharacter { character: '１', .. })
    ));
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<i16>().prop_map(|int| Value::Int(i64::from(int))),
        any::<i32>().prop_map(|int| Value::Int(i64::from(int))),
        prop::num::f32::ANY
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::Float),
        prop::num::f64::ANY
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::Double),
    ]
}

proptest! {
    #[test]
    fn values_round_trip(value in values()) {
        let encoded = value.encoded();
        prop_assert_eq!(usize::from(value.flags() & 7) + 1, encoded.as_bytes().len());
        prop_assert_eq!(Value::decode(value.flags(), encoded.as_bytes()), Ok(value));
        let back = Value::decode(value.flags(), encoded.as_bytes()).unwrap().encoded();
        prop_assert_eq!(back, encoded);
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_value_or_an_error(
        flags in any::<u8>(),
        bytes in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let is_valid = matches!(
            (flags & 0xf, bytes.len()),
            (0x0, 1) | (0x1, 2) | (0x3 | 0xb, 4) | (0x7 | 0xf, 8)
        );
        prop_assert_eq!(Value::decode(flags, &bytes).is_ok(), is_valid);
    }

    #[test]
    fn arbitrary_text_parses_to_a_value_or_an_error(text in "[-+0-9.eExXpPfFdDaN ]{0,12}|\\PC{0,8}") {
        let http = parse_http(&text);
        let telnet = parse_telnet(&text);
        if let Ok(value) = telnet {
            prop_assert_eq!(http.unwrap().as_f64().to_bits(), value.as_f64().to_bits());
        }
        let _ = (parse_import(&text), parse_integer(&text));
    }

    #[test]
    fn integers_round_trip_through_text(int in any::<i64>()) {
        prop_assert_eq!(parse_integer(&int.to_string()), Ok(int));
    }

    #[test]
    fn doubles_round_trip_through_text(double in prop::num::f64::NORMAL) {
        let text = format!("{double:e}");
        prop_assert_eq!(parse_http(&text), Ok(Value::Double(double)));
        let back = parse_telnet(&text).unwrap();
        prop_assert_eq!(back.as_f64().to_bits(), double.to_bits());
    }

    #[test]
    fn parses_hexadecimal_doubles_exactly(double in prop::num::f64::POSITIVE | prop::num::f64::SUBNORMAL) {
        let bits = double.to_bits();
        let (biased, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
        let text = match biased {
            0 => format!("0x0.{fraction:013x}p-1022"),
            _ => format!("0x1.{fraction:013x}p{}", i64::try_from(biased).unwrap() - 1023),
        };
        prop_assert_eq!(parse_http(&text), Ok(Value::Double(double.abs())));
    }
}
