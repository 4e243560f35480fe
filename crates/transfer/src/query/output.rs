//! Results as text: tables for people, JSON and CSV for programs.

use comfy_table::{CellAlignment, Table, presets};
use jiff::tz::TimeZone;
use oxtsdb_client::{Annotation, Value};
use oxtsdb_command::annotations::{json_object, lines};
use oxtsdb_command::time_zone;

use super::result::{QueryOutput, Series, text};

/// OpenTSDB's `/api/query` response: a JSON array with one element for each group. Keys of `dps` are
/// seconds, or milliseconds with `milliseconds`; NaN is the text "NaN".
pub(super) fn json(result: &QueryOutput, milliseconds: bool) -> String {
    let global = member("globalAnnotations", &result.global);
    let elements: Vec<String> = result
        .series
        .iter()
        .map(|series| element(series, &global, milliseconds))
        .collect();
    format!("[{}]\n", elements.join(","))
}

fn element(series: &Series, global: &str, milliseconds: bool) -> String {
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
        "{{\"metric\":{},\"tags\":{{{}}},\"aggregateTags\":[{}],{}{global}\"dps\":{{{}}}}}",
        quoted(&series.metric),
        tags.join(","),
        aggregate_tags.join(","),
        member("annotations", &series.annotations),
        points.join(",")
    )
}

/// A member with annotations and the comma behind it; empty without annotations.
fn member(name: &str, annotations: &[Annotation]) -> String {
    if annotations.is_empty() {
        return String::new();
    }
    let annotations: Vec<String> = annotations.iter().map(json_object).collect();
    format!("\"{name}\":[{}],", annotations.join(","))
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

/// A heading and a table for each group, and the annotations.
pub(super) fn table(result: &QueryOutput, zone: &TimeZone) -> String {
    if result.series.is_empty() {
        return format!("no series\n{}", notes("global annotations", &result.global, zone));
    }
    let tables = result.series.iter().map(|series| {
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
        let notes = notes("annotations", &series.annotations, zone);
        format!("{}\n{table}\n{notes}", heading(series))
    });
    let tables = tables.collect::<Vec<_>>().join("\n");
    tables + &notes("global annotations", &result.global, zone)
}

/// A heading and a line for each annotation, indented; empty without annotations.
pub(super) fn notes(heading: &str, annotations: &[Annotation], zone: &TimeZone) -> String {
    if annotations.is_empty() {
        return String::new();
    }
    let lines = lines(annotations, zone);
    let lines: Vec<String> = lines.lines().map(|line| format!("  {line}\n")).collect();
    format!("{heading}:\n{}", lines.concat())
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

pub(super) fn tags(series: &Series, separator: &str) -> String {
    let tags = series.tags.iter().map(|(key, value)| format!("{key}={value}"));
    tags.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::Timestamp;

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
            annotations: Vec::new(),
        }]
    }

    fn output(series: Vec<Series>) -> QueryOutput {
        QueryOutput {
            series,
            global: Vec::new(),
        }
    }

    fn annotation(seconds: i64, description: &str) -> Annotation {
        Annotation {
            tsuid: Vec::new().into(),
            start: Timestamp::from_seconds(seconds),
            end: None,
            description: description.to_owned(),
            notes: String::new(),
            custom: std::collections::BTreeMap::new(),
            etag: String::new(),
        }
    }

    #[test]
    fn annotations_are_listed_with_their_series_and_global_ones_once() {
        let mut result = output(example());
        result.series[0]
            .annotations
            .push(annotation(1_346_846_405, "deploy"));
        result.global.push(annotation(1_346_846_407, "outage"));
        let shown = table(&result, &TimeZone::UTC);
        assert!(
            shown.ends_with(
                "annotations:\n  2012-09-05 12:00:05Z\t\tdeploy\nglobal annotations:\n  2012-09-05 12:00:07Z\t\toutage\n"
            ),
            "{shown}"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json(&result, false)).unwrap();
        assert_eq!(parsed[0]["annotations"][0]["description"], "deploy");
        assert_eq!(parsed[0]["globalAnnotations"][0]["startTime"], 1_346_846_407);
    }

    #[test]
    fn json_has_opentsdbs_format() {
        assert_eq!(
            json(&output(example()), false),
            "[{\"metric\":\"sys.cpu.nice\",\"tags\":{\"dc\":\"lga\",\"host\":\"web01\"},\"aggregateTags\":[\"core\"],\
             \"dps\":{\"1346846400\":18,\"1346846410\":2.5,\"1346846420\":\"NaN\"}}]\n"
        );
        assert!(json(&output(example()), true).contains("\"1346846410500\":2.5"));
        assert_eq!(json(&QueryOutput::default(), false), "[]\n");
        let parsed: serde_json::Value = serde_json::from_str(&json(&output(example()), true)).unwrap();
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
        let shown = table(&output(example()), &TimeZone::UTC);
        let mut lines = shown.lines();
        assert_eq!(
            lines.next(),
            Some("sys.cpu.nice{dc=lga,host=web01}: 3 points, aggregated over core")
        );
        assert!(lines.any(|line| line.contains("2012-09-05 12:00:10.500Z") && line.contains("2.5")));
        assert_eq!(table(&QueryOutput::default(), &TimeZone::UTC), "no series\n");
    }
}
