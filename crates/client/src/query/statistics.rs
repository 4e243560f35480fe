//! Statistics of a query, and the points that its result is missing.

use std::time::Duration;

use oxtsdb_proto::common::v1::time_range::{End, Start};
use oxtsdb_proto::data::v1::query_response::Statistics as Message;
use oxtsdb_proto::data::v1::query_response::statistics as pb;

use crate::Timestamp;

/// Statistics of a query, and the points that its result is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Rows read from the store.
    pub rows: u64,
    /// Points decoded.
    pub points: u64,
    /// Points sent.
    pub points_sent: u64,
    /// Time in the server.
    pub elapsed: Duration,
    /// Instants with several different stored values; one of them is in the result.
    pub duplicates: u64,
    /// Cells skipped: annotations, histograms and unknown ones.
    pub skipped_cells: u64,
    /// Series with rows in the hours that the query read.
    pub series: u64,
    /// Bytes of these rows.
    pub bytes: u64,
    /// Rows that the result is missing, if the request allows it.
    pub damaged_rows: u64,
    /// The first 100 of them.
    pub damaged: Vec<DamagedRow>,
    /// The sub-queries that rollups answered; the others read points.
    pub rollups: Vec<RollupUse>,
}

/// Rollups that a sub-query read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupUse {
    /// The sub-query, from 0.
    pub query: u32,
    /// Their interval.
    pub interval: String,
    /// Their table.
    pub table: String,
}

/// Hours of a series with points that are not all in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// The TSUID; empty: the store lost a range of rows of unknown series.
    pub tsuid: Vec<u8>,
    /// Start of the hours, if it is known.
    pub start: Option<Timestamp>,
    /// End of the hours, exclusive, if it is known.
    pub end: Option<Timestamp>,
    /// The reason.
    pub reason: String,
}

impl From<Message> for Statistics {
    fn from(statistics: Message) -> Self {
        let elapsed = statistics.elapsed.and_then(|elapsed| elapsed.try_into().ok());
        Self {
            rows: statistics.rows,
            points: statistics.points,
            points_sent: statistics.points_sent,
            elapsed: elapsed.unwrap_or_default(),
            duplicates: statistics.duplicates,
            skipped_cells: statistics.skipped_cells,
            series: statistics.series,
            bytes: statistics.bytes,
            damaged_rows: statistics.damaged_rows,
            damaged: statistics.damaged.into_iter().map(Into::into).collect(),
            rollups: statistics
                .rollups
                .into_iter()
                .map(|rollup| RollupUse {
                    query: rollup.query,
                    interval: rollup.interval,
                    table: rollup.table,
                })
                .collect(),
        }
    }
}

impl From<pb::DamagedRow> for DamagedRow {
    fn from(row: pb::DamagedRow) -> Self {
        let range = row.range.unwrap_or_default();
        Self {
            tsuid: row.tsuid.into(),
            start: match range.start {
                Some(Start::StartMs(start_ms)) => Some(Timestamp::from_millis(start_ms)),
                _ => None,
            },
            end: match range.end {
                Some(End::EndMs(end_ms)) => Some(Timestamp::from_millis(end_ms)),
                _ => None,
            },
            reason: row.reason,
        }
    }
}
