use oxtsdb_proto::data::v1::downsample::Interval as IntervalMessage;
use oxtsdb_proto::data::v1::percentile::Estimator;
use oxtsdb_proto::data::v1::{AggregateFunction, Aggregator as AggregatorMessage, aggregator, rate};
use tonic_types::StatusExt as _;

use super::*;

const NOW: i64 = 1_400_000_000_000;
const T: i64 = 1_356_998_400_000;

fn metric_query(metric: &str) -> SubQueryMessage {
    let source = MetricSource {
        metric: metric.to_owned(),
        filters: Vec::new(),
        explicit_tags: false,
    };
    SubQueryMessage {
        source: Some(SourceMessage::Metric(source)),
        aggregator: Some(AggregateFunction::Sum.into()),
        ..SubQueryMessage::default()
    }
}

fn request(queries: Vec<SubQueryMessage>) -> QueryRequest {
    QueryRequest {
        range: Some(between(T, T + 1000)),
        queries,
        ..QueryRequest::default()
    }
}

fn between(start_ms: i64, end_ms: i64) -> TimeRange {
    TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        end: Some(time_range::End::EndMs(end_ms)),
    }
}

fn message(request: &QueryRequest) -> String {
    query(request, NOW).unwrap_err().message().to_owned()
}

fn with_filter(kind: FilterTypeMessage, pattern: &str, values: &[&str]) -> QueryRequest {
    let filter = TagFilterMessage {
        key: "host".to_owned(),
        r#type: kind.into(),
        pattern: pattern.to_owned(),
        values: values.iter().map(ToString::to_string).collect(),
        group_by: true,
    };
    let mut query = metric_query("m");
    if let Some(SourceMessage::Metric(source)) = &mut query.source {
        source.filters.push(filter);
    }
    request(vec![query])
}

#[test]
fn the_end_is_outside_of_the_range() {
    let spec = query(&request(vec![metric_query("m")]), NOW).unwrap();
    assert_eq!((spec.start_ms, spec.end_ms), (T, T + 999));
    assert_eq!(
        (spec.duplicates, spec.quirks),
        (DuplicatePolicy::KeepNewest, Quirks::NONE)
    );
    assert_eq!(spec.max_scanned_points, None);
}

#[test]
fn ranges_may_be_relative_to_the_clock() {
    let hour = |hours: i64| Duration {
        seconds: hours * 3600,
        nanos: 0,
    };
    let ago = TimeRange {
        start: Some(time_range::Start::StartAgo(hour(2))),
        end: Some(time_range::End::EndAgo(hour(1))),
    };
    assert_eq!(
        range("range", Some(&ago), NOW).unwrap(),
        (NOW - 7_200_000, NOW - 3_600_000)
    );
    let open = TimeRange {
        start: Some(time_range::Start::StartAgo(hour(2))),
        end: None,
    };
    assert_eq!(range("range", Some(&open), NOW).unwrap(), (NOW - 7_200_000, NOW));
}

#[test]
fn rejects_ranges_without_a_plausible_instant_unless_any_time_is_allowed() {
    let ranged = |start_ms, end_ms| QueryRequest {
        range: Some(between(start_ms, end_ms)),
        ..request(vec![metric_query("m")])
    };
    let ahead_ms = NOW + 366 * 24 * 3_600_000;
    // 2000-01-01.
    let earliest_ms = 946_684_800_000;
    for (start_ms, end_ms) in [
        (0, NOW),
        (0, earliest_ms + 1),
        (ahead_ms, ahead_ms + 1),
        (T / 1000, NOW),
    ] {
        assert!(
            query(&ranged(start_ms, end_ms), NOW).is_ok(),
            "{start_ms} to {end_ms}"
        );
    }
    for (start_ms, end_ms, field) in [
        (T / 1000, T / 1000 + 3600, "range.end_ms"),
        (0, T / 1000, "range.end_ms"),
        (0, earliest_ms, "range.end_ms"),
        (ahead_ms + 1, ahead_ms + 2, "range.start_ms"),
        (T * 1000, T * 1000 + 1, "range.start_ms"),
    ] {
        let mut request = ranged(start_ms, end_ms);
        let status = query(&request, NOW).unwrap_err();
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "IMPLAUSIBLE_TIMESTAMP");
        let violations = &details.bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, field);
        assert!(status.message().contains("allow_any_time"), "{status}");
        request.allow_any_time = true;
        assert!(query(&request, NOW).is_ok(), "{start_ms} to {end_ms}");
    }
    assert_eq!(
        message(&ranged(T / 1000, T / 1000 + 3600)),
        "range.end_ms: the range ends at 1357002000 ms, which is 1970-01-16T16:56:42Z, expected 2000-01-01 to 366 days \
         after the server's clock; times are in milliseconds; correct them, or set allow_any_time"
    );
}

#[test]
fn a_refusal_names_field_value_and_rule() {
    let check = |change: fn(&mut QueryRequest), expected: &str| {
        let mut request = request(vec![metric_query("m")]);
        change(&mut request);
        assert_eq!(message(&request), expected);
    };
    check(|r| r.range = None, "range: is missing");
    check(
        |r| r.range.as_mut().unwrap().end = Some(time_range::End::EndMs(T)),
        "range: ends at 1356998400000 ms and starts at 1356998400000 ms, the end must be after the start",
    );
    check(
        |r| r.range.as_mut().unwrap().start = Some(time_range::Start::StartMs(-1)),
        "range.start_ms: is -1, expected at least 0",
    );
    check(
        |r| r.range.as_mut().unwrap().start = Some(time_range::Start::StartAgo(Duration::default())),
        "range.start_ago: is 0 s 0 ns, expected at least 1 ms",
    );
    check(|r| r.queries.clear(), "queries: has 0 items, expected 1 to 50");
    check(
        |r| r.queries[0].source = None,
        "queries[0]: has no source, expected metric or tsuids",
    );
    check(
        |r| r.queries[0] = metric_query(""),
        "queries[0].metric.metric: is empty",
    );
    check(
        |r| {
            let kind = Some(aggregator::Kind::Function(99));
            r.queries[0].aggregator = Some(AggregatorMessage { kind });
        },
        "queries[0].aggregator.function: is 99, expected one of the named values",
    );
    check(
        |r| r.queries[0].aggregator = None,
        "queries[0].aggregator: is missing",
    );
    check(
        |r| {
            let counter = Some(rate::Counter {
                max: Some(u64::MAX),
                ..rate::Counter::default()
            });
            r.queries[0].rate = Some(Rate { counter });
        },
        "queries[0].rate.counter.max: is 18446744073709551615, at most 2^63 - 1 is allowed",
    );
    check(
        |r| {
            r.queries[0].downsample = Some(DownsampleMessage {
                interval: Some(IntervalMessage::Fixed(Duration {
                    seconds: 1,
                    nanos: 500,
                })),
                aggregator: Some(AggregateFunction::Avg.into()),
                ..DownsampleMessage::default()
            });
        },
        "queries[0].downsample.fixed: has 500 ns, expected whole milliseconds",
    );
    check(
        |r| {
            r.queries[0].downsample = Some(DownsampleMessage {
                interval: Some(IntervalMessage::WholeRange(downsample::WholeRange {})),
                aggregator: Some(AggregateFunction::None.into()),
                ..DownsampleMessage::default()
            });
        },
        "queries[0].downsample.aggregator: is NONE, expected a function over the values of an interval",
    );
}

#[test]
fn calendars_have_a_zone_and_windows_a_fill_policy() {
    let with = |count, unit: Unit, zone: &str, fill| {
        let mut request = request(vec![metric_query("m")]);
        let calendar = Calendar {
            count,
            unit: unit.into(),
            zone: zone.to_owned(),
        };
        request.queries[0].downsample = Some(DownsampleMessage {
            interval: Some(IntervalMessage::Calendar(calendar)),
            aggregator: Some(AggregatorMessage::percentile(99.0, Estimator::Legacy)),
            fill,
        });
        request
    };
    let spec = query(&with(2, Unit::Weeks, "Asia/Tokyo", 3), NOW).unwrap();
    let downsample = spec.sub_queries[0].downsample.clone().unwrap();
    let weeks = CalendarInterval {
        count: 2,
        unit: CalendarUnit::Weeks,
        zone: find_zone("Asia/Tokyo").unwrap(),
    };
    assert_eq!(downsample.interval, Interval::Calendar(weeks));
    assert_eq!((downsample.name, downsample.fill), ("p99", Fill::Nan));
    let field = "queries[0].downsample";
    for (request, expected) in [
        (
            with(0, Unit::Days, "", 0),
            format!("{field}.calendar.count: is 0, expected 1 to 2^31 - 1"),
        ),
        (
            with(1, Unit::Unspecified, "", 0),
            format!("{field}.calendar.unit: is 0, expected one of the named values"),
        ),
        (
            with(1, Unit::Days, "+05:00", 0),
            format!("{field}.calendar.zone: is `+05:00`, expected the name of an IANA time zone"),
        ),
        (
            with(1, Unit::Days, "", 9),
            format!("{field}.fill: is 9, expected one of the named values"),
        ),
    ] {
        assert_eq!(message(&request), expected);
    }
}

#[test]
fn the_request_says_whose_answer_it_wants() {
    let mut request = request(vec![metric_query("m")]);
    assert_eq!(query(&request, NOW).unwrap().quirks, Quirks::NONE);
    request.opentsdb_quirks = true;
    assert_eq!(query(&request, NOW).unwrap().quirks, Quirks::OPENTSDB);
}

#[test]
fn every_filter_type_is_in_the_contract_and_every_value_of_the_contract_is_a_type() {
    let values = (1..).map_while(|number| FilterTypeMessage::try_from(number).ok());
    let mut names: Vec<_> = values
        .map(|value| {
            filter_type(value.into())
                .unwrap_or_else(|| panic!("{value:?}"))
                .name()
        })
        .collect();
    names.sort_unstable();
    let expected: Vec<_> = FilterType::all().iter().map(FilterType::name).collect();
    assert_eq!(names, expected);
}

#[test]
fn filters_are_read_by_their_type() {
    let spec = query(&with_filter(FilterTypeMessage::Iwildcard, "WEB*", &[]), NOW).unwrap();
    let filters = &spec.sub_queries[0].filter.tags;
    assert_eq!(filters[0].matcher.to_string(), "iwildcard(web*)");
    assert!(filters[0].group_by);
    for (request, expected) in [
        (
            with_filter(FilterTypeMessage::Wildcard, "web", &[]),
            "pattern: is `web`, expected at least one `*`",
        ),
        (
            with_filter(FilterTypeMessage::Regexp, "a(?=b)", &[]),
            "pattern: is `a(?=b)`, which has a look-ahead, which is not supported",
        ),
        (
            with_filter(FilterTypeMessage::Regexp, "", &[]),
            "pattern: is empty",
        ),
        (
            with_filter(FilterTypeMessage::LiteralOr, "", &[]),
            "values: is empty, expected at least one alternative",
        ),
        (
            with_filter(FilterTypeMessage::LiteralOr, "", &["a", ""]),
            "values[1]: is empty",
        ),
        (
            with_filter(FilterTypeMessage::LiteralOr, "a|b", &["a"]),
            "pattern: is `a|b`, a literal filter has its alternatives in values",
        ),
        (
            with_filter(FilterTypeMessage::Unspecified, "", &["a"]),
            "type: is 0, expected one of the named values",
        ),
    ] {
        assert_eq!(
            message(&request),
            format!("queries[0].metric.filters[0].{expected}")
        );
    }
}

#[test]
fn more_filters_than_are_allowed_are_refused() {
    let mut request = with_filter(FilterTypeMessage::Wildcard, "web*", &[]);
    let Some(SourceMessage::Metric(source)) = &mut request.queries[0].source else {
        panic!("the source is not a metric")
    };
    source.filters = vec![source.filters[0].clone(); 100];
    assert!(query(&request, NOW).is_ok());
    if let Some(SourceMessage::Metric(source)) = &mut request.queries[0].source {
        source.filters.push(source.filters[0].clone());
    }
    assert_eq!(
        message(&request),
        "queries[0].metric.filters: has 101 items, at most 100 are allowed"
    );
}
