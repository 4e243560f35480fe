//! Each of OpenTSDB's quirks, switched on and off.
use jiff::tz::TimeZone;
use oxtsdb_query::RequestContext;
use oxtsdb_query::language::{parse_metric_query, parse_tsuid_query};
use oxtsdb_query::{Engine, Group, QuerySpec, Quirks, SubQuery};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout};
use serde_json::{Value as Json, json};

use crate::tsdb::Tsdb;

/// 2013-01-01 00:00:00 UTC, an exact day.
const T: i64 = 1_356_998_400;
const DAY: i64 = 86_400;

/// Points of metric `m`: host, seconds since [`T`], value.
async fn engine(points: &[(&str, i64, Json)]) -> Engine {
    let tsdb = Tsdb::new(RowKeyLayout::default()).await;
    for (host, seconds, value) in points {
        let tags = json!({ "host": host });
        tsdb.put(&json!({"metric": "m", "timestamp": T + seconds, "value": value, "tags": tags}))
            .await;
    }
    tsdb.engine()
}

async fn groups(engine: &Engine, query: SubQuery, end: i64, quirks: Quirks) -> Vec<Group> {
    let spec = QuerySpec {
        start_ms: T * 1000,
        end_ms: (T + end) * 1000,
        sub_queries: vec![query],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: oxtsdb_query::AnnotationSelection::default(),
    };
    engine
        .collect(spec, RequestContext::default())
        .await
        .unwrap()
        .groups
}

/// Runs a query; returns for each group seconds since [`T`] and values.
async fn run(engine: &Engine, text: &str, end: i64, quirks: Quirks) -> Vec<Vec<(i64, f64)>> {
    let query = parse_metric_query(text, &TimeZone::UTC).unwrap();
    let points = |group: &Group| {
        let points = group.points.iter();
        points
            .map(|(time_ms, value)| (time_ms / 1000 - T, value.as_f64()))
            .collect()
    };
    groups(engine, query, end, quirks)
        .await
        .iter()
        .map(points)
        .collect()
}

#[tokio::test]
async fn rates_begin_at_the_epoch() {
    let points = [
        ("a", 0, json!(0)),
        ("a", 10, json!(100)),
        ("a", 20, json!(200)),
        ("b", 15, json!(50)),
        ("b", 25, json!(150)),
    ];
    let engine = engine(&points).await;
    let first = async |quirks| run(&engine, "sum:rate:m", 100, quirks).await[0][0];
    let on = Quirks {
        rates_begin_at_the_epoch: true,
        ..Quirks::NONE
    };
    assert_eq!(first(on).await, (10, 10.000_000_036_846_027));
    assert_eq!(first(Quirks::NONE).await, (10, 10.0));
}

#[tokio::test]
async fn floats_to_come_count() {
    let points = [
        ("a", 0, json!(1)),
        ("a", 10, json!(2)),
        ("b", 20, json!(0.5)),
        ("b", 30, json!(7)),
        ("b", 35, json!(1.5)),
        ("b", 40, json!(8)),
    ];
    let engine = engine(&points).await;
    let ints = async |text: &str, quirks| {
        let query = parse_metric_query(text, &TimeZone::UTC).unwrap();
        let groups = groups(&engine, query, 100, quirks).await;
        let points = groups.iter().flat_map(|group| group.points.iter());
        points.map(|(_, value)| value.is_int()).collect::<Vec<_>>()
    };
    let on = Quirks {
        floats_to_come_count: true,
        ..Quirks::NONE
    };
    let each = [true, true, false, true, false, true];
    assert_eq!(ints("sum:m", on).await, [false, false, false, false, false, true]);
    assert_eq!(ints("sum:m", Quirks::NONE).await, each);
    assert_eq!(ints("none:m", on).await, [true, true, false, false, false, true]);
    assert_eq!(ints("none:m", Quirks::NONE).await, each);
}

#[tokio::test]
async fn whole_range_excludes_end() {
    let engine = engine(&[("a", 0, json!(1)), ("a", 20, json!(2))]).await;
    let on = Quirks {
        whole_range_excludes_end: true,
        ..Quirks::NONE
    };
    assert_eq!(run(&engine, "sum:0all-sum:m", 20, on).await, [[(0, 1.0)]]);
    assert_eq!(
        run(&engine, "sum:0all-sum:m", 20, Quirks::NONE).await,
        [[(0, 3.0)]]
    );
}

#[tokio::test]
async fn calendar_follows_each_series() {
    // A day of the first week and one of the second.
    let points = [
        ("a", 0, 1),
        ("a", 20 * DAY, 2),
        ("b", 7 * DAY, 4),
        ("b", 20 * DAY, 8),
    ];
    let points = points.map(|(host, seconds, value)| (host, seconds, json!(value)));
    let engine = engine(&points).await;
    let on = Quirks {
        calendar_follows_each_series: true,
        ..Quirks::NONE
    };
    let points = async |quirks| run(&engine, "sum:2wc-sum:m{host=*}", 30 * DAY, quirks).await;
    // Sundays are the 5th, 12th and 19th day from 0.
    let own = [vec![(12 * DAY, 2.0)], vec![(5 * DAY, 4.0), (19 * DAY, 8.0)]];
    assert_eq!(points(on).await, own);
    let shared = [vec![(19 * DAY, 2.0)], vec![(5 * DAY, 4.0), (19 * DAY, 8.0)]];
    assert_eq!(points(Quirks::NONE).await, shared);
}

#[tokio::test]
async fn filled_windows_begin_early() {
    // A window of 6000 s starts 2400 s before 0; the scan starts an hour before 0.
    let points = [
        ("a", -2300, json!(-5)),
        ("a", 3700, json!(3)),
        ("a", 9700, json!(4)),
    ];
    let engine = engine(&points).await;
    let off = Quirks {
        rates_begin_at_the_epoch: true,
        ..Quirks::NONE
    };
    let on = Quirks {
        filled_windows_begin_early: true,
        ..off
    };
    let points = async |fill, quirks| {
        let text = format!("sum:rate{{dropcounter}}:100m-sum{fill}:m");
        run(&engine, &text, 12_000, quirks).await
    };
    let late = (9600, 1.0 / 6000.0);
    assert_eq!(points("-nan", on).await, [[(3600, 8.0 / 6000.0), late]]);
    assert_eq!(points("-nan", off).await, [[late]]);
    assert_eq!(points("", on).await, [[late]]);
}

#[tokio::test]
async fn explicit_tags_read_an_hour_more() {
    let points = [
        ("a", 0, json!(1)),
        ("a", 3601, json!(3)),
        ("b", 3600, json!(0.5)),
        ("c", 3601, json!(0.5)),
    ];
    let engine = engine(&points).await;
    let on = Quirks {
        explicit_tags_read_an_hour_more: true,
        ..Quirks::NONE
    };
    let points = async |text, quirks| run(&engine, text, 10, quirks).await;
    let explicit = "sum:explicit_tags:m{host=*}";
    assert_eq!(points(explicit, on).await, [vec![(0, 1.0)], vec![]]);
    assert_eq!(points(explicit, Quirks::NONE).await, [[(0, 1.0)]]);
    assert_eq!(points("sum:m{host=*}", on).await, [[(0, 1.0)]]);
    // A filled value does not go on.
    let filled = points("sum:explicit_tags:1h-sum-zero:m{host=*}", on).await;
    assert_eq!(filled, [[(0, 1.0)], [(0, 0.0)]]);
}

#[tokio::test]
async fn last_calendar_window_cut_short() {
    let (february, middle, end) = (33 * DAY, 43 * DAY, 50 * DAY);
    let points = [(0, 1), (february, 2), (middle, 4), (end, 8)];
    let points = points.map(|(seconds, value)| ("a", seconds, json!(value)));
    let engine = engine(&points).await;
    let on = Quirks {
        last_calendar_window_cut_short: true,
        ..Quirks::NONE
    };
    // Up to 10 February.
    let points = async |text: &str, quirks| run(&engine, text, 40 * DAY, quirks).await;
    assert_eq!(points("sum:1nc-sum:m", on).await, [[(0, 1.0), (31 * DAY, 6.0)]]);
    assert_eq!(points("sum:1nc-sum-zero:m", on).await, [[(0, 1.0)]]);
    for text in ["sum:1nc-sum:m", "sum:1nc-sum-zero:m"] {
        assert_eq!(points(text, Quirks::NONE).await, [[(0, 1.0), (31 * DAY, 14.0)]]);
    }
}

#[tokio::test]
async fn loose_globs() {
    let engine = engine(&[("web01", 0, json!(1)), ("eb0", 0, json!(2))]).await;
    let on = Quirks {
        loose_globs: true,
        ..Quirks::NONE
    };
    let points = async |quirks| run(&engine, "sum:m{}{host=wildcard(eb*0)}", 20, quirks).await;
    assert_eq!(points(on).await, [[(0, 3.0)]]);
    assert_eq!(points(Quirks::NONE).await, [[(0, 2.0)]]);
}

#[tokio::test]
async fn literals_of_a_key_add_up() {
    let engine = engine(&[("a", 0, json!(1)), ("b", 0, json!(2)), ("c", 0, json!(4))]).await;
    let on = Quirks {
        literals_of_a_key_add_up: true,
        ..Quirks::NONE
    };
    let points = async |text: &str, quirks| run(&engine, text, 20, quirks).await;
    assert_eq!(points("sum:m{}{host=a,host=b}", on).await, [[(0, 3.0)]]);
    assert!(points("sum:m{}{host=a,host=b}", Quirks::NONE).await.is_empty());
    assert_eq!(
        points("sum:m{}{host=a|c,host=b|c}", Quirks::NONE).await,
        [[(0, 4.0)]]
    );
    // Of a key that has not the lowest UID only the last filter applies.
    let tsdb = Tsdb::new(RowKeyLayout::default()).await;
    for (dc, host, value) in [("x", "a", 1), ("x", "b", 2), ("y", "b", 4)] {
        let tags = json!({"dc": dc, "host": host});
        tsdb.put(&json!({"metric": "m", "timestamp": T, "value": value, "tags": tags}))
            .await;
    }
    let engine = tsdb.engine();
    for (filters, sum) in [
        ("dc=*,host=a,host=b", 6.0),
        ("dc=*,host=a,host=*", 7.0),
        ("dc=*,host=*,host=a", 1.0),
        ("dc=x,dc=y,host=b", 6.0),
    ] {
        let text = format!("sum:m{{}}{{{filters}}}");
        assert_eq!(run(&engine, &text, 20, on).await, [[(0, sum)]], "{filters}");
    }
    let strict = run(&engine, "sum:m{}{dc=*,host=a,host=*}", 20, Quirks::NONE).await;
    assert_eq!(strict, [[(0, 1.0)]]);
}

#[tokio::test]
async fn estimates_of_integers_only() {
    let engine = engine(&[("a", 0, json!(100.5)), ("b", 0, json!(200.5))]).await;
    let on = Quirks {
        estimates_of_integers_only: true,
        ..Quirks::NONE
    };
    assert_eq!(run(&engine, "ep75r7:m", 20, on).await, [[(0, 200.5)]]);
    assert_eq!(run(&engine, "ep75r7:m", 20, Quirks::NONE).await, [[(0, 175.5)]]);
    // Downsampled values are always doubles.
    assert_eq!(
        run(&engine, "max:1m-ep75r7:m", 20, Quirks::NONE).await,
        [[(0, 200.5)]]
    );
}

#[tokio::test]
async fn tsuids_are_one_group() {
    let engine = engine(&[("a", 0, json!(1)), ("b", 0, json!(2))]).await;
    let on = Quirks {
        tsuids_are_one_group: true,
        ..Quirks::NONE
    };
    let mut query = parse_tsuid_query("sum:000001000001000001,000001000001000002", &TimeZone::UTC).unwrap();
    query.filter = parse_metric_query("sum:m{host=*}", &TimeZone::UTC)
        .unwrap()
        .filter;
    assert_eq!(groups(&engine, query.clone(), 20, on).await.len(), 1);
    assert_eq!(groups(&engine, query.clone(), 20, Quirks::NONE).await.len(), 2);

    // The filters hold in any case; no series has a tag that was never written.
    for (text, count) in [("sum:m{host=b}", 1), ("sum:m{host=c}", 0), ("sum:m{rack=*}", 0)] {
        query.filter = parse_metric_query(text, &TimeZone::UTC).unwrap().filter;
        for quirks in [on, Quirks::NONE] {
            assert_eq!(
                groups(&engine, query.clone(), 20, quirks).await.len(),
                count,
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn filters_of_tsuids_pass_without_their_key() {
    let engine = engine(&[("a", 0, json!(1)), ("b", 0, json!(2))]).await;
    let on = Quirks {
        filters_of_tsuids_pass_without_key: true,
        ..Quirks::NONE
    };
    let mut query = parse_tsuid_query("none:000001000001000001,000001000001000002", &TimeZone::UTC).unwrap();
    for (filter, with, without) in [
        ("rack=*", 2, 0),
        ("rack=not_literal_or(x)", 2, 0),
        ("rack=literal_or(x)", 0, 0),
        ("rack=regexp(.*)", 0, 0),
        ("host=not_literal_or(a)", 1, 1),
    ] {
        query.filter = parse_metric_query(&format!("none:m{{{filter}}}"), &TimeZone::UTC)
            .unwrap()
            .filter;
        for (quirks, count) in [(on, with), (Quirks::NONE, without)] {
            assert_eq!(
                groups(&engine, query.clone(), 20, quirks).await.len(),
                count,
                "{filter}"
            );
        }
    }
}
