//! Rows and cells as text.

use jiff::tz::TimeZone;
use oxtsdb_command::time_zone;
use oxtsdb_proto::data::v1::{CellType, CellView, StoredCell, StoredPoint, StoredRow, stored_point};
use oxtsdb_schema::java::double_to_string;

use super::names::SeriesName;

/// A row and its cells:
///
/// ```text
///   ROW_KEY <tab> METRIC <tab> BASE_TIME <tab> TIME <tab> TAGK=TAGV ...
///     QUALIFIER <tab> VALUE <tab> TYPE <tab> VERSION_MS [<tab> ! ERROR]
///       TIMESTAMP <tab> NUMBER
/// ```
///
/// Cells are indented by two blanks, points by four. Without names, METRIC is the TSUID, and there are no
/// tags. The decoded view has the line of a cell only if the cell cannot be decoded.
pub(super) fn row(row: &StoredRow, name: Option<&SeriesName>, view: CellView, zone: &TimeZone) -> String {
    let (metric, tags) = match name {
        Some(name) => (name.metric.clone(), tags(name)),
        None => (hex::encode_upper(&row.tsuid), String::new()),
    };
    let mut text = format!(
        "{}\t{metric}\t{}\t{}\t{tags}\n",
        hex::encode(&row.row_key),
        row.base_timestamp_ms.div_euclid(1000),
        time_zone::show(row.base_timestamp_ms, zone),
    );
    for cell in &row.cells {
        if view != CellView::Decoded || cell.points.is_empty() {
            text += &cell_line(cell);
        }
        for point in &cell.points {
            text += &format!("    {}\t{}\n", timestamp(point.timestamp_ms), number(point));
        }
    }
    text
}

fn cell_line(cell: &StoredCell) -> String {
    let error = cell.error.as_ref();
    let error = error.map_or_else(String::new, |error| format!("\t! {}", error.message));
    format!(
        "  {}\t{}\t{}\t{}{error}\n",
        hex::encode(&cell.qualifier),
        hex::encode(&cell.value),
        type_name(cell.r#type()),
        cell.version_ms,
    )
}

const fn type_name(cell: CellType) -> &'static str {
    match cell {
        CellType::Unspecified | CellType::Unknown => "unknown",
        CellType::Point => "point",
        CellType::Compacted => "compacted",
        CellType::Appended => "appended",
        CellType::Annotation => "annotation",
        CellType::Histogram => "histogram",
        CellType::Rollup => "rollup",
    }
}

/// The points of a row as lines for `tsdb import`, and how many have no such line: points that are NaN or
/// infinite, and cells without points.
pub(super) fn import_lines(row: &StoredRow, name: &SeriesName) -> (String, u64) {
    let mut text = String::new();
    let mut left_out = 0;
    for cell in &row.cells {
        if cell.points.is_empty() {
            left_out += 1;
        }
        for point in &cell.points {
            match point.value {
                Some(stored_point::Value::DoubleValue(double)) if !double.is_finite() => left_out += 1,
                None => left_out += 1,
                Some(_) => {
                    let timestamp = timestamp(point.timestamp_ms);
                    text += &format!("{} {timestamp} {} {}\n", name.metric, number(point), tags(name));
                }
            }
        }
    }
    (text, left_out)
}

fn tags(name: &SeriesName) -> String {
    let tags = name.tags.iter().map(|(key, value)| format!("{key}={value}"));
    tags.collect::<Vec<_>>().join(" ")
}

/// Whole seconds; otherwise milliseconds, with a dot if they could be read as seconds.
fn timestamp(timestamp_ms: i64) -> String {
    if timestamp_ms % 1000 == 0 {
        return (timestamp_ms / 1000).to_string();
    }
    if timestamp_ms > i64::from(u32::MAX) {
        return timestamp_ms.to_string();
    }
    format!(
        "{}.{:03}",
        timestamp_ms.div_euclid(1000),
        timestamp_ms.rem_euclid(1000)
    )
}

fn number(point: &StoredPoint) -> String {
    match point.value {
        Some(stored_point::Value::IntValue(int)) => int.to_string(),
        Some(stored_point::Value::DoubleValue(double)) => double_to_string(double),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::common::v1::ItemError;

    use super::*;

    fn point(timestamp_ms: i64, value: stored_point::Value) -> StoredPoint {
        StoredPoint {
            timestamp_ms,
            value: Some(value),
        }
    }

    fn name() -> SeriesName {
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        SeriesName {
            metric: "sys.cpu.nice".to_owned(),
            tags: vec![tag("host", "web01"), tag("dc", "lga")],
            complete: true,
        }
    }

    fn example(cells: Vec<StoredCell>) -> StoredRow {
        StoredRow {
            row_key: hex::decode("00000150473ec0000001000001000002000002")
                .unwrap()
                .into(),
            tsuid: hex::decode("000001000001000001000002000002").unwrap().into(),
            base_timestamp_ms: 1_346_846_400_000,
            cells,
        }
    }

    fn good() -> StoredCell {
        StoredCell {
            qualifier: vec![0, 0].into(),
            value: vec![0x12].into(),
            version_ms: 7,
            r#type: CellType::Point as i32,
            points: vec![point(1_346_846_400_000, stored_point::Value::IntValue(18))],
            error: None,
        }
    }

    fn bad() -> StoredCell {
        StoredCell {
            qualifier: vec![9].into(),
            value: vec![1, 2].into(),
            version_ms: 8,
            error: Some(ItemError {
                message: "no such qualifier".to_owned(),
                ..ItemError::default()
            }),
            ..StoredCell::default()
        }
    }

    const HEAD: &str = "00000150473ec0000001000001000002000002\tsys.cpu.nice\t1346846400\t\
                        2012-09-05 12:00:00Z\thost=web01 dc=lga\n";

    #[test]
    fn views_show_cells_points_or_both() {
        let full = row(
            &example(vec![good(), bad()]),
            Some(&name()),
            CellView::Full,
            &TimeZone::UTC,
        );
        assert_eq!(
            full,
            format!(
                "{HEAD}  0000\t12\tpoint\t7\n    1346846400\t18\n  09\t0102\tunknown\t8\t! no such qualifier\n"
            )
        );
        let decoded = row(
            &example(vec![good(), bad()]),
            Some(&name()),
            CellView::Decoded,
            &TimeZone::UTC,
        );
        assert_eq!(
            decoded,
            format!("{HEAD}    1346846400\t18\n  09\t0102\tunknown\t8\t! no such qualifier\n")
        );
        let nameless = row(&example(Vec::new()), None, CellView::Raw, &TimeZone::UTC);
        assert!(
            nameless.contains("\t000001000001000001000002000002\t1346846400\t"),
            "{nameless}"
        );
    }

    #[test]
    fn import_lines_keep_timestamps_and_values() {
        let cell = StoredCell {
            points: vec![
                point(1_346_846_400_000, stored_point::Value::IntValue(18)),
                point(1_346_846_400_250, stored_point::Value::DoubleValue(42.0)),
                point(1_234_567, stored_point::Value::DoubleValue(1e-9)),
                point(1000, stored_point::Value::DoubleValue(f64::NAN)),
            ],
            ..StoredCell::default()
        };
        let (lines, left_out) = import_lines(&example(vec![cell, bad()]), &name());
        assert_eq!(
            lines,
            "sys.cpu.nice 1346846400 18 host=web01 dc=lga\n\
             sys.cpu.nice 1346846400250 42.0 host=web01 dc=lga\n\
             sys.cpu.nice 1234.567 1.0E-9 host=web01 dc=lga\n"
        );
        assert_eq!(left_out, 2);
    }
}
