//! Whole results.

use std::collections::BTreeMap;

use super::{ExpressionFrame, ExpressionSeries, Points, QueryFrame, Series, Statistics};
use crate::{Annotation, Error, Results, Timestamp, Value};

/// A series with all its points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesPoints<S = Series> {
    /// The series.
    pub series: S,
    /// In order of time.
    pub points: Vec<(Timestamp, Value)>,
}

/// A whole result of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryResult {
    /// The groups by sub-query, and within one in the order of their numbers.
    pub series: Vec<SeriesPoints>,
    /// The annotations of groups, if requested, by the numbers of the groups.
    pub annotations: BTreeMap<u32, Vec<Annotation>>,
    /// The global annotations, if requested.
    pub global_annotations: Vec<Annotation>,
    /// Statistics of the query.
    pub statistics: Statistics,
}

/// A whole result of expressions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpressionResult {
    /// The series in the order of their numbers.
    pub series: Vec<SeriesPoints<ExpressionSeries>>,
    /// Statistics of the query.
    pub statistics: Statistics,
}

impl Results<QueryFrame> {
    /// The whole result.
    ///
    /// # Errors
    ///
    /// If the stream ends before its last frame: a part is not the result.
    pub async fn into_result(mut self) -> Result<QueryResult, Error> {
        let mut collected = Collected::default();
        let mut statistics = Statistics::default();
        let (mut annotations, mut global_annotations) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        while let Some(frame) = self.next().await? {
            match frame {
                QueryFrame::Series(series) => collected.add(series.number, series),
                QueryFrame::Points(points) => collected.extend(&points)?,
                QueryFrame::Annotations {
                    series,
                    annotations: frame_annotations,
                } => match series {
                    Some(series) => annotations.entry(series).or_default().extend(frame_annotations),
                    None => global_annotations.extend(frame_annotations),
                },
                QueryFrame::Done { .. } => {}
                QueryFrame::Statistics(last) => statistics = last,
            }
        }
        let mut series = collected.finish();
        series.sort_by_key(|series| series.series.query);
        Ok(QueryResult {
            series,
            annotations,
            global_annotations,
            statistics,
        })
    }
}

impl Results<ExpressionFrame> {
    /// The whole result.
    ///
    /// # Errors
    ///
    /// If the stream ends before its last frame: a part is not the result.
    pub async fn into_result(mut self) -> Result<ExpressionResult, Error> {
        let mut collected = Collected::default();
        let mut statistics = Statistics::default();
        while let Some(frame) = self.next().await? {
            match frame {
                ExpressionFrame::Series(series) => collected.add(series.number, series),
                ExpressionFrame::Points(points) => collected.extend(&points)?,
                ExpressionFrame::Done { .. } => {}
                ExpressionFrame::Statistics(last) => statistics = last,
            }
        }
        Ok(ExpressionResult {
            series: collected.finish(),
            statistics,
        })
    }
}

/// Series by their numbers.
#[derive(Debug)]
struct Collected<S>(BTreeMap<u32, SeriesPoints<S>>);

impl<S> Default for Collected<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S> Collected<S> {
    fn add(&mut self, number: u32, series: S) {
        let points = Vec::new();
        self.0.insert(number, SeriesPoints { series, points });
    }

    fn extend(&mut self, points: &Points) -> Result<(), Error> {
        let undeclared = || Error::protocol(format!("points of undeclared series {}", points.series));
        let series = self.0.get_mut(&points.series).ok_or_else(undeclared)?;
        series.points.extend(points.iter());
        Ok(())
    }

    fn finish(self) -> Vec<SeriesPoints<S>> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::super::Values;
    use super::*;

    fn points(series: u32, seconds: &[i64], values: Values) -> QueryFrame {
        QueryFrame::Points(Points {
            series,
            timestamps: seconds
                .iter()
                .map(|second| Timestamp::from_seconds(*second))
                .collect(),
            values,
        })
    }

    fn series(number: u32, query: u32) -> QueryFrame {
        QueryFrame::Series(Series {
            number,
            query,
            ..Series::default()
        })
    }

    fn results(frames: Vec<QueryFrame>) -> Results<QueryFrame> {
        Results::from_stream(stream::iter(frames.into_iter().map(Ok))).ending_with(QueryFrame::is_last)
    }

    #[tokio::test]
    async fn frames_of_several_groups_may_be_interleaved() {
        let result = results(vec![
            series(0, 1),
            series(1, 0),
            points(0, &[1, 2], Values::Ints(vec![1, 2])),
            points(1, &[5], Values::Doubles(vec![0.5])),
            points(0, &[3], Values::Doubles(vec![2.5])),
            QueryFrame::Statistics(Statistics::default()),
        ]);
        let all_series = result.into_result().await.unwrap().series;
        let numbers: Vec<u32> = all_series.iter().map(|series| series.series.number).collect();
        assert_eq!(numbers, [1, 0], "by sub-query");
        let at = Timestamp::from_seconds;
        assert_eq!(
            all_series[1].points,
            [
                (at(1), Value::Int(1)),
                (at(2), Value::Int(2)),
                (at(3), Value::Double(2.5))
            ]
        );
    }

    #[tokio::test]
    async fn partial_results_are_errors() {
        let error = results(vec![series(0, 0)]).into_result().await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
        assert!(!error.is_retry_safe());
    }

    #[tokio::test]
    async fn points_of_undeclared_series_are_errors() {
        let frames = vec![points(7, &[1], Values::Ints(vec![1]))];
        let error = results(frames).into_result().await.unwrap_err();
        assert!(error.to_string().contains("undeclared series 7"), "{error}");
    }
}
