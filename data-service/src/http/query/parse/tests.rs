use serde_json::json;

use super::*;
use oxtsdb_query::{CalendarInterval, CalendarUnit, Interval};

const RULES: QueryRules = QueryRules {
    fix_duplicates: false,
};
const NOW_MS: i64 = 1_400_000_000_000;

fn parse(body: &serde_json::Value) -> Result<Question, HttpError> {
    from_json(body.to_string().as_bytes(), &Parameters::default(), RULES, NOW_MS)
}

fn sub_query(fields: serde_json::Value) -> SubQuery {
    let mut sub_query = json!({"aggregator": "sum", "metric": "m"});
    for (key, value) in fields.as_object().unwrap() {
        sub_query[key] = value.clone();
    }
    let question = parse(&json!({"start": 1, "queries": [sub_query]})).unwrap();
    question.spec.sub_queries.into_iter().next().unwrap()
}

#[test]
fn times_are_texts_or_numbers() {
    let range = |start: serde_json::Value, end: serde_json::Value| {
        let spec =
            parse(&json!({"start": start, "end": end, "queries": [{"aggregator": "sum", "metric": "m"}]}))
                .unwrap()
                .spec;
        (spec.start_ms, spec.end_ms)
    };
    let t = 1_356_998_400_000;
    assert_eq!(range(json!(1_356_998_400), json!(null)), (t, NOW_MS));
    assert_eq!(range(json!("1356998400"), json!("")), (t, NOW_MS));
    assert_eq!(
        range(json!("2013/01/01"), json!("1h-ago")),
        (t, NOW_MS - 3_600_000)
    );
    // The number is read through its text, which has eleven digits without the dot.
    let body =
        br#"{"start":1356998400.5,"end":1356998400.123,"queries":[{"aggregator":"sum","metric":"m"}]}"#;
    let spec = from_json(body, &Parameters::default(), RULES, NOW_MS)
        .unwrap()
        .spec;
    assert_eq!((spec.start_ms, spec.end_ms), (13_569_984_005, 1_356_998_400_123));

    let zoned = json!({"start": "2013/01/01", "timezone": "America/New_York",
        "queries": [{"aggregator": "sum", "metric": "m"}]});
    assert_eq!(parse(&zoned).unwrap().spec.start_ms, t + 5 * 3_600_000);
}

#[test]
fn a_sub_query_has_all_its_parts() {
    let read = sub_query(json!({
        "tags": {"host": "web*", "n": 5},
        "downsample": "1m-avg-zero",
        "rate": true,
        "rateOptions": {"counter": "true", "counterMax": 100, "resetValue": 5, "dropResets": 1},
        "explicitTags": true,
        "index": 3,
        "unknown": {}
    }));
    assert_eq!(read.source, Source::Metric("m".to_owned()));
    assert!(read.filter.explicit_tags);
    let filters: Vec<String> = read
        .filter
        .tags
        .iter()
        .map(|f| format!("{}={} {}", f.key, f.matcher, f.group_by))
        .collect();
    assert_eq!(filters, ["host=iwildcard(web*) true", "n=literal_or(5) true"]);
    assert_eq!(
        read.downsample.unwrap().interval,
        Interval::Fixed { length_ms: 60_000 }
    );
    let rate = RateOptions {
        counter: true,
        counter_max: 100,
        reset_value: 5,
        drop_resets: true,
    };
    assert_eq!(read.rate, Some(rate));

    let plain = sub_query(json!({"downsample": "", "rateOptions": {"counter": true}, "tags": {}}));
    assert_eq!(
        (plain.downsample, plain.rate),
        (None, None),
        "options without a rate are none"
    );
    assert_eq!(
        sub_query(json!({"tsuids": ["00000a0b"]})).source,
        Source::Tsuids(vec![vec![0, 0, 10, 11]])
    );
}

#[test]
fn of_tags_and_filters_the_last_counts() {
    let tags = r#""tags":{"dc":"lga"}"#;
    let filters = r#""filters":[{"type":"wildcard","tagk":"host","filter":"w*"}]"#;
    for (fields, expected) in [
        (format!("{filters},{tags}"), "dc=literal_or(lga) true"),
        (format!("{tags},{filters}"), "host=wildcard(w*) false"),
        (format!(r#"{filters},"tags":{{}}"#), ""),
        (format!(r#"{tags},"filters":[]"#), ""),
        (filters.to_owned(), "host=wildcard(w*) false"),
    ] {
        let body = format!(r#"{{"start":1,"queries":[{{"aggregator":"sum","metric":"m",{fields}}}]}}"#);
        let question = from_json(body.as_bytes(), &Parameters::default(), RULES, NOW_MS).unwrap();
        let read: Vec<String> = question.spec.sub_queries[0]
            .filter
            .tags
            .iter()
            .map(|f| format!("{}={} {}", f.key, f.matcher, f.group_by))
            .collect();
        assert_eq!(read.join(" "), expected, "{fields}");
    }
    let body = r#"{"start":1,"queries":[{"aggregator":"sum","metric":"m","filters":5,"tags":{}}]}"#;
    let error = from_json(body.as_bytes(), &Parameters::default(), RULES, NOW_MS).unwrap_err();
    assert_eq!(error.message, "Unable to parse the given JSON");
}

#[test]
fn tsuids_have_filters_too() {
    let read = sub_query(json!({"tsuids": ["00000a0b"], "tags": {"a": "b"}}));
    assert_eq!(read.source, Source::Tsuids(vec![vec![0, 0, 10, 11]]));
    assert_eq!(read.filter.tags[0].matcher.to_string(), "literal_or(b)");
}

#[test]
fn calendars_are_those_of_the_request() {
    let asked = |text: &str, fields: serde_json::Value| {
        let mut body =
            json!({"start": 1, "queries": [{"aggregator": "sum", "metric": "m", "downsample": text}]});
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        parse(&body).map(|question| question.spec.sub_queries[0].downsample.clone().unwrap().interval)
    };
    let days = |zone: &str| {
        Interval::Calendar(CalendarInterval {
            count: 2,
            unit: CalendarUnit::Days,
            zone: find_zone(zone).unwrap(),
        })
    };
    assert_eq!(asked("2dc-sum", json!({})).unwrap(), days("UTC"));
    let tokyo = json!({"timezone": "Asia/Tokyo"});
    assert_eq!(asked("2dc-sum", tokyo.clone()).unwrap(), days("Asia/Tokyo"));
    assert!(matches!(asked("2d-sum", tokyo).unwrap(), Interval::Fixed { .. }));
    let always = json!({"timezone": "Asia/Tokyo", "useCalendar": true});
    assert_eq!(asked("2d-sum", always.clone()).unwrap(), days("Asia/Tokyo"));
    assert_eq!(asked("0all-sum", always).unwrap(), Interval::WholeRange);

    let bogus = json!({"timezone": "Mars/Base"});
    let no_zone = "The timezone specification could not be found";
    for text in ["2dc-sum", "2d-sum"] {
        assert_eq!(asked(text, bogus.clone()).unwrap_err().message, no_zone);
    }
    let dated = json!({"timezone": "Mars/Base", "start": "2013/01/01"});
    let error = asked("2d-sum", dated).unwrap_err();
    assert_eq!(error.message, "Invalid timezone name: Mars/Base");
}

#[test]
fn identical_sub_queries_are_one() {
    let one = json!({"aggregator": "sum", "metric": "m"});
    let other = json!({"aggregator": "max", "metric": "m"});
    let question = parse(&json!({"start": 1, "queries": [one, other, one]})).unwrap();
    assert_eq!(question.spec.sub_queries.len(), 2);
}

#[test]
fn what_is_not_there_is_refused() {
    for (name, value, said) in [
        ("percentiles", json!([99.9]), "Not supported: percentiles"),
        (
            "showHistogramBuckets",
            json!(true),
            "Not supported: showHistogramBuckets",
        ),
        ("preAggregate", json!(true), "Not supported: preAggregate"),
    ] {
        let mut sub_query = json!({"aggregator": "sum", "metric": "m"});
        sub_query[name] = value;
        let error = parse(&json!({"start": 1, "queries": [sub_query]})).unwrap_err();
        assert_eq!((error.status.as_u16(), error.message.as_str()), (400, said));
    }
}

#[test]
fn sub_queries_and_filters_are_bounded() {
    let one = json!({"aggregator": "sum", "metric": "m"});
    let error = parse(&json!({"start": 1, "queries": vec![one; 1001]})).unwrap_err();
    assert_eq!(
        error.message,
        "query has 1001 sub-queries, at most 1000 are allowed"
    );
    let tags: BTreeMap<String, &str> = (0..101).map(|n| (format!("k{n}"), "*")).collect();
    let many = json!({"aggregator": "sum", "metric": "m", "tags": tags});
    let error = parse(&json!({"start": 1, "queries": [many]})).unwrap_err();
    assert_eq!(
        error.message,
        "query has 101 tags and filters, at most 100 are allowed"
    );
}

#[test]
fn filters_are_counted_and_not_kept() {
    let filters = json!({"filters": vec![json!({}); 101]});
    let error = parse(&json!({"start": 1, "queries": [filters]})).unwrap_err();
    assert_eq!(
        error.message,
        "query has 101 tags and filters, at most 100 are allowed"
    );
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    for field in ["queries", "start", "x"] {
        let deep = format!("{{\"{field}\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(from_json(deep.as_bytes(), &Parameters::default(), RULES, NOW_MS).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn any_body_is_read_or_refused(bytes: Vec<u8>) {
        let _ = from_json(&bytes, &Parameters::default(), RULES, NOW_MS);
    }
}
