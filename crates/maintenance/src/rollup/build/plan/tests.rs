use oxtsdb_query::RollupRules;
use oxtsdb_schema::RollupConfig;

use super::*;

fn rollups(intervals: &str) -> std::sync::Arc<Rollups> {
    let config = format!(r#"{{"aggregationIds": {{"sum": 0, "max": 1}}, "intervals": [{intervals}]}}"#);
    Rollups::new(RollupConfig::parse(&config).unwrap(), RollupRules::default()).unwrap()
}

fn interval(interval: &str, span: &str) -> String {
    format!(r#"{{"table":"r","preAggregationTable":"p","interval":"{interval}","rowSpan":"{span}"}}"#)
}

fn plan(one: &str, span: &str, range: (u32, u32)) -> Result<BuildPlan, PlanError> {
    BuildPlan::new(
        Some(&rollups(&interval(one, span))),
        range,
        &[one.to_owned()],
        RowKeyLayout::default(),
    )
}

#[test]
fn windows_must_begin_where_intervals_of_rows_do() {
    for (one, span) in [
        ("1h", "1d"),
        ("5m", "1h"),
        ("1d", "1n"),
        ("4h", "1y"),
        ("5h", "60h"),
    ] {
        assert!(plan(one, span, (0, 1)).is_ok(), "{one} {span}");
    }
    for (one, span) in [("1w", "1y"), ("5h", "1n"), ("7m", "2h")] {
        let error = plan(one, span, (0, 1)).unwrap_err();
        assert!(
            matches!(error, PlanError::Unaligned { .. }),
            "{one} {span}: {error}"
        );
    }
    let error = plan("1s", "2h", (0, 1)).unwrap_err();
    assert!(
        matches!(error, PlanError::TooManyIntervals { intervals: 7200, .. }),
        "{error}"
    );
}

#[test]
fn aggregates_without_ids_are_left_out() {
    let plan = plan("1h", "1d", (0, 1)).unwrap();
    assert_eq!(plan.targets[0].ids, [("sum", 0), ("max", 1)]);
}

#[test]
fn chunks_cover_the_whole_intervals_of_the_range() {
    let day = DAY_SECONDS;
    let plan = plan("1h", "1d", (100, 3 * day + 100)).unwrap();
    let mut chunks = Vec::new();
    let mut from = plan.range.0;
    while let Some(chunk) = plan.chunk(from, day) {
        chunks.push(chunk);
        from = chunk.1;
    }
    assert_eq!(
        chunks,
        [
            (100, day),
            (day, 2 * day),
            (2 * day, 3 * day),
            (3 * day, 3 * day + 100)
        ]
    );
    assert_eq!(plan.points_of(chunks[0]), Some((3600, day)));
    assert_eq!(plan.points_of(chunks[1]), Some((day, 2 * day)));
    assert_eq!(plan.points_of(chunks[3]), None, "no hour is in the rest");
    assert_eq!(plan.chunks_before(u32::MAX, day), 4);
    assert_eq!(plan.chunks_before(100, day), 0);
    assert_eq!(plan.chunks_before(day, day), 1);
}
