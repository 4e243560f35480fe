use oxtsdb_query::{CalendarInterval, CalendarUnit, Interval};
use serde_json::json;

use super::*;

const RULES: QueryRules = QueryRules {
    fix_duplicates: false,
    omits_nan: false,
    allow_delete: false,
    may_delete: true,
};
const NOW_MS: i64 = 1_400_000_000_000;

fn parse(body: &serde_json::Value) -> Result<ParsedQuery, HttpError> {
    from_json(body.to_string().as_bytes(), &Parameters::default(), RULES, NOW_MS)
}

fn sub_query(fields: serde_json::Value) -> SubQuery {
    let mut sub_query = json!({"aggregator": "sum", "metric": "m"});
    for (key, value) in fields.as_object().unwrap() {
        sub_query[key] = value.clone();
    }
    let query = parse(&json!({"start": 1, "queries": [sub_query]})).unwrap();
    query.spec.sub_queries.into_iter().next().unwrap()
}

#[test]
fn accepts_times_as_strings_or_numbers() {
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
    // The number is parsed from its text, which has eleven digits without the point.
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
fn parses_every_field_of_a_sub_query() {
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
fn the_last_of_tags_and_filters_applies() {
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
        let query = from_json(body.as_bytes(), &Parameters::default(), RULES, NOW_MS).unwrap();
        let read: Vec<String> = query.spec.sub_queries[0]
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
fn tsuids_may_have_filters() {
    let read = sub_query(json!({"tsuids": ["00000a0b"], "tags": {"a": "b"}}));
    assert_eq!(read.source, Source::Tsuids(vec![vec![0, 0, 10, 11]]));
    assert_eq!(read.filter.tags[0].matcher.to_string(), "literal_or(b)");
}

#[test]
fn calendars_use_the_zone_of_the_request() {
    let interval = |text: &str, fields: serde_json::Value| {
        let mut body =
            json!({"start": 1, "queries": [{"aggregator": "sum", "metric": "m", "downsample": text}]});
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        parse(&body).map(|query| query.spec.sub_queries[0].downsample.clone().unwrap().interval)
    };
    let days = |zone: &str| {
        Interval::Calendar(CalendarInterval {
            count: 2,
            unit: CalendarUnit::Days,
            zone: find_zone(zone).unwrap(),
        })
    };
    assert_eq!(interval("2dc-sum", json!({})).unwrap(), days("UTC"));
    let tokyo = json!({"timezone": "Asia/Tokyo"});
    assert_eq!(interval("2dc-sum", tokyo.clone()).unwrap(), days("Asia/Tokyo"));
    assert!(matches!(
        interval("2d-sum", tokyo).unwrap(),
        Interval::Fixed { .. }
    ));
    let always = json!({"timezone": "Asia/Tokyo", "useCalendar": true});
    assert_eq!(interval("2d-sum", always.clone()).unwrap(), days("Asia/Tokyo"));
    assert_eq!(interval("0all-sum", always).unwrap(), Interval::WholeRange);

    let bogus = json!({"timezone": "Mars/Base"});
    let no_zone = "The timezone specification could not be found";
    for text in ["2dc-sum", "2d-sum"] {
        assert_eq!(interval(text, bogus.clone()).unwrap_err().message, no_zone);
    }
    let dated = json!({"timezone": "Mars/Base", "start": "2013/01/01"});
    let error = interval("2d-sum", dated).unwrap_err();
    assert_eq!(error.message, "Invalid timezone name: Mars/Base");
}

#[test]
fn merges_identical_sub_queries() {
    let one = json!({"aggregator": "sum", "metric": "m"});
    let other = json!({"aggregator": "max", "metric": "m"});
    let query = parse(&json!({"start": 1, "queries": [one, other, one]})).unwrap();
    assert_eq!(query.spec.sub_queries.len(), 2);
}

#[test]
fn deletes_only_where_that_is_allowed() {
    let sub_query = json!({"aggregator": "sum", "metric": "m"});
    let body = json!({"start": 1, "delete": true, "queries": [sub_query]});
    let error = parse(&body).unwrap_err();
    assert_eq!(
        (error.status.as_u16(), error.message.as_str()),
        (400, "Bad request")
    );
    let rules = QueryRules {
        allow_delete: true,
        may_delete: true,
        ..RULES
    };
    let query = from_json(body.to_string().as_bytes(), &Parameters::default(), rules, NOW_MS).unwrap();
    assert!(query.delete);
}

#[test]
fn limits_sub_queries_and_filters() {
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
fn counts_filters_beyond_the_limit_without_keeping_them() {
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
    fn accepts_or_rejects_any_body(bytes: Vec<u8>) {
        let _ = from_json(&bytes, &Parameters::default(), RULES, NOW_MS);
    }
}
