//! Compares stored points with the points sent, and reports the differences in a few lines.

use std::collections::BTreeMap;

use anyhow::bail;

use crate::opentsdb::{OpenTsdb, Tags};
use crate::random_points::Expected;
use crate::sample::Number;
use crate::{Tsdb, read_back};

/// Differences reported at most.
const NAMED: usize = 10;

/// The same with the types that OpenTSDB's queries give to values: an integer is one only where no floating
/// point number follows it in its series.
#[must_use]
pub fn as_opentsdb_returns(expected: &Expected) -> Expected {
    let answered = |points: &BTreeMap<i64, Number>| {
        let next = points.values().skip(1).map(Some).chain([None]);
        points
            .iter()
            .zip(next)
            .map(|((instant, value), next)| match next {
                Some(Number::Double(_)) => (*instant, Number::Double(value.as_f64())),
                _ => (*instant, *value),
            })
            .collect()
    };
    expected
        .iter()
        .map(|(series, points)| (series.clone(), answered(points)))
        .collect()
}

/// Checks that OpenTSDB's queries return the expected points of these metrics.
///
/// # Errors
///
/// The first differences, or OpenTSDB's error.
pub async fn check_opentsdb(
    opentsdb: &OpenTsdb,
    expected: &Expected,
    metrics: &[String],
) -> anyhow::Result<()> {
    let expected = as_opentsdb_returns(expected);
    for metric in metrics {
        let actual = opentsdb.series_of(metric).await?;
        check_series("OpenTSDB", &expected, metric, &actual)?;
    }
    Ok(())
}

/// Checks that OxTSDB's queries over gRPC return them, with the types with which they were sent.
///
/// # Errors
///
/// The first differences, or the server's error.
pub async fn check_oxtsdb(oxtsdb: &Tsdb, expected: &Expected, metrics: &[String]) -> anyhow::Result<()> {
    for metric in metrics {
        let actual = read_back::series_of(&mut oxtsdb.data(), metric).await?;
        check_series("OxTSDB", expected, metric, &actual)?;
    }
    Ok(())
}

/// Compares the series of a metric, point for point.
///
/// # Errors
///
/// The first differences.
pub fn check_series(
    who: &str,
    expected: &Expected,
    metric: &str,
    actual: &BTreeMap<Tags, Vec<(i64, Number)>>,
) -> anyhow::Result<()> {
    let mut differences = Vec::new();
    let expected: BTreeMap<&Tags, &BTreeMap<i64, Number>> = expected
        .iter()
        .filter(|((of, _), _)| of == metric)
        .map(|((_, tags), points)| (tags, points))
        .collect();
    for tags in actual.keys().filter(|tags| !expected.contains_key(tags)) {
        differences.push(format!("{tags:?} was never sent"));
    }
    for (tags, points) in expected {
        let Some(actual) = actual.get(tags) else {
            differences.push(format!("{tags:?} is missing"));
            continue;
        };
        compare_points(tags, points, actual, &mut differences);
    }
    if !differences.is_empty() {
        let count = differences.len();
        differences.truncate(NAMED);
        bail!(
            "{who}, `{metric}`: {count} differences, such as\n{}",
            differences.join("\n")
        );
    }
    Ok(())
}

fn compare_points(
    tags: &Tags,
    expected: &BTreeMap<i64, Number>,
    actual: &[(i64, Number)],
    differences: &mut Vec<String>,
) {
    let mut seen = BTreeMap::new();
    for (instant, value) in actual {
        if let Some(before) = seen.insert(*instant, *value) {
            differences.push(format!("{tags:?} at {instant}: {before} and {value}"));
        }
    }
    for (instant, value) in &seen {
        match expected.get(instant) {
            None => differences.push(format!("{tags:?} at {instant}: {value}, which was never sent")),
            Some(sent) if value == sent => {}
            Some(sent) => differences.push(format!("{tags:?} at {instant}: {value} in place of {sent}")),
        }
    }
    for (instant, sent) in expected {
        if !seen.contains_key(instant) {
            differences.push(format!("{tags:?} at {instant}: {sent} is missing"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(actual: &[(i64, Number)]) -> String {
        let tags = Tags::from([("host".to_owned(), "a".to_owned())]);
        let points = BTreeMap::from([(1, Number::Int(5)), (2, Number::Double(0.5))]);
        let expected = Expected::from([(("m".to_owned(), tags.clone()), points)]);
        let actual = BTreeMap::from([(tags, actual.to_vec())]);
        let result = check_series("test", &expected, "m", &actual);
        result.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn reports_missing_and_differing_points() {
        let (five, half) = ((1, Number::Int(5)), (2, Number::Double(0.5)));
        assert_eq!(differences(&[five, half]), "");
        assert!(differences(&[five]).ends_with("at 2: 0.5 is missing"));
        assert!(differences(&[five, half, half]).ends_with("0.5 and 0.5"));
        assert!(differences(&[five, half, (3, Number::Int(1))]).ends_with("1, which was never sent"));
        let as_double = [(1, Number::Double(5.0)), half];
        assert!(differences(&as_double).ends_with("at 1: 5.0 in place of 5"));
    }

    #[test]
    fn an_integer_before_a_double_becomes_a_double() {
        let points = |values: [Number; 3]| BTreeMap::from([(1, values[0]), (2, values[1]), (3, values[2])]);
        let series = ("m".to_owned(), Tags::new());
        let sent = Expected::from([(
            series.clone(),
            points([Number::Int(1), Number::Double(2.5), Number::Int(3)]),
        )]);
        let answered = Expected::from([(
            series,
            points([Number::Double(1.0), Number::Double(2.5), Number::Int(3)]),
        )]);
        assert_eq!(as_opentsdb_returns(&sent), answered);
    }
}
