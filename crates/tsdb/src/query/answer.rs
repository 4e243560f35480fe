//! The frames of an answer, put together.

use std::collections::BTreeMap;

use oxtsdb_proto::data::v1::query_expressions_response::{
    Frame as ExpressionFrame, Series as ExpressionSeries,
};
use oxtsdb_proto::data::v1::query_response::{Frame, Points};
use oxtsdb_proto::data::v1::{QueryExpressionsResponse, QueryResponse};
use tonic::{Code, Status, Streaming};

/// One group of series with all its points.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Series {
    /// Which question, from 0.
    pub(super) query: u32,
    /// Metric name.
    pub(super) metric: String,
    /// Tags that all series of the group share.
    pub(super) tags: BTreeMap<String, String>,
    /// Keys of the tags that differ.
    pub(super) aggregate_tags: Vec<String>,
    /// In order of time: milliseconds and value.
    pub(super) points: Vec<(i64, Number)>,
}

/// A value of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// An integer.
    Int(i64),
    /// A number; NaN where a fill policy put it.
    Double(f64),
}

impl Number {
    /// The value as OpenTSDB prints it.
    pub(super) fn text(self) -> String {
        match self {
            Self::Int(int) => int.to_string(),
            Self::Double(double) => oxtsdb_schema::java::double_to_string(double),
        }
    }

    /// The nearest double.
    #[expect(clippy::cast_precision_loss, reason = "for a chart")]
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Double(double) => double,
        }
    }
}

/// An answer on its way.
#[derive(Debug, Default)]
struct Answer {
    series: BTreeMap<u32, Series>,
    complete: bool,
}

impl Answer {
    fn add(&mut self, frame: Frame) -> Result<(), Status> {
        match frame {
            Frame::Series(series) => {
                let group = Series {
                    query: series.query,
                    metric: series.metric,
                    tags: series.tags.into_iter().collect(),
                    aggregate_tags: series.aggregate_tags,
                    points: Vec::new(),
                };
                self.series.insert(series.series, group);
            }
            Frame::Points(points) => self.add_points(&points)?,
            Frame::Done(_) => {}
            Frame::Statistics(_) => self.complete = true,
        }
        Ok(())
    }

    fn add_of_expressions(&mut self, frame: ExpressionFrame, outputs: &[String]) -> Result<(), Status> {
        match frame {
            ExpressionFrame::Series(series) => {
                let place = outputs.iter().position(|output| *output == series.output);
                self.series.insert(series.series, named(place, series));
            }
            ExpressionFrame::Points(points) => self.add_points(&points)?,
            ExpressionFrame::Done(_) => {}
            ExpressionFrame::Statistics(_) => self.complete = true,
        }
        Ok(())
    }

    fn add_points(&mut self, points: &Points) -> Result<(), Status> {
        let number = points.series;
        let group = self
            .series
            .get_mut(&number)
            .ok_or_else(|| Status::internal(format!("points of group {number}, which was not announced")))?;
        add_points(&mut group.points, points)
    }

    fn finish(self) -> Result<Vec<Series>, Status> {
        if !self.complete {
            return Err(Status::new(
                Code::DataLoss,
                "the answer ended before its last frame",
            ));
        }
        let mut series: Vec<Series> = self.series.into_values().collect();
        // By question; within one as the server sent them.
        series.sort_by_key(|series| series.query);
        Ok(series)
    }
}

/// A series of an expression, under its alias or, as in OpenTSDB, under the first of its metrics. What has an
/// alias has no tags.
fn named(place: Option<usize>, series: ExpressionSeries) -> Series {
    let has_alias = !series.alias.is_empty();
    let metric = series.metrics.into_iter().next().unwrap_or_default();
    Series {
        query: place
            .and_then(|place| u32::try_from(place).ok())
            .unwrap_or(u32::MAX),
        metric: if has_alias { series.alias } else { metric },
        tags: series.tags.into_iter().filter(|_| !has_alias).collect(),
        aggregate_tags: if has_alias {
            Vec::new()
        } else {
            series.aggregate_tags
        },
        points: Vec::new(),
    }
}

fn add_points(to: &mut Vec<(i64, Number)>, points: &Points) -> Result<(), Status> {
    let count = points.timestamp_deltas_ms.len();
    let ints = points.int_values.iter().map(|int| Number::Int(*int));
    let doubles = points.double_values.iter().map(|double| Number::Double(*double));
    let values = ints.chain(doubles);
    if points.int_values.len() + points.double_values.len() != count {
        return Err(Status::internal(
            "points with more or fewer values than timestamps",
        ));
    }
    let mut timestamp_ms = points.base_timestamp_ms;
    for (delta, value) in points.timestamp_deltas_ms.iter().zip(values) {
        timestamp_ms = timestamp_ms.saturating_add(*delta);
        to.push((timestamp_ms, value));
    }
    Ok(())
}

/// Receives a whole answer.
///
/// # Errors
///
/// If it is not whole: a part must not be shown as the answer.
pub(super) async fn receive(mut frames: Streaming<QueryResponse>) -> Result<Vec<Series>, Status> {
    let mut answer = Answer::default();
    while let Some(response) = frames.message().await? {
        if let Some(frame) = response.frame {
            answer.add(frame)?;
        }
    }
    answer.finish()
}

/// Receives a whole answer to expressions, in the order of the outputs.
///
/// # Errors
///
/// If it is not whole.
pub(super) async fn receive_expressions(
    mut frames: Streaming<QueryExpressionsResponse>,
    outputs: &[String],
) -> Result<Vec<Series>, Status> {
    let mut answer = Answer::default();
    while let Some(response) = frames.message().await? {
        if let Some(frame) = response.frame {
            answer.add_of_expressions(frame, outputs)?;
        }
    }
    answer.finish()
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::data::v1::query_response;

    use super::*;

    fn points(series: u32, deltas: &[i64], ints: &[i64], doubles: &[f64]) -> Frame {
        Frame::Points(Points {
            series,
            base_timestamp_ms: 1000,
            timestamp_deltas_ms: deltas.to_vec(),
            int_values: ints.to_vec(),
            double_values: doubles.to_vec(),
        })
    }

    fn series(series: u32, query: u32) -> Frame {
        Frame::Series(query_response::Series {
            series,
            query,
            metric: format!("m{series}"),
            ..query_response::Series::default()
        })
    }

    #[test]
    fn frames_of_several_groups_may_be_mixed() {
        let mut answer = Answer::default();
        for frame in [
            series(0, 1),
            series(1, 0),
            points(0, &[0, 10], &[1, 2], &[]),
            points(1, &[5], &[], &[0.5]),
            points(0, &[30], &[], &[2.5]),
            Frame::Statistics(query_response::Statistics::default()),
        ] {
            answer.add(frame).unwrap();
        }
        let found = answer.finish().unwrap();
        assert_eq!((found[0].metric.as_str(), found[1].metric.as_str()), ("m1", "m0"));
        assert_eq!(
            found[1].points,
            [
                (1000, Number::Int(1)),
                (1010, Number::Int(2)),
                (1030, Number::Double(2.5))
            ]
        );
    }

    #[test]
    fn an_alias_takes_the_place_of_metric_and_tags() {
        let series = |alias: &str| ExpressionSeries {
            alias: alias.to_owned(),
            metrics: vec!["a".to_owned(), "b".to_owned()],
            tags: [("host".to_owned(), "x".to_owned())].into(),
            aggregate_tags: vec!["dc".to_owned()],
            ..ExpressionSeries::default()
        };
        let plain = named(Some(1), series(""));
        assert_eq!(
            (plain.query, plain.metric.as_str(), plain.tags.len()),
            (1, "a", 1)
        );
        let aliased = named(Some(0), series("name"));
        assert_eq!((aliased.metric.as_str(), aliased.tags.len()), ("name", 0));
        assert!(aliased.aggregate_tags.is_empty());
    }

    #[test]
    fn an_answer_that_is_not_whole_is_none() {
        let mut answer = Answer::default();
        answer.add(series(0, 0)).unwrap();
        assert_eq!(answer.finish().unwrap_err().code(), Code::DataLoss);
        let mut answer = Answer::default();
        assert!(answer.add(points(3, &[0], &[1], &[])).is_err());
        answer.add(series(3, 0)).unwrap();
        assert!(answer.add(points(3, &[0, 1], &[1], &[])).is_err());
    }
}
