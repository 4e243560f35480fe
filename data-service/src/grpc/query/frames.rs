//! Encodes query results as messages.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use oxtsdb_proto::common::v1::TimeRange;
use oxtsdb_proto::common::v1::time_range::{End, Start};
use oxtsdb_proto::data::v1::query_response::histogram_part::Part;
use oxtsdb_proto::data::v1::query_response::statistics::{
    DamagedRow as DamagedRowMessage, Resolution, RollupUse as RollupUseMessage,
};
use oxtsdb_proto::data::v1::query_response::{
    Annotations, Done, Frame as FrameMessage, HistogramPart as HistogramPartMessage, Points as PointsMessage,
    Series,
};
use oxtsdb_proto::data::v1::{DeltaTimestamps, HistogramBounds, QueryRequest, QueryResponse, query_response};
use oxtsdb_query::{DamagedRow, RollupUse};
use oxtsdb_query::{Frame, Group, HistogramPart, Number, Points, Statistics, Values};
use oxtsdb_schema::Annotation;
use oxtsdb_schema::histogram::Bounds;
use oxtsdb_server::telemetry::used;

use crate::grpc::annotation::annotation_message;

/// Points in a message, unless the request sets another number.
const FRAME_POINTS: u32 = 4096;

/// Most points in a message: 1 MiB, which every client accepts.
const MAX_FRAME_POINTS: u32 = 65_536;

/// The bytes of annotations at which a message is closed.
const ANNOTATION_BYTES: u64 = 1 << 20;

/// How the result of a request is encoded.
#[derive(Debug)]
pub(super) struct Encoder {
    frame_points: usize,
    with_tsuids: bool,
    delta_timestamps: bool,
}

/// The messages of a frame.
pub(super) type Messages = Box<dyn Iterator<Item = QueryResponse> + Send>;

impl Encoder {
    pub(super) fn new(request: &QueryRequest) -> Self {
        Self {
            frame_points: frame_points(request.frame_points),
            with_tsuids: request.include_tsuids,
            delta_timestamps: request.delta_timestamps,
        }
    }

    /// The messages of a frame; a group's are encoded when the stream is polled.
    pub(super) fn frames(&self, frame: Frame) -> Messages {
        match frame {
            Frame::Group(group) => self.group(group),
            Frame::More { number, points } => Box::new(self.points(number, points)),
            Frame::Annotations { number, annotations } => {
                Box::new(annotation_messages(Some(self::number(number)), annotations))
            }
            Frame::GlobalAnnotations(annotations) => Box::new(annotation_messages(None, annotations)),
            // Of another form of a result.
            Frame::Encoded(_) => Box::new(std::iter::empty()),
            Frame::Done { query, groups } => {
                let done = Done {
                    query: number(query),
                    series_count: number(groups),
                };
                Box::new(once(message(FrameMessage::Done(done))))
            }
            Frame::Statistics(statistics) => Box::new(once(message(FrameMessage::Statistics(
                statistics_message(&statistics),
            )))),
        }
    }

    fn group(&self, group: Group) -> Messages {
        let series = number(group.number);
        let tsuids = if self.with_tsuids {
            group.tsuids.as_slice()
        } else {
            &[]
        };
        let head = Series {
            series,
            query: number(group.query),
            metric: group.metric.to_string(),
            tags: group
                .tags
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            aggregate_tags: group.aggregate_tags.iter().map(ToString::to_string).collect(),
            tsuids: tsuids
                .iter()
                .map(|tsuid| tsuid.as_bytes().to_vec().into())
                .collect(),
            histogram_part: group.part.map(histogram_part),
        };
        let annotations = annotation_messages(Some(series), group.annotations.unwrap_or_default());
        let blocks = self.points(group.number, group.points);
        Box::new(
            once(message(FrameMessage::Series(head)))
                .chain(annotations)
                .chain(blocks),
        )
    }

    fn points(&self, group: usize, points: Points) -> impl Iterator<Item = QueryResponse> + Send + use<> {
        blocks(number(group), points, (self.frame_points, self.delta_timestamps))
            .map(|block| message(FrameMessage::Points(block)))
    }
}

fn histogram_part(part: HistogramPart) -> HistogramPartMessage {
    let part = match part {
        HistogramPart::Percentile(percentile) => Part::Percentile(percentile),
        HistogramPart::Underflow => Part::Underflow(true),
        HistogramPart::Bucket(Bounds { lower, upper }) => Part::Bucket(HistogramBounds { lower, upper }),
        HistogramPart::Overflow => Part::Overflow(true),
    };
    HistogramPartMessage { part: Some(part) }
}

/// Annotations in messages of about [`ANNOTATION_BYTES`], each encoded when the stream is polled.
fn annotation_messages(
    series: Option<u32>,
    annotations: Vec<Arc<Annotation>>,
) -> impl Iterator<Item = QueryResponse> + Send {
    let mut rest = annotations.into_iter().peekable();
    std::iter::from_fn(move || {
        rest.peek()?;
        let mut bytes = 0;
        let mut annotations = Vec::new();
        while bytes < ANNOTATION_BYTES
            && let Some(annotation) = rest.next()
        {
            bytes += annotation.held_bytes();
            annotations.push(annotation_message(&annotation));
        }
        let frame = Annotations { series, annotations };
        Some(message(FrameMessage::Annotations(frame)))
    })
}

/// Points in a message for the number that a request sets; 0: the default.
pub(in crate::grpc) fn frame_points(requested: u32) -> usize {
    let points = match requested {
        0 => FRAME_POINTS,
        points => points.min(MAX_FRAME_POINTS),
    };
    points as usize
}

/// The points of a series, split into messages that are encoded one by one.
pub(in crate::grpc) fn blocks(
    series: u32,
    points: Points,
    (frame_points, delta_timestamps): (usize, bool),
) -> impl Iterator<Item = PointsMessage> + Send + use<> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let block = next_block(&points, from, frame_points)?;
        from = block.end;
        Some(points_message(series, &points, block, delta_timestamps))
    })
}

fn message(frame: FrameMessage) -> QueryResponse {
    QueryResponse { frame: Some(frame) }
}

/// Counts in a result fit in 32 bits, because each counted item takes memory.
pub(in crate::grpc) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The points from `from` on that fit in one message: they have one type, and at most `most` of them.
fn next_block(points: &Points, from: usize, most: usize) -> Option<Range<usize>> {
    let end = points.len().min(from.saturating_add(most));
    if from >= end {
        return None;
    }
    let Values::Mixed(values) = points.values() else {
        return Some(from..end);
    };
    let is_int = values[from].is_int();
    let length = values[from..end]
        .iter()
        .take_while(|value| value.is_int() == is_int)
        .count();
    Some(from..from + length)
}

fn points_message(
    series: u32,
    points: &Points,
    block: Range<usize>,
    delta_timestamps: bool,
) -> PointsMessage {
    let times_ms = &points.times_ms()[block.clone()];
    let (timestamps_ms, delta_timestamps) = if delta_timestamps {
        (Vec::new(), DeltaTimestamps::encode(times_ms))
    } else {
        (times_ms.to_vec(), None)
    };
    let (int_values, values) = match points.values() {
        Values::Ints(values) => (values[block].to_vec(), Vec::new()),
        Values::Doubles(values) => (Vec::new(), values[block].to_vec()),
        Values::Mixed(values) => {
            let values = &values[block];
            let ints = values.iter().filter_map(|value| match value {
                Number::Int(int) => Some(*int),
                Number::Double(_) => None,
            });
            let doubles = values
                .iter()
                .filter(|value| !value.is_int())
                .map(|value| value.as_f64());
            (ints.collect(), doubles.collect())
        }
    };
    PointsMessage {
        series,
        timestamps_ms,
        delta_timestamps,
        values,
        int_values,
    }
}

fn rollup_message(rollup: &RollupUse) -> RollupUseMessage {
    RollupUseMessage {
        query: u32::try_from(rollup.query).unwrap_or(u32::MAX),
        interval: rollup.interval.to_string(),
        table: rollup.table.to_string(),
    }
}

pub(in crate::grpc) fn statistics_message(statistics: &Statistics) -> query_response::Statistics {
    used(statistics.rows, statistics.points);
    query_response::Statistics {
        series: statistics.series,
        rows: statistics.rows,
        bytes: statistics.bytes,
        damaged_rows: statistics.damaged_rows,
        damaged: statistics.damaged.iter().map(damaged_row).collect(),
        resolution: match statistics.rollups.as_slice() {
            [] => Resolution::Raw,
            _ => Resolution::Rollup,
        }
        .into(),
        rollups: statistics.rollups.iter().map(rollup_message).collect(),
        points: statistics.points,
        points_sent: statistics.points_sent,
        elapsed: prost_types::Duration::try_from(statistics.elapsed).ok(),
        duplicates: statistics.duplicates,
        skipped_cells: statistics.skipped_cells,
    }
}

fn damaged_row(row: &DamagedRow) -> DamagedRowMessage {
    DamagedRowMessage {
        tsuid: row
            .tsuid
            .as_ref()
            .map(|tsuid| tsuid.as_bytes().to_vec().into())
            .unwrap_or_default(),
        range: Some(TimeRange {
            start: Some(Start::StartMs(row.from_ms)),
            end: Some(End::EndMs(row.until_ms)),
        }),
        reason: row.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn encoder(frame_points: u32) -> Encoder {
        Encoder::new(&QueryRequest {
            frame_points,
            ..QueryRequest::default()
        })
    }

    fn blocks(frame_points: u32, points: Points) -> Vec<PointsMessage> {
        let group = Group {
            number: 0,
            is_whole: true,
            query: 3,
            metric: Arc::from("m"),
            part: None,
            tags: Vec::new(),
            aggregate_tags: Vec::new(),
            tsuids: Vec::new(),
            annotations: None,
            rollup: None,
            points,
        };
        let mut messages = encoder(frame_points).frames(Frame::Group(group));
        let Some(FrameMessage::Series(head)) = messages.next().unwrap().frame else {
            panic!("no series")
        };
        assert_eq!((head.series, head.query), (0, 3));
        messages
            .map(|message| match message.frame {
                Some(FrameMessage::Points(points)) => points,
                other => panic!("{other:?} among the points"),
            })
            .collect()
    }

    #[test]
    fn splits_points_into_frames_of_the_requested_size() {
        let points: Points = (0..5).map(|i| (1000 + i * 10, Number::Int(i))).collect();
        let blocks = blocks(2, points);
        let sizes: Vec<_> = blocks.iter().map(|block| block.int_values.len()).collect();
        assert_eq!(sizes, [2, 2, 1]);
        assert_eq!(blocks[1].timestamps_ms, [1020, 1030]);
        assert_eq!(blocks[1].int_values, [2, 3]);
    }

    #[test]
    fn a_block_has_values_of_one_type() {
        let values = [
            Number::Int(1),
            Number::Int(2),
            Number::Double(0.5),
            Number::Int(3),
        ];
        let points: Points = values
            .into_iter()
            .enumerate()
            .map(|(i, value)| (i as i64, value))
            .collect();
        let blocks = blocks(0, points);
        let shapes: Vec<_> = blocks
            .iter()
            .map(|block| (block.int_values.len(), block.values.len()))
            .collect();
        assert_eq!(shapes, [(2, 0), (0, 1), (1, 0)]);
        assert!(blocks.iter().all(|block| block.delta_timestamps.is_none()));
    }

    #[test]
    fn a_group_without_points_is_only_its_series() {
        assert!(blocks(0, Points::default()).is_empty());
    }
}
