use proptest::prelude::*;

use super::*;

fn value(text: &str, values: &[f64], quirks: Quirks) -> Value {
    Arithmetic::parse(text, quirks).unwrap().evaluate(values).unwrap()
}

/// As OpenTSDB 2.4.1 gave it, for `a` of 0, 1 and 2.
#[test]
fn results_are_opentsdbs() {
    for (text, expected) in [
        ("a*0.1", [0.0, 0.1, 0.2]),
        ("a*0.123456789", [0.0, 0.123_456_79, 0.246_913_58]),
        ("1/2*a", [0.0, 0.0, 0.0]),
        ("7/2*a", [0.0, 3.0, 6.0]),
        ("a==1", [0.0, 1.0, 0.0]),
        ("a ne 2", [1.0, 1.0, 0.0]),
        ("a>1 && a<3", [0.0, 0.0, 1.0]),
        ("a<2||a>4", [1.0, 1.0, 0.0]),
        ("a and 1", [0.0, 1.0, 1.0]),
        ("!(a>1)", [1.0, 1.0, 0.0]),
        ("not (a gt 2)", [1.0, 1.0, 1.0]),
        ("-a", [-0.0, -1.0, -2.0]),
        ("--a", [0.0, 1.0, 2.0]),
        ("a--1", [1.0, 2.0, 3.0]),
        ("a mod 2", [0.0, 1.0, 0.0]),
        ("a%0", [0.0, 0.0, 0.0]),
        ("5%3+a", [2.0, 3.0, 4.0]),
        ("-5%3+a", [1.0, 2.0, 3.0]),
        ("1/0+a", [0.0, 1.0, 2.0]),
        ("a div 2", [0.0, 0.5, 1.0]),
        ("(a>0)/2", [0.0, 0.0, 0.0]),
        ("(a>0)/2.0", [0.0, 0.5, 0.5]),
        ("a+true", [1.0, 2.0, 3.0]),
        ("a - null", [0.0, 1.0, 2.0]),
        ("a+0x10", [16.0, 17.0, 18.0]),
        ("a+010", [8.0, 9.0, 10.0]),
        ("a+1.5f", [1.5, 2.5, 3.5]),
        ("a+1L", [1.0, 2.0, 3.0]),
        ("a+1.0E-3", [0.001, 1.001, 2.001]),
        ("a+99999999999999999999", [1e20, 1e20, 1e20]),
        ("a /* c */ + 1 ## d", [1.0, 2.0, 3.0]),
        ("a // x", [0.0, 1.0, 2.0]),
        ("a;", [0.0, 1.0, 2.0]),
    ] {
        for (a, expected) in [0.0, 1.0, 2.0].into_iter().zip(expected) {
            let result = value(text, &[a], Quirks::OPENTSDB).as_f64();
            assert!(result == expected, "{text} of {a}: {result} and not {expected}");
        }
    }
}

/// JEXL's errors as OpenTSDB 2.4.1 reported them; it fails only on operands that it evaluates.
#[test]
fn booleans_combine_with_doubles_only() {
    let evaluated = |text: &str, quirks| Arithmetic::parse(text, quirks).unwrap().evaluate(&[2.0]);
    let sum = OperandError::Truth { operator: "+/-" };
    let product = OperandError::Truth { operator: "*" };
    for (text, error, without_quirks) in [
        ("(a && a) * 100", product, 100.0),
        ("(a > 1) + 1", sum, 2.0),
        ("1 - (a > 1)", sum, 0.0),
        ("(a > 1) + (a > 0)", sum, 2.0),
        ("(a > 1) - null", sum, 1.0),
        ("true * 2 * a", product, 4.0),
        ("-null + a", OperandError::NegatedNull, 2.0),
    ] {
        assert_eq!(evaluated(text, Quirks::OPENTSDB), Err(error), "{text}");
        let value = evaluated(text, Quirks::NONE).unwrap().as_f64();
        assert!(value == without_quirks, "{text}: {value}");
    }
    for (text, value, without_quirks) in [
        ("(a > 1) * 100.0", 100.0, 100.0),
        ("a + (a > 1)", 3.0, 3.0),
        ("(a > 1) / 1 + a", 2.0, 3.0),
        ("(a > 1) % 2 + a", 2.0, 3.0),
        ("a < 1 && (a > 1) * 1", 0.0, 0.0),
        ("a > 1 ? a : (a > 1) * 1", 2.0, 2.0),
        ("(a > 1) >= 1", 1.0, 1.0),
        ("-(a > 1)", 0.0, 0.0),
    ] {
        assert_eq!(
            evaluated(text, Quirks::OPENTSDB).unwrap().as_f64(),
            value,
            "{text}"
        );
        assert_eq!(
            evaluated(text, Quirks::NONE).unwrap().as_f64(),
            without_quirks,
            "{text}"
        );
    }
}

#[test]
fn what_is_no_arithmetic_is_refused_with_its_place() {
    for (text, place) in [
        ("", 1),
        ("a+", 3),
        ("a b", 3),
        ("+a", 1),
        ("(a", 3),
        ("a)", 2),
        ("a+1e3", 3),
        ("a+1.", 3),
        ("a+.5", 3),
        ("a+09", 3),
        ("a=3", 2),
        ("a ? 1", 6),
        ("a < 1 < 2", 7),
        ("é+a", 1),
        ("a + size(a)", 5),
        ("f(a)", 2),
        ("a[0]", 2),
        ("a + \"x\"", 5),
        ("a /* b", 3),
    ] {
        match Arithmetic::parse(text, Quirks::NONE) {
            Err(ArithmeticError::Syntax { place: position, .. }) => assert_eq!(position, place, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    let long = "a+".repeat(MAX_LENGTH / 2) + "a";
    let error = Arithmetic::parse(&long, Quirks::NONE).unwrap_err();
    assert_eq!(error, ArithmeticError::Length { length: long.len() });
}

#[test]
fn depth_is_bounded_and_length_is_no_depth() {
    let parentheses = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Arithmetic::parse(&parentheses(MAX_DEPTH - 1), Quirks::NONE).is_ok());
    for text in [
        parentheses(MAX_DEPTH),
        "-".repeat(MAX_DEPTH) + "a",
        "a?".repeat(MAX_DEPTH) + "a",
    ] {
        assert_eq!(
            Arithmetic::parse(&text, Quirks::NONE),
            Err(ArithmeticError::Depth),
            "{text}"
        );
    }
    let long = "a+".repeat(MAX_LENGTH / 2 - 1) + "a";
    let sum = value(&long, &[1.0], Quirks::NONE);
    assert_eq!(sum, Value::Double((MAX_LENGTH / 2) as f64));
}

#[test]
fn fractions_have_eight_bytes_unless_as_in_opentsdb() {
    assert_eq!(
        value("a*0.123456789", &[1.0], Quirks::NONE),
        Value::Double(0.123_456_789)
    );
    assert_eq!(
        value("a*0.123456789", &[1.0], Quirks::OPENTSDB),
        Value::Double(0.123_456_79)
    );
    assert_eq!(
        value("a*0.123456789d", &[1.0], Quirks::OPENTSDB),
        Value::Double(0.123_456_789)
    );
}

#[test]
fn doubled_parentheses_hide_names_in_opentsdb_only() {
    let hidden = Arithmetic::parse("((a)) + b", Quirks::OPENTSDB).unwrap();
    assert_eq!(hidden.names(), ["b"]);
    assert_eq!(hidden.evaluate(&[5.0]).unwrap(), Value::Double(5.0));
    let seen = Arithmetic::parse("((a)) + b + a", Quirks::OPENTSDB).unwrap();
    assert_eq!(seen.names(), ["a", "b"]);
    assert_eq!(seen.evaluate(&[1.0, 5.0]).unwrap(), Value::Double(7.0));
    assert_eq!(
        Arithmetic::parse("((a) + b)", Quirks::OPENTSDB).unwrap().names(),
        ["a", "b"]
    );
    assert_eq!(
        Arithmetic::parse("((a)) + b", Quirks::NONE).unwrap().names(),
        ["a", "b"]
    );
}

#[test]
fn types_of_results_are_kept_apart() {
    for (text, expected) in [
        ("a>1?1:0", Value::Whole(0)),
        ("a>1?a:0.5", Value::Literal(0.5)),
        ("a & 3", Value::Whole(1)),
        ("a | 6", Value::Whole(7)),
        ("a ^ 3", Value::Whole(2)),
        ("~a", Value::Whole(-2)),
        ("a ?: 5", Value::Double(1.0)),
        ("null", Value::Null),
        ("a < null", Value::Truth(false)),
        ("null == null", Value::Truth(true)),
        ("true == a", Value::Truth(true)),
        ("-true", Value::Truth(false)),
    ] {
        assert_eq!(value(text, &[1.0], Quirks::NONE), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Arithmetic::parse(&text, Quirks::OPENTSDB);
    }

    #[test]
    fn texts_of_its_words_are_read_or_refused(words in prop::collection::vec(
        prop::sample::select(vec![
            "a", "b", "1", "0.5", "0x1F", "(", ")", "((", "))", "+", "-", "*", "/", "%", "<", ">=", "==", "&&", "or",
            "not", "!", "?", ":", "?:", "~", "|", "&", "^", ";", "null", "true", "/*", "*/", "##", " ", "\n",
        ]), 0..60))
    {
        let text = words.concat();
        for quirks in [Quirks::NONE, Quirks::OPENTSDB] {
            if let Ok(arithmetic) = Arithmetic::parse(&text, quirks) {
                let values = vec![1.5; arithmetic.names().len()];
                let _ = arithmetic.evaluate(&values);
            }
        }
    }

    #[test]
    fn sums_and_products_are_those_of_doubles(a in any::<f64>(), b in any::<f64>(), c in any::<f64>()) {
        let result = value("a + b * c - a", &[a, b, c], Quirks::NONE).as_f64();
        let expected = a + b * c - a;
        prop_assert!(result == expected || result.is_nan() && expected.is_nan());
    }
}
