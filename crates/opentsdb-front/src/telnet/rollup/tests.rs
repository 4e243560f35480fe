//! Rollups over a socket.

use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::Service;
use uid_service::UidSettings;

const CONFIG: &str = r#"{"aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3}, "intervals": [
    {"table": "tsdb", "preAggregationTable": "r1m-agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
    {"table": "r1h", "preAggregationTable": "r1h-agg", "interval": "1h", "rowSpan": "1d"}]}"#;

/// Lines and the replies of OpenTSDB 2.4.1 to them; empty: it has none.
const RECORDED: &[(&str, &str)] = &[
    ("rollup 1h-sum m 1356998400 1 host=a", ""),
    ("rollup 1h:sum m 1356998400 2 host=b", ""),
    ("rollup 1h:sum:max m 1356998400 3 host=c", ""),
    ("rollup 1h-sum:max m 1356998400 4 host=d", ""),
    ("rollup sum m 1356998400 5 host=e", ""),
    (
        "rollup",
        "rollup: illegal argument: not enough arguments (need least 7, got 0)",
    ),
    (
        "rollup 1h-sum",
        "rollup: illegal argument: not enough arguments (need least 7, got 1)",
    ),
    (
        "rollup 1h-sum m",
        "rollup: illegal argument: not enough arguments (need least 7, got 2)",
    ),
    (
        "rollup 1h-sum m 1356998400",
        "rollup: illegal argument: not enough arguments (need least 7, got 3)",
    ),
    (
        "rollup 1h-sum m 1356998400 1",
        "rollup: illegal argument: not enough arguments (need least 7, got 4)",
    ),
    (
        "rollup 1h-sum  1356998400 1 host=a",
        "rollup: illegal argument: empty metric name",
    ),
    (
        "rollup 1h-sum m 0 1 host=a",
        "rollup: illegal argument: invalid timestamp: 0",
    ),
    (
        "rollup 1h-sum m x 1 host=a",
        "rollup: invalid value: Invalid character 'x' in x",
    ),
    (
        "rollup 1h-sum m 1356998400 x host=a",
        "rollup: invalid value: Invalid character 'x' in x",
    ),
    (
        "rollup 1h-sum m 1356998400  host=a",
        "rollup: illegal argument: empty value",
    ),
    (
        "rollup 1h-sum m 1356998400000 1 host=a",
        "rollup: illegal argument: bad timestamp=1356998400000 when trying to add value=[1]/0 to metric=m, tags={host=a}",
    ),
    (
        "rollup 1h-avg m 1356998400 1 host=a",
        "rollup: illegal argument: No ID found mapping to aggregator: avg",
    ),
    (
        "rollup 5m-sum m 1356998400 1 host=a",
        "rollup: No such rollup: No rollups configured for the interval: 5m",
    ),
    (
        "rollup 1h m 1356998400 1 host=a",
        "rollup: illegal argument: Invalid group by aggregator 1h with metric m {_aggregate=1H, host=a}",
    ),
    (
        "rollup  m 1356998400 1 host=a",
        "rollup: illegal argument: Missing interval or aggregator",
    ),
    (
        "rollup 1h-sum:avg m 1356998400 1 host=a",
        "rollup: illegal argument: Derived group by aggregations are not allowed avg with metric m {_aggregate=AVG, host=a}",
    ),
    (
        "rollup 1h-sum:foo m 1356998400 1 host=a",
        "rollup: illegal argument: Invalid group by aggregator foo with metric m {_aggregate=FOO, host=a}",
    ),
    (
        "rollup foo m 1356998400 1 host=a",
        "rollup: illegal argument: Invalid group by aggregator foo with metric m {_aggregate=FOO, host=a}",
    ),
    (
        "rollup 1h-sum m 1356998400 1 host",
        "rollup: illegal argument: invalid tag: host",
    ),
    (
        "rollup 1h-sum m 1356998400 1 host=a host=b",
        "rollup: illegal argument: duplicate tag: host=b, tags={host=a}",
    ),
    (
        "rollup 1h-sum m! 1356998400 1 host=a",
        "rollup: illegal argument: Invalid metric name (\"m!\"): illegal character: ! (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
    ),
    (
        "rollup 1h-sum:max m 1356998400 1 host=a _aggregate=SUM",
        "rollup: illegal argument: Given tag value for _aggregate of SUM did not match the group by aggregator of max for m {_aggregate=SUM, host=a}",
    ),
    ("rollup 1h-sum:max m 1357002000 1 host=a _aggregate=max", ""),
    (
        "rollup 1h-sum m 1356998400 1 host=a _aggregate=SUM",
        "rollup: illegal argument: Given tag value for _aggregate of SUM did not match the group by aggregator of null for m {_aggregate=SUM, host=a}",
    ),
    ("rollup 1h-SUM m 1356998400 9 host=f", ""),
    ("rollup 1h-sum m 1356998405 3.5 host=g", ""),
    (
        "rollup 1h-sum m 1356998400 NaN host=a",
        "rollup: invalid value: Invalid character 'N' in NaN",
    ),
    (
        "rollup 1h-sum-zero m 1356998400 1 host=h",
        "rollup: illegal argument: No ID found mapping to aggregator: sum-zero",
    ),
    ("rollup 1h:sum:max:min m 1356998400 1 host=i", ""),
    ("rollup 1h-sum: m 1356998400 1 host=j", ""),
    ("rollup :sum m 1356998400 1 host=k", ""),
    (
        "rollup 1h- m 1356998400 1 host=l",
        "rollup: illegal argument: Aggregator cannot be null or empty.",
    ),
    (
        "rollup -sum m 1356998400 1 host=n",
        "rollup: HBase error: Interval cannot be null for a non-group by point",
    ),
    (
        "rollup 1h-sum m 1356998400 1 host=a a=b c=d e=f g=h i=j k=l m=n o=p",
        "rollup: illegal argument: Too many tags: 9 maximum allowed: 8, tags: {a=b, c=d, e=f, g=h, host=a, i=j, k=l, m=n, o=p}",
    ),
    (
        "rollup 1h-sum m 99999999999 1 host=a",
        "rollup: illegal argument: bad timestamp=99999999999 when trying to add value=[1]/0 to metric=m, tags={host=a}",
    ),
    (
        "rollup 1h-sum m 1356998400 1 ",
        "rollup: illegal argument: Need at least one tag (metric=m, tags={})",
    ),
    (
        "rollup 1h:sum m 1356998400 1 host=a extra",
        "rollup: illegal argument: invalid tag: extra",
    ),
];

async fn service() -> Service {
    let mut settings = DataSettings::default();
    settings.rollups.rollups_config = Some(CONFIG.to_owned());
    Service::start_with(settings, UidSettings::default()).await
}

/// A reply with its tags in order: OpenTSDB prints them in the order of a hash table.
fn with_sorted_tags(reply: &str) -> String {
    let Some((before, rest)) = reply.split_once('{') else {
        return reply.to_owned();
    };
    let (tags, behind) = rest.split_once('}').unwrap_or((rest, ""));
    let mut tags: Vec<_> = tags.split(", ").collect();
    tags.sort_unstable();
    format!("{before}{{{}}}{behind}", tags.join(", "))
}

#[tokio::test]
async fn replies_as_opentsdb() {
    let service = service().await;
    for (line, expected) in RECORDED {
        let reply = service.telnet(&format!("{line}\n")).await;
        let reply = reply.trim_end_matches('\n');
        assert_eq!(with_sorted_tags(reply), with_sorted_tags(expected), "{line}");
    }
    // The same cells: by table, their qualifiers and values.
    for (table, expected) in [
        (
            "r1h",
            &["000000 01", "000000 01", "000000 09", "00000b 40600000"][..],
        ),
        ("r1h-agg", &["000000 04", "000010 01"]),
        (
            "r1m-agg",
            &["0000 01", "0000 01", "0000 02", "0000 03", "0000 05"],
        ),
        ("tsdb", &[]),
    ] {
        let cells = oxtsdb_test_stack::cells(&service.store, table).await;
        let mut cells: Vec<_> = cells.iter().filter_map(|cell| cell.split_once(" t:")).collect();
        cells.sort_by_key(|(_, cell)| *cell);
        let cells: Vec<_> = cells.into_iter().map(|(_, cell)| cell).collect();
        assert_eq!(cells, expected, "{table}");
    }
}

#[tokio::test]
async fn lines_of_all_kinds_keep_their_order() {
    let service = service().await;
    let reply = service
        .telnet("rollup 5m-sum m 1356998400 1 host=a\nput m 0 1 host=a\nrollup 1h-avg m 1356998400 1 host=a\nfoo\n")
        .await;
    let lines: Vec<_> = reply.lines().collect();
    assert_eq!(lines.len(), 4, "{reply}");
    for (line, expected) in lines.iter().zip([
        "rollup: No such",
        "put: illegal",
        "rollup: illegal",
        "unknown command",
    ]) {
        assert!(line.starts_with(expected), "{reply}");
    }
}

#[tokio::test]
async fn rollups_need_their_configuration() {
    let service = Service::start().await;
    let reply = service.telnet("rollup 1h-sum m 1356998400 1 host=a\n").await;
    assert_eq!(
        reply,
        "rollup: illegal argument: No rollup or aggregations were configured\n"
    );
}
