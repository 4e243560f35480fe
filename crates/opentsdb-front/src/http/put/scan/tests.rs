use proptest::prelude::*;
use proptest::sample::Index;

use super::super::body::PutBody;
use super::*;

/// Metric, timestamp, value and tags of a point.
type Fields = (Option<String>, i64, Option<String>, Vec<(String, Option<String>)>);

fn fields(body: &PutBody<'_>) -> Vec<Option<Fields>> {
    let text_of = |text: &Option<Cow<'_, str>>| text.as_ref().map(ToString::to_string);
    let fields = |point: &PutPoint<'_>| {
        let tags = body.tags_of(point);
        let tags = tags.iter();
        (
            text_of(&point.metric),
            point.timestamp,
            text_of(&point.value),
            tags.map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
                .collect(),
        )
    };
    let points = body.points.iter();
    points.map(|point| point.as_ref().map(fields)).collect()
}

/// Whether a text is scanned; then with the points that the general parser has.
fn is_scanned(text: &str) -> bool {
    let Some(points) = scan(text, 5) else {
        return false;
    };
    let scanned = PutBody::from_points(points);
    let parsed = PutBody::parse_any(text, 5).expect("the general parser parses what is scanned");
    assert_eq!(fields(&scanned), fields(&parsed), "{text}");
    true
}

const POINT: &str =
    r#"{"metric":"sys.cpu","timestamp":1356998400,"value":-1.50e+3,"tags":{"host":"é","dc":"lga"}}"#;

#[test]
fn scans_the_usual_bodies() {
    for text in [
        POINT.to_owned(),
        format!(" [{POINT} ,\r\n\t{POINT}] "),
        r#"{"tags" : {"a":"b" , "a":"c","":""},"value":"1","timestamp":0,"metric":""}"#.to_owned(),
        r#"{"metric":"m","timestamp":999999999999999999,"value":0,"tags":{"a":"b"}}"#.to_owned(),
        r#"{"metric":"m","timestamp":1,"value":-0.0,"tags":{"a":"b"}}"#.to_owned(),
    ] {
        assert!(is_scanned(&text), "{text}");
    }
}

#[test]
fn leaves_other_bodies_to_the_general_parser() {
    let six = [POINT; 6].join(",");
    let many_tags: Vec<String> = (0..=DEDUPLICATED_TAGS)
        .map(|tag| format!("\"{tag}\":\"v\""))
        .collect();
    for text in [
        "",
        "[]",
        "null",
        "[null]",
        &POINT[1..],
        &POINT[..POINT.len() - 1],
        &format!("[{POINT}"),
        &format!("[{POINT},]"),
        &format!("[{POINT}]]"),
        &format!("[{six}]"),
        &POINT.replace("metric", "m"),
        &POINT.replace("metric", "value"),
        &POINT.replace("\"metric\"", "\"x\":1,\"metric\""),
        &POINT.replace("sys", "\\u0073ys"),
        &POINT.replace("sys", "s\u{1}ys"),
        &POINT.replace("1356998400", "1356998400.5"),
        &POINT.replace("1356998400", "1e9"),
        &POINT.replace("1356998400", "-5"),
        &POINT.replace("1356998400", "0123"),
        &POINT.replace("1356998400", "\"1356998400\""),
        &POINT.replace("1356998400", "1234567890123456789"),
        &POINT.replace("-1.50e+3", "01"),
        &POINT.replace("-1.50e+3", "1."),
        &POINT.replace("-1.50e+3", ".5"),
        &POINT.replace("-1.50e+3", "1e"),
        &POINT.replace("-1.50e+3", "-"),
        &POINT.replace("-1.50e+3", "true"),
        &POINT.replace("\"lga\"", "null"),
        &POINT.replace("\"lga\"", "5"),
        &POINT.replace(r#""host":"é","dc":"lga""#, ""),
        &POINT.replace(r#""host":"é","dc":"lga""#, &many_tags.join(",")),
        &POINT.replace(r#"{"host":"é","dc":"lga"}"#, "null"),
    ] {
        assert!(!is_scanned(text), "{text}");
    }
}

#[test]
fn texts_end_at_quotes_escapes_and_control_characters() {
    for length in 0..40 {
        for end in ['"', '\\', '\n', '\0', '\u{1f}'] {
            let text = format!(
                "{}{end}\"\\",
                "a\u{7f}é ~!#[]".chars().cycle().take(length).collect::<String>()
            );
            assert_eq!(Some(text_len(text.as_bytes())), text.find(end), "{text:?}");
        }
    }
    assert_eq!(text_len(b"123456789"), 9);
}

fn point() -> impl Strategy<Value = String> {
    let text = || "[a-c.é ]{0,12}";
    let number = "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,9})?([eE][-+]?[0-9]{1,3})?";
    let value = prop_oneof![Just(number.to_owned()), Just(format!("\"{number}\""))];
    let value = value.prop_flat_map(|regex| proptest::string::string_regex(&regex).unwrap());
    let tags = proptest::collection::vec((text(), text()), 1..5);
    let fields = (text(), 0..i64::MAX, value, tags).prop_map(|(metric, timestamp, value, tags)| {
        let tags: Vec<String> = tags
            .iter()
            .map(|(key, value)| format!("\"{key}\": \"{value}\""))
            .collect();
        [
            format!("\"metric\":\"{metric}\""),
            format!("\"timestamp\":{timestamp}"),
            format!("\"value\":{value}"),
            format!("\"tags\":{{{}}}", tags.join(",")),
        ]
    });
    let fields = fields.prop_map(|fields| fields.to_vec()).prop_shuffle();
    fields.prop_map(|fields| format!("{{{}}}", fields.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Also after some characters are replaced, inserted or deleted.
    #[test]
    fn scans_what_the_general_parser_parses(
        points in proptest::collection::vec(point(), 1..4),
        mutations in proptest::collection::vec((any::<Index>(), "[\\[\\]{}\",:0-9.eE+\\\\ \n\u{1}mtv-]{0,2}", 0..3_usize), 0..3),
    ) {
        let mut text: Vec<char> = format!("[{}]", points.join(",")).chars().collect();
        for (index, replacement, deleted) in mutations {
            let from = index.index(text.len());
            let to = (from + deleted).min(text.len());
            text.splice(from..to, replacement.chars());
            if text.is_empty() {
                break;
            }
        }
        let text: String = text.into_iter().collect();
        is_scanned(&text);
        // The same by the way of requests.
        match (PutBody::parse(text.as_bytes(), 5), PutBody::parse_any(&text, 5)) {
            (Ok(one), Ok(other)) => prop_assert_eq!(fields(&one), fields(&other)),
            (Err(one), Err(other)) => prop_assert_eq!(one.to_string(), other.to_string()),
            (one, other) => prop_assert!(false, "{one:?}, {other:?}"),
        }
    }

    #[test]
    fn unmutated_points_are_scanned(points in proptest::collection::vec(point(), 1..4)) {
        let text = format!("[{}]", points.join(","));
        let long = points.iter().any(|point| point.split("\"timestamp\":").nth(1)
            .is_some_and(|rest| rest.chars().take_while(char::is_ascii_digit).count() > MAX_TIMESTAMP_DIGITS));
        prop_assert_eq!(is_scanned(&text), !long);
    }
}
