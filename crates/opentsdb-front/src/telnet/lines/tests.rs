use oxtsdb_schema::Timestamp;

use super::*;
use crate::telnet::batch::parse;

fn parse_all(text: &str) -> Batch<'_> {
    let batch = parse(text, 1024, 1000, None);
    assert_eq!(batch.read, text.len());
    batch
}

/// The reply to a line, without its newline.
fn reply(line: &str) -> String {
    let text = format!("{line}\n");
    let batch = parse_all(&text);
    assert!(batch.points.is_empty(), "{line}");
    assert!(batch.tags.is_empty(), "{line}");
    match &batch.others[..] {
        [
            OtherLine {
                command: Command::InvalidValue(_, text) | Command::IllegalArgument(_, text),
                ..
            },
        ] => text.strip_suffix('\n').unwrap().to_owned(),
        others => panic!("{line}: {others:?}"),
    }
}

#[test]
fn tags_keep_the_order_of_the_line() {
    let batch = parse_all("put sys.cpu.nice 1346846400 18 host=web01 dc=lga\n");
    let [point] = &batch.points[..] else {
        panic!("{batch:?}")
    };
    assert_eq!(point.metric, "sys.cpu.nice");
    assert_eq!(point.timestamp, Timestamp::from_seconds(1_346_846_400));
    assert_eq!(point.value, Value::Int(18));
    assert_eq!(batch.tags, [("host", "web01"), ("dc", "lga")]);
    assert!(batch.others.is_empty());
}

#[test]
fn parses_lines_of_collectd() {
    // write_tsdb: carriage return, six decimals, milliseconds after a dot.
    let text = "put cpu-0.cpu-user 1356998400.123 12.345678 fqdn=host.example.org  a=b\r\n\
                put load.load.shortterm 1356998400 0.500000 fqdn=host.example.org \r\n";
    let batch = parse_all(text);
    assert_eq!(batch.points.len(), 2);
    assert_eq!(batch.points[0].timestamp.as_millis(), 1_356_998_400_123);
    assert_eq!(batch.points[0].value, Value::Double(12.345678));
    assert_eq!(batch.points[1].value, Value::Float(0.5));
    assert_eq!(batch.tags.len(), 3);
    assert_eq!(batch.points[1].tags, 2..3);
}

#[test]
fn dots_are_deleted_from_timestamps() {
    let batch = parse_all("put m 1356998400.5 1 a=b\n");
    assert_eq!(batch.points[0].timestamp.as_millis(), 13_569_984_005);
}

#[test]
fn a_repeated_tag_counts_once() {
    let batch = parse_all("put m 1 1 a=b a=b c=d\n");
    assert_eq!(batch.tags, [("a", "b"), ("c", "d")]);
}

#[test]
fn rejects_lines_with_opentsdbs_texts() {
    for (line, expected) in [
        (
            "put",
            "put: illegal argument: not enough arguments (need least 4, got 0)",
        ),
        (
            "put m",
            "put: illegal argument: not enough arguments (need least 4, got 1)",
        ),
        (
            "put m 1 2",
            "put: illegal argument: not enough arguments (need least 4, got 3)",
        ),
        ("put m 0 2 a=b", "put: illegal argument: invalid timestamp: 0"),
        ("put m -5 2 a=b", "put: illegal argument: invalid timestamp: -5"),
        ("put m x 2 a=b", "put: invalid value: Invalid character 'x' in x"),
        ("put m 1 x a=b", "put: invalid value: Invalid character 'x' in x"),
        ("put m 1  a=b", "put: illegal argument: empty value"),
        ("put  1 1 a=b", "put: illegal argument: empty metric name"),
        ("put m 1 1 host", "put: illegal argument: invalid tag: host"),
        ("put m 1 1 host=", "put: illegal argument: invalid tag: host="),
        ("put m 1 1 =a", "put: illegal argument: invalid tag: =a"),
        ("put m 1 1 a=b=c", "put: illegal argument: invalid tag: a=b=c"),
        (
            "put m 1 1 host=a host=b",
            "put: illegal argument: duplicate tag: host=b, tags={host=a}",
        ),
        (
            "put m 1 NaN a=b",
            "put: invalid value: Invalid character 'N' in NaN",
        ),
        (
            "put m 1 1e400 a=b",
            "put: illegal argument: value is NaN or Infinite: Infinity for metric=m timestamp=1",
        ),
        (
            "put m 99999999999999 1 host=a",
            "put: illegal argument: bad timestamp=99999999999999 when trying to add value=[1]/0 \
             to metric=m, tags={host=a}",
        ),
    ] {
        assert_eq!(reply(line), expected, "{line}");
    }
}

#[test]
fn other_lines_count_the_points_before_them() {
    let batch = parse_all("version\nput m 1 1 a=b\nhelp\n\nPUT m\nput m 2 1 a=b\nput m\nstats\n");
    let places: Vec<_> = batch.others.iter().map(|other| other.points_before).collect();
    assert_eq!(places, [0, 1, 1, 1, 2, 2]);
    assert_eq!(batch.others[0].command, Command::Version);
    assert_eq!(batch.others[1].command, Command::Help);
    assert_eq!(batch.others[2].command, Command::Unknown(""));
    assert_eq!(batch.others[3].command, Command::Unknown("PUT"));
    assert_eq!(batch.others[5].command, Command::Stats);
    assert_eq!(batch.lines, 8);
}

#[test]
fn exit_ends_the_batch() {
    let batch = parse("put m 1 1 a=b\nexit\nput m 2 1 a=b\n", 1024, 1000, None);
    assert!(batch.exit);
    assert_eq!(batch.points.len(), 1);
    assert_eq!(batch.read, "put m 1 1 a=b\nexit\n".len());
}

#[test]
fn a_long_line_ends_the_batch_before_it() {
    let fits = format!("put m 1 1 a={}\n", "b".repeat(20 - 12));
    assert_eq!(fits.len(), 21);
    let text = format!("{fits}put m 1 1 a=bbbbbbbbb\nhelp\n");
    let batch = parse(&text, 20, 1000, None);
    assert!(batch.too_long);
    assert_eq!(batch.points.len(), 1);
    assert_eq!(batch.read, fits.len());
    // Characters count, not the bytes that they have in memory here.
    assert!(!parse("ééééé\n", 5, 9, None).too_long);
    assert!(parse("éééééé\n", 5, 9, None).too_long);
}

#[test]
fn limits_the_points_of_a_batch() {
    let text = "put m 1 1 a=b\n".repeat(10);
    let batch = parse(&text, 1024, 4, None);
    assert_eq!((batch.points.len(), batch.read), (4, text.len() / 10 * 4));
    let text = "\n".repeat(10);
    let batch = parse(&text, 1024, 4, None);
    assert_eq!((batch.others.len(), batch.read), (4, 4));
}

proptest::proptest! {
    #[test]
    fn parses_or_rejects_any_text(text in "(put |m|1|\\.|[ =a-c]|\n|\r){0,60}") {
        let batch = parse(&text, 30, 5, None);
        proptest::prop_assert!(batch.read <= text.len());
        for point in &batch.points {
            proptest::prop_assert!(batch.tags.get(point.tags.clone()).is_some());
        }
    }
}
