//! Results as text: tables for people, JSON and CSV for programs.

use comfy_table::{CellAlignment, Table, presets};
use jiff::tz::TimeZone;
use oxtsdb_client::Value;

use super::result::{Series, text};
use crate::time_zone;

/// OpenTSDB's `/api/query` response: a JSON array with one element for each group. Keys of `dps` are
/// seconds, or milliseconds with `milliseconds`; NaN is the text "NaN".
pub(super) fn json(series: &[Series], milliseconds: bool) -> String {
    let elements: Vec<String> = series
        .iter()
        .map(|series| element(series, milliseconds))
        .collect();
    format!("[{}]\n", elements.join(","))
}

fn element(series: &Series, milliseconds: bool) -> String {
    let tags = series.tags.iter();
    let tags: Vec<String> = tags
        .map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)))
        .collect();
    let aggregate_tags: Vec<String> = series.aggregate_tags.iter().map(|key| quoted(key)).collect();
    let points: Vec<String> = series
        .points
        .iter()
        .map(|(timestamp_ms, value)| {
            let key = if milliseconds {
                *timestamp_ms
            } else {
                timestamp_ms.div_euclid(1000)
            };
            format!("\"{key}\":{}", json_number(*value))
        })
        .collect();
    format!(
        "{{\"metric\":{},\"tags\":{{{}}},\"aggregateTags\":[{}],\"dps\":{{{}}}}}",
        quoted(&series.metric),
        tags.join(","),
        aggregate_tags.join(","),
        points.join(",")
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn json_number(value: Value) -> String {
    match value {
        Value::Double(double) if !double.is_finite() => quoted(&text(value)),
        _ => text(value),
    }
}

/// Lines `metric,tags,timestamp_ms,time,value` after a line with these words; tags as
/// `host=web01 dc=lga`.
///
/// # Errors
///
/// Never: memory can be written.
pub(super) fn csv(series: &[Series], zone: &TimeZone) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["metric", "tags", "timestamp_ms", "time", "value"])?;
    for series in series {
        let tags = tags(series, " ");
        for (timestamp_ms, value) in &series.points {
            let time = time_zone::show(*timestamp_ms, zone);
            let timestamp_ms = timestamp_ms.to_string();
            let value = text(*value);
            writer.write_record([&series.metric, &tags, &timestamp_ms, &time, &value])?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// A heading and a table for each group.
pub(super) fn table(series: &[Series], zone: &TimeZone) -> String {
    if series.is_empty() {
        return "no series\n".to_owned();
    }
    let tables = series.iter().map(|series| {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_FULL_CONDENSED)
            .set_header(["time", "value"]);
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for (timestamp_ms, value) in &series.points {
            table.add_row([time_zone::show(*timestamp_ms, zone), text(*value)]);
        }
        format!("{}\n{table}\n", heading(series))
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// `metric{host=web01}`, how many points, and which tags were aggregated.
pub(super) fn heading(series: &Series) -> String {
    let aggregated = if series.aggregate_tags.is_empty() {
        String::new()
    } else {
        format!(", aggregated over {}", series.aggregate_tags.join(", "))
    };
    let count = series.points.len();
    let points = if count == 1 { "point" } else { "points" };
    format!(
        "{}{{{}}}: {count} {points}{aggregated}",
        series.metric,
        tags(series, ",")
    )
}

fn tags(series: &Series, separator: &str) -> String {
    let tags = series.tags.iter().map(|(key, value)| format!("{key}={value}"));
    tags.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<Series> {
        vec![Series {
            metric: "sys.cpu.nice".to_owned(),
            tags: [("host", "web01"), ("dc", "lga")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            aggregate_tags: vec!["core".to_owned()],
            points: vec![
                (1_346_846_400_000, Value::Int(18)),
                (1_346_846_410_500, Value::Double(2.5)),
                (1_346_846_420_000, Value::Double(f64::NAN)),
            ],
        }]
    }

    #[test]
    fn json_has_opentsdbs_format() {
        assert_eq!(
            json(&example(), false),
            "[{\"metric\":\"sys.cpu.nice\",\"tags\":{\"dc\":\"lga\",\"host\":\"web01\"},\"aggregateTags\":[\"core\"],\
             \"dps\":{\"1346846400\":18,\"1346846410\":2.5,\"1346846420\":\"NaN\"}}]\n"
        );
        assert!(json(&example(), true).contains("\"1346846410500\":2.5"));
        assert_eq!(json(&[], false), "[]\n");
        let parsed: serde_json::Value = serde_json::from_str(&json(&example(), true)).unwrap();
        assert_eq!(parsed[0]["dps"]["1346846400000"], 18);
    }

    #[test]
    fn csv_has_a_line_for_each_point() {
        assert_eq!(
            csv(&example(), &TimeZone::UTC).unwrap(),
            "metric,tags,timestamp_ms,time,value\n\
             sys.cpu.nice,dc=lga host=web01,1346846400000,2012-09-05 12:00:00Z,18\n\
             sys.cpu.nice,dc=lga host=web01,1346846410500,2012-09-05 12:00:10.500Z,2.5\n\
             sys.cpu.nice,dc=lga host=web01,1346846420000,2012-09-05 12:00:20Z,NaN\n"
        );
    }

    #[test]
    fn tables_have_a_heading_and_a_row_for_each_point() {
        let shown = table(&example(), &TimeZone::UTC);
        let mut lines = shown.lines();
        assert_eq!(
            lines.next(),
            Some("sys.cpu.nice{dc=lga,host=web01}: 3 points, aggregated over core")
        );
        assert!(lines.any(|line| line.contains("2012-09-05 12:00:10.500Z") && line.contains("2.5")));
        assert_eq!(table(&[], &TimeZone::UTC), "no series\n");
    }
}
