//! Query plans as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use oxtsdb_proto::data::v1::QueryPlan;
use oxtsdb_proto::data::v1::query_plan::{AccessPath, Accuracy, Condition, Estimate, Filter};

/// A block of lines for each plan.
pub(super) fn text(plans: &[QueryPlan]) -> String {
    let mut text = String::new();
    for (index, plan) in plans.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        for (what, value) in lines(plan) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{what:12}{value}");
        }
    }
    text
}

fn lines(plan: &QueryPlan) -> Vec<(&'static str, String)> {
    let metric = if plan.metric.is_empty() {
        "(TSUIDs)"
    } else {
        &plan.metric
    };
    let mut lines = vec![
        ("metric", metric.to_owned()),
        (
            "hours",
            format!(
                "{}, {} to {}",
                plan.hours,
                instant(plan.start_ms),
                instant(plan.stop_ms)
            ),
        ),
        (
            "access",
            format!("{}: {}", access_path(plan.access_path()), plan.reason),
        ),
    ];
    for range in &plan.ranges {
        let (start, stop) = (
            hex::encode_upper(&range.start_key),
            hex::encode_upper(&range.stop_key),
        );
        lines.push(("range", format!("{start} to {stop}")));
    }
    lines.extend(plan.filters.iter().map(|shown| ("filter", filter(shown))));
    if let Some(tags) = plan.exact_tags {
        lines.push(("tags", format!("exactly {tags}")));
    }
    if !plan.group_by_tagk_uids.is_empty() {
        let keys: Vec<String> = plan.group_by_tagk_uids.iter().map(hex::encode_upper).collect();
        lines.push(("groups by", format!("tagk {}", keys.join(", "))));
    }
    if let Some(first_ms) = plan.first_interval_ms {
        let mut windows = format!("from {}", instant(first_ms));
        if plan.filled_intervals > 0 {
            let _ = write!(windows, ", {} filled for each series", plan.filled_intervals);
        }
        lines.push(("windows", windows));
    }
    lines.push(("series", figure(plan.series.as_ref())));
    lines.push(("rows", figure(plan.rows.as_ref())));
    lines.push(("bytes", figure(plan.bytes.as_ref())));
    if let Some(points) = &plan.points {
        let [in_memory, blocks, files] =
            [&plan.memory_points, &plan.blocks, &plan.files].map(|of| figure(of.as_ref()));
        let points = figure(Some(points));
        lines.push((
            "points",
            format!("{points}; {in_memory} in memory, {blocks} blocks in {files} files"),
        ));
    }
    lines
}

fn access_path(path: AccessPath) -> &'static str {
    match path {
        AccessPath::Unspecified => "unknown",
        AccessPath::SingleRows => "single rows",
        AccessPath::SeriesSeek => "scan that seeks from series to series",
        AccessPath::SkipScan => "scan that skips keys that cannot match",
        AccessPath::FullScan => "scan of all rows",
        AccessPath::Columns => "columns of series",
    }
}

fn filter(filter: &Filter) -> String {
    let key = format!("tagk {}", hex::encode_upper(&filter.tagk_uid));
    let mut values: Vec<String> = filter.tagv_uids.iter().map(hex::encode_upper).collect();
    if filter.tagv_count > values.len() as u64 {
        values.push(format!("... ({} in total)", filter.tagv_count));
    }
    let values = values.join(", ");
    match filter.condition() {
        Condition::Unspecified => key,
        Condition::HasKey => format!("{key}: any value"),
        Condition::AnyOf => format!("{key}: one of tagv {values}"),
        Condition::NoneOf => format!("{key}: none of tagv {values}"),
        Condition::Name => format!("{key}: filtered by name"),
        Condition::NameIfPresent => format!("{key}: filtered by name, if present"),
    }
}

fn figure(figure: Option<&Estimate>) -> String {
    let Some(figure) = figure else {
        return "unknown".to_owned();
    };
    let accuracy = match figure.accuracy() {
        Accuracy::Unspecified | Accuracy::Exact => "",
        Accuracy::UpperBound => "at most ",
        Accuracy::Extrapolated => "about ",
    };
    format!("{accuracy}{}", figure.value)
}

fn instant(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |instant| instant.to_string())
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::data::v1::query_plan::KeyRange;

    use super::*;

    #[test]
    fn plans_are_one_line_for_each_property() {
        let about = |value| Estimate {
            value,
            accuracy: Accuracy::Extrapolated.into(),
        };
        let plan = QueryPlan {
            metric: "sys.cpu.nice".to_owned(),
            start_ms: 1_356_998_400_000,
            stop_ms: 1_357_002_000_000,
            hours: 1,
            access_path: AccessPath::SkipScan.into(),
            reason: "the index is not used".to_owned(),
            ranges: vec![KeyRange {
                start_key: vec![0, 0, 1, 0x50].into(),
                stop_key: vec![0, 0, 1, 0x51].into(),
            }],
            filters: vec![Filter {
                tagk_uid: vec![0, 0, 2].into(),
                condition: Condition::AnyOf.into(),
                tagv_uids: vec![vec![0, 0, 7].into()],
                tagv_count: 3,
            }],
            rows: Some(about(12)),
            points: Some(about(700)),
            memory_points: Some(about(40)),
            blocks: Some(about(3)),
            files: Some(Estimate {
                value: 2,
                accuracy: Accuracy::UpperBound.into(),
            }),
            ..QueryPlan::default()
        };
        assert_eq!(
            text(&[plan]),
            "metric      sys.cpu.nice\n\
             hours       1, 2013-01-01T00:00:00Z to 2013-01-01T01:00:00Z\n\
             access      scan that skips keys that cannot match: the index is not used\n\
             range       00000150 to 00000151\n\
             filter      tagk 000002: one of tagv 000007, ... (3 in total)\n\
             series      unknown\n\
             rows        about 12\n\
             bytes       unknown\n\
             points      about 700; about 40 in memory, about 3 blocks in at most 2 files\n"
        );
    }
}
