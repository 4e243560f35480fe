//! Parses the usual numbers of points directly: integers, and decimals of few digits.
//!
//! Returns nothing for all other texts, including valid ones: `oxtsdb_schema` parses these and reports the errors. Both
//! parsers return the same value for a number.

/// Digits that fit in 63 bits.
const MAX_DIGITS: usize = 18;

/// Digits of a decimal that is exact: the number without its point is below 2^53, so it and the power of ten are
/// doubles, and their quotient is rounded once.
const MAX_DECIMAL_DIGITS: usize = 15;

/// 10^0 to 10^[`MAX_DECIMAL_DIGITS`].
const POWERS_OF_TEN: [f64; MAX_DECIMAL_DIGITS + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PlainNumber {
    /// Without a point.
    Integer(i64),
    /// With digits before and behind a point.
    Decimal(f64),
}

/// Parses `42`, `-7` or `12.25`.
pub(crate) fn parse(text: &str) -> Option<PlainNumber> {
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let mut number = 0_i64;
    let mut point = None;
    if digits.len() > MAX_DIGITS {
        return None;
    }
    for (index, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            number = number * 10 + i64::from(digit);
        } else if *byte == b'.' && point.is_none() {
            point = Some(index);
        } else {
            return None;
        }
    }
    let Some(point) = point else {
        let number = if is_negative { -number } else { number };
        return (!digits.is_empty()).then_some(PlainNumber::Integer(number));
    };
    let decimals = digits.len() - point - 1;
    if point == 0 || decimals == 0 || point + decimals > MAX_DECIMAL_DIGITS {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let number = number as f64 / POWERS_OF_TEN[decimals];
    Some(PlainNumber::Decimal(if is_negative { -number } else { number }))
}

/// Parses digits, and skips points among them: a telnet timestamp.
pub(crate) fn parse_without_points(text: &str) -> Option<i64> {
    let mut number = 0_i64;
    let mut digits = 0;
    for byte in text.bytes() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 && digits < MAX_DIGITS {
            number = number * 10 + i64::from(digit);
            digits += 1;
        } else if byte != b'.' {
            return None;
        }
    }
    (digits > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::value::{parse_http, parse_telnet};
    use oxtsdb_schema::{Timestamp, Value};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_usual_numbers_only() {
        let integer = |number| Some(PlainNumber::Integer(number));
        let decimal = |number| Some(PlainNumber::Decimal(number));
        for (text, expected) in [
            ("0", integer(0)),
            ("-42", integer(-42)),
            ("007", integer(7)),
            ("999999999999999999", integer(999_999_999_999_999_999)),
            ("1234567890123456789", None),
            ("0.1", decimal(0.1)),
            ("-12.25", decimal(-12.25)),
            ("99999999.9999999", decimal(99_999_999.999_999_9)),
            ("999999999.9999999", None),
            ("", None),
            ("-", None),
            ("--1", None),
            (".", None),
            ("-.", None),
            (".5", None),
            ("5.", None),
            ("1.2.3", None),
            ("+1", None),
            ("1e3", None),
            ("1f", None),
            ("NaN", None),
            ("1\u{ff11}", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        let Some(PlainNumber::Decimal(zero)) = parse("-0.0") else {
            panic!("-0.0 is a decimal")
        };
        assert!(zero.is_sign_negative());
        assert_eq!(parse_without_points("1356998400.250"), Some(1_356_998_400_250));
        for text in ["", ".", "-1", "1 ", "1234567890123456789"] {
            assert_eq!(parse_without_points(text), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn numbers_have_the_values_of_the_schema(text in "-?[0-9]{0,10}\\.?[0-9]{0,9}|[-+.0-9eEfd]{0,8}") {
            match parse(&text) {
                Some(PlainNumber::Integer(number)) => {
                    prop_assert_eq!(parse_telnet(&text), Ok(Value::Int(number)));
                    prop_assert_eq!(parse_http(&text), Ok(Value::Int(number)));
                }
                Some(PlainNumber::Decimal(number)) => {
                    prop_assert_eq!(parse_telnet(&text), Ok(Value::number(number).unwrap()));
                    let Ok(Value::Double(expected)) = parse_http(&text) else {
                        panic!("{text} is no decimal")
                    };
                    prop_assert_eq!(number.to_bits(), expected.to_bits());
                }
                None => {}
            }
        }

        #[test]
        fn timestamps_have_the_values_of_the_schema(text in "[0-9.]{0,20}|[-+.0-9]{0,5}") {
            if let Some(number) = parse_without_points(&text) {
                let expected = Timestamp::from_opentsdb(number).map_err(Into::into);
                prop_assert_eq!(Timestamp::parse_telnet(&text), expected);
            }
        }
    }
}
