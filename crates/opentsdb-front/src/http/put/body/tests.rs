use super::*;

fn parse(text: &str) -> Result<PutBody<'_>, PutBodyError> {
    PutBody::parse(text.as_bytes(), 1000)
}

fn unreadable(text: &str) -> String {
    match parse(text) {
        Err(PutBodyError::Unreadable(details)) => details,
        other => panic!("{text} was read: {other:?}"),
    }
}

/// Metric, timestamp, value and tags of a point.
type Fields = (Option<String>, i64, Option<String>, Vec<(String, Option<String>)>);

/// The only point of a body.
fn only(text: &str) -> Fields {
    let body = parse(text).unwrap();
    let [Some(point)] = &body.points[..] else {
        panic!("{text}: {body:?}")
    };
    let tags = body.tags_of(point).into_iter();
    let tags = tags.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
    let text_of = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
    (
        text_of(&point.metric),
        point.timestamp,
        text_of(&point.value),
        tags.collect(),
    )
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn parses_one_point_or_an_array() {
    let point = r#"{"metric":"m","timestamp":1,"value":2,"tags":{"z":"1","a":"2"}}"#;
    let expected_tags = vec![("z".to_owned(), some("1")), ("a".to_owned(), some("2"))];
    assert_eq!(only(point), (some("m"), 1, some("2"), expected_tags));

    let text = format!("\n [{point}, null,{point} ] \n");
    let body = parse(&text).unwrap();
    assert_eq!(body.points.len(), 3);
    assert!(body.points[1].is_none());
    let last = body.points[2].as_ref().unwrap();
    assert_eq!(body.tags_of(last)[..], [("z", Some("1")), ("a", Some("2"))]);
    assert!(parse("[]").unwrap().points.is_empty());
}

#[test]
fn borrows_texts_without_escapes() {
    let body = parse(r#"{"metric":"m","value":"1","tags":{"k":"v","e":"\u00e9"}}"#).unwrap();
    let point = body.points[0].as_ref().unwrap();
    assert!(matches!(point.metric, Some(Cow::Borrowed("m"))));
    assert!(matches!(point.value, Some(Cow::Borrowed("1"))));
    assert!(matches!(
        body.tags[0],
        (Cow::Borrowed("k"), Some(Cow::Borrowed("v")))
    ));
    assert_eq!(body.tags[1].1.as_deref(), Some("é"));
}

#[test]
fn keeps_the_source_text_of_a_value() {
    for (source, text) in [
        ("42", some("42")),
        ("42.0", some("42.0")),
        ("1e3", some("1e3")),
        ("-0.0", some("-0.0")),
        (
            "123456789012345678901234567890",
            some("123456789012345678901234567890"),
        ),
        ("1e400", some("1e400")),
        ("\"+5\"", some("+5")),
        ("\"1\\u002e5\"", some("1.5")),
        ("\"\"", some("")),
        ("true", some("true")),
        ("null", None),
    ] {
        assert_eq!(only(&format!("{{\"value\":{source}}}")).2, text, "{source}");
    }
}

#[test]
fn converts_scalars() {
    for (source, timestamp) in [
        ("1356998400", 1_356_998_400),
        ("1356998400.9", 1_356_998_400),
        ("-5", -5),
        ("1e3", 1000),
        ("\"1356998400\"", 1_356_998_400),
        ("\" 7 \"", 7),
        ("\"\"", 0),
        ("null", 0),
    ] {
        assert_eq!(
            only(&format!("{{\"timestamp\":{source}}}")).1,
            timestamp,
            "{source}"
        );
    }
    let (metric, _, _, tags) = only(r#"{"metric":5,"tags":{"a":1,"b":1.5,"c":true,"d":null}}"#);
    assert_eq!(metric, some("5"));
    let tags: Vec<_> = tags.iter().map(|(_, value)| value.as_deref()).collect();
    assert_eq!(tags, [Some("1"), Some("1.5"), Some("true"), None]);
}

#[test]
fn ignores_unknown_fields_and_takes_the_last_of_equal_fields() {
    let text = r#"{"x":[{"y":{}}],"metric":"a","metric":"b","tags":{"k":"1","l":"2"},"tags":{"k":"3","k":"4"},"_":null}"#;
    let (metric, timestamp, value, tags) = only(text);
    assert_eq!((metric, timestamp, value), (some("b"), 0, None));
    assert_eq!(tags, [("k".to_owned(), some("4"))]);
    let has_tags = |text| {
        let body = parse(text).unwrap();
        !matches!(body.points[0].as_ref().unwrap().tags, PutTags::Missing)
    };
    assert!(!has_tags(r#"{"tags":null}"#));
    assert!(!has_tags(r#"{"tags":{"a":"b"},"tags":null}"#));
    assert!(has_tags(r#"{"tags":{}}"#));
}

#[test]
fn rejects_invalid_bodies() {
    assert!(matches!(parse(""), Err(PutBodyError::Empty)));
    assert!(matches!(parse(" \n\t"), Err(PutBodyError::Empty)));
    assert!(matches!(parse("put m 1 1 a=b"), Err(PutBodyError::NoObject)));
    assert!(matches!(parse("\"text\""), Err(PutBodyError::NoObject)));
    for text in [
        "{",
        "[",
        "[{}",
        "[{},]",
        "[1]",
        "[[]]",
        "{\"metric\":\"m}",
        "{\"metric\":{}}",
        "{\"value\":[1]}",
        "{\"tags\":[]}",
        "{\"tags\":\"\"}",
        "{\"tags\":{\"a\":{}}}",
        "{\"timestamp\":\"abc\"}",
        "{\"timestamp\":\"1.5\"}",
        "{\"timestamp\":1e30}",
        "{\"timestamp\":18446744073709551615}",
        "{\"value\":NaN}",
        "{\"value\":.5}",
        "{} {}",
        "[] x",
    ] {
        assert!(!unreadable(text).is_empty(), "{text}");
    }
    assert!(matches!(
        PutBody::parse(b"{\"metric\":\"\xff\"}", 9),
        Err(PutBodyError::Unreadable(details)) if details == "byte 11 is not UTF-8"
    ));
}

#[test]
fn limits_nesting_and_the_number_of_points() {
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    // Either is fine, as long as the stack holds.
    let _ = parse(&deep);
    let deep = "[".repeat(100_000);
    assert!(!unreadable(&deep).is_empty());
    let deep = format!("{{\"tags\":{}", "{\"a\":".repeat(100_000));
    assert!(!unreadable(&deep).is_empty());

    let many = format!("[{}null]", "null,".repeat(999));
    assert_eq!(parse(&many).unwrap().points.len(), 1000);
    let many = format!("[{}null]", "null,".repeat(1000));
    assert!(matches!(parse(&many), Err(PutBodyError::TooMany { max: 1000 })));
}

proptest::proptest! {
    #[test]
    fn parses_or_rejects_any_text(text in "[\\[\\]{}\",:a-e0-9.\\\\ ]{0,64}") {
        let _ = parse(&text);
    }

    #[test]
    fn parses_or_rejects_any_bytes(bytes: Vec<u8>) {
        let _ = PutBody::parse(&bytes, 10);
    }
}
