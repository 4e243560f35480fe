//! Writing rollups and pre-aggregates.

use std::sync::Arc;

use oxtsdb_proto::data::v1::{RollupSeries, WriteRollupsRequest};

use super::request::{self, MAX_POINTS, POINT_BYTES};
use super::{REQUEST_BYTES, failed_points};
use crate::call::Connection;
use crate::{Error, Point, Value, WriteReport};

/// The aggregate that a value is; names as the deployment's configuration of rollups has them, in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Aggregate {
    /// The interval of a rollup, for example `1h`. Empty only with `group_by`.
    pub interval: String,
    /// The aggregator over the interval, for example `sum`.
    pub aggregator: String,
    /// The aggregator over series of a pre-aggregate; empty for a rollup of the series itself.
    pub group_by: String,
}

/// A value over an interval of a series, or over several series.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollup {
    /// The aggregate that it is.
    pub aggregate: Arc<Aggregate>,
    /// The series, an instant of the interval in whole seconds, and the value.
    pub point: Point,
}

/// Writes rollups in requests of bounded size, one after the other.
pub(crate) async fn write_rollups(
    connection: &Connection,
    rollups: impl IntoIterator<Item = Rollup>,
) -> Result<WriteReport, Error> {
    let mut report = WriteReport::default();
    let mut first_index = 0;
    let mut rollups = rollups.into_iter();
    loop {
        let chunk = next_chunk(&mut rollups);
        if chunk.is_empty() {
            return Ok(report);
        }
        let request = WriteRollupsRequest {
            series: series(&chunk),
            options: Some(request::options(connection.options().allow_any_time)),
        };
        let response = connection.call(&request).await?;
        report.written += response.written;
        report.failed += response.failed;
        let failures = response.failures.unwrap_or_default();
        let point = |position| chunk.get(position).map(|rollup: &Rollup| &rollup.point);
        report
            .failures
            .extend(failed_points(failures, first_index, point));
        first_index += chunk.len() as u64;
    }
}

/// The rollups of the next request; none after the last.
fn next_chunk(rollups: &mut impl Iterator<Item = Rollup>) -> Vec<Rollup> {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    while chunk.len() < MAX_POINTS && bytes < REQUEST_BYTES {
        let Some(rollup) = rollups.next() else { break };
        let Aggregate {
            interval,
            aggregator,
            group_by,
        } = &*rollup.aggregate;
        bytes += interval.len() + aggregator.len() + group_by.len();
        bytes += rollup.point.series.text_bytes() + POINT_BYTES;
        chunk.push(rollup);
    }
    chunk
}

/// Consecutive values of one series, aggregate and type share a message.
fn series(rollups: &[Rollup]) -> Vec<RollupSeries> {
    let is_int = |rollup: &Rollup| matches!(rollup.point.value, Value::Int(_));
    let runs = rollups.chunk_by(|a, b| {
        a.point.series == b.point.series && a.aggregate == b.aggregate && is_int(a) == is_int(b)
    });
    runs.filter_map(|run| {
        let first = run.first()?;
        let mut message = RollupSeries {
            name: Some(request::name(&first.point.series)),
            interval: first.aggregate.interval.clone(),
            aggregator: first.aggregate.aggregator.clone(),
            group_by: first.aggregate.group_by.clone(),
            timestamps: run.iter().map(|rollup| rollup.point.timestamp.millis()).collect(),
            ..RollupSeries::default()
        };
        for rollup in run {
            match rollup.point.value {
                Value::Int(int) => message.int_values.push(int),
                Value::Double(double) => message.values.push(double),
            }
        }
        Some(message)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SeriesName, Timestamp};

    #[test]
    fn values_of_one_aggregate_and_type_share_a_message() {
        let name = SeriesName::new("m", [("host", "a")]);
        let aggregate = |aggregator: &str| {
            Arc::new(Aggregate {
                interval: "1h".to_owned(),
                aggregator: aggregator.to_owned(),
                group_by: String::new(),
            })
        };
        let rollup = |aggregator, seconds, value: Value| Rollup {
            aggregate: aggregate(aggregator),
            point: Point::new(&name, Timestamp::from_seconds(seconds), value),
        };
        let rollups = [
            rollup("sum", 3600, Value::Int(1)),
            rollup("sum", 7200, Value::Int(2)),
            rollup("sum", 10_800, Value::Double(0.5)),
            rollup("count", 10_800, Value::Double(2.0)),
        ];
        let messages = series(&rollups);
        let shown: Vec<_> = messages
            .iter()
            .map(|series| {
                (
                    series.aggregator.as_str(),
                    &series.timestamps[..],
                    &series.int_values[..],
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("sum", &[3_600_000, 7_200_000][..], &[1, 2][..]),
                ("sum", &[10_800_000], &[]),
                ("count", &[10_800_000], &[]),
            ]
        );
        assert_eq!(messages[2].values, [2.0]);
    }
}
