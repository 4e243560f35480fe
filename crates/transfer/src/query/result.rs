//! Series of a result, as all output formats print them.

use std::collections::BTreeMap;

use oxtsdb_client::{
    Annotation, ExpressionResult, ExpressionSeries, QueryResult, SeriesPoints, Timestamp, Value,
};

/// A series with all its points.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Series {
    /// Metric name, or the alias of an expression.
    pub(super) metric: String,
    /// Tags that all series of the group share.
    pub(super) tags: BTreeMap<String, String>,
    /// Keys of the tags that differ.
    pub(super) aggregate_tags: Vec<String>,
    /// In order of time: milliseconds and value.
    pub(super) points: Vec<(i64, Value)>,
    /// In order of time.
    pub(super) annotations: Vec<Annotation>,
}

/// All that is printed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct QueryOutput {
    /// The series in their order.
    pub(super) series: Vec<Series>,
    /// The global annotations, in order of time.
    pub(super) global: Vec<Annotation>,
}

/// The series of a query, by sub-query.
pub(super) fn query_output(result: QueryResult) -> QueryOutput {
    let mut annotations = result.annotations;
    let series = result.series.into_iter();
    let series = series
        .map(|SeriesPoints { series, points }| Series {
            annotations: annotations.remove(&series.number).unwrap_or_default(),
            metric: series.metric,
            tags: series.tags,
            aggregate_tags: series.aggregate_tags,
            points: millis(points),
        })
        .collect();
    QueryOutput {
        series,
        global: result.global_annotations,
    }
}

/// The series of expressions, in the order of the outputs.
pub(super) fn expression_series(result: ExpressionResult, outputs: &[String]) -> Vec<Series> {
    let mut series = result.series;
    series.sort_by_key(|series| outputs.iter().position(|output| *output == series.series.output));
    let series = series.into_iter();
    series
        .map(|SeriesPoints { series, points }| named(series, millis(points)))
        .collect()
}

/// A series of an expression under its alias or, as in OpenTSDB, under the first of its metrics. A series with
/// an alias has no tags.
pub(super) fn named(series: ExpressionSeries, points: Vec<(i64, Value)>) -> Series {
    match series.alias {
        Some(alias) => Series {
            metric: alias,
            points,
            ..Series::default()
        },
        None => Series {
            metric: series.metrics.into_iter().next().unwrap_or_default(),
            tags: series.tags,
            aggregate_tags: series.aggregate_tags,
            points,
            ..Series::default()
        },
    }
}

fn millis(points: Vec<(Timestamp, Value)>) -> Vec<(i64, Value)> {
    let points = points.into_iter();
    points
        .map(|(timestamp, value)| (timestamp.millis(), value))
        .collect()
}

/// The value as OpenTSDB prints it.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::Int(int) => int.to_string(),
        Value::Double(double) => oxtsdb_schema::java::double_to_string(double),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(output: &str, alias: Option<&str>) -> SeriesPoints<ExpressionSeries> {
        SeriesPoints {
            series: ExpressionSeries {
                output: output.to_owned(),
                alias: alias.map(str::to_owned),
                metrics: vec!["a".to_owned(), "b".to_owned()],
                tags: [("host".to_owned(), "x".to_owned())].into(),
                aggregate_tags: vec!["dc".to_owned()],
                ..ExpressionSeries::default()
            },
            points: Vec::new(),
        }
    }

    #[test]
    fn aliases_replace_metric_and_tags() {
        let result = ExpressionResult {
            series: vec![series("e0", None), series("e1", Some("name"))],
            ..ExpressionResult::default()
        };
        let outputs = ["e1".to_owned(), "e0".to_owned()];
        let series = expression_series(result, &outputs);
        assert_eq!((series[0].metric.as_str(), series[0].tags.len()), ("name", 0));
        assert!(series[0].aggregate_tags.is_empty());
        assert_eq!(
            (series[1].metric.as_str(), series[1].tags.len()),
            ("a", 1),
            "second output"
        );
    }
}
