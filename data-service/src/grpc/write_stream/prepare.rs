//! Frames on their way to the store: checked, their names resolved, encoded.

use std::time::Instant;

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::TimestampPrecision;
use oxtsdb_proto::data::v1::write_stream_request::Frame;
use oxtsdb_proto::error::{invalid_field, invalid_field_because};
use tonic::Status;

use crate::grpc::write::MAX_COLUMN_POINTS;
use crate::grpc::{DataServiceHandler, status};
use crate::write::columns::{self, ErrorRun, PointErrors, Tables};
use crate::write::{Batch, Writer};

/// What a frame came to, for its ack.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) sequence: u64,
    pub(super) points: u64,
    pub(super) written: u64,
    pub(super) failed: u64,
    pub(super) errors: Vec<ErrorRun>,
}

/// A frame that is ready to be stored.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) report: Report,
    pub(super) batch: Batch,
}

/// Prepares the frames of a stream, one after the other: each may declare what the next one refers to.
#[derive(Debug)]
pub(super) struct Frames {
    writer: Writer,
    tables: Tables,
    precision: TimestampPrecision,
    max_errors: usize,
    max_points: usize,
    deadline: Option<Instant>,
    next_sequence: u64,
}

impl Frames {
    pub(super) fn new(
        service: &DataServiceHandler,
        precision: TimestampPrecision,
        max_errors: usize,
        deadline: Option<Instant>,
    ) -> Self {
        let window = usize::try_from(service.settings.stream_window_points).unwrap_or(usize::MAX);
        Self {
            writer: service.writer.clone(),
            tables: Tables::new(service.tables_limits()),
            precision,
            max_errors,
            // A frame that no window would ever let through is rejected, or the stream would stand still.
            max_points: window.min(MAX_COLUMN_POINTS),
            deadline,
            next_sequence: 1,
        }
    }

    /// Checks a frame by itself, and returns how many points it has.
    ///
    /// # Errors
    ///
    /// The status that ends the stream.
    pub(super) fn check(&mut self, frame: &Frame) -> Result<u64, Status> {
        if frame.sequence != self.next_sequence {
            let description = format!("is {}, expected {}", frame.sequence, self.next_sequence);
            return Err(invalid_field("frame.sequence", description));
        }
        self.next_sequence += 1;
        let (points, max) = (
            frame.columns.as_ref().map_or(0, columns::point_count),
            self.max_points,
        );
        if points > max {
            let description = format!("has {points} points, at most {max} are allowed");
            return Err(invalid_field_because(
                "frame.columns.blocks",
                ErrorReason::BatchTooLarge,
                description,
            ));
        }
        Ok(points as u64)
    }

    /// Makes a batch of a checked frame, and comes back with it.
    pub(super) async fn prepare(mut self, frame: Frame) -> (Self, Result<Prepared, Status>) {
        let prepared = self.batch_of(frame).await;
        (self, prepared)
    }

    async fn batch_of(&mut self, frame: Frame) -> Result<Prepared, Status> {
        let Frame { sequence, columns } = frame;
        let columns = columns.unwrap_or_default();
        let points = columns::point_count(&columns);
        let of_columns = |error| status::of_columns("frame.", &error);
        self.tables
            .declare(&columns, &self.writer, self.deadline)
            .await
            .map_err(of_columns)?;
        let permit = self.writer.permit(points).await;
        let mut batch = self.writer.batch(points, permit);
        let mut errors = PointErrors::new(self.max_errors);
        columns::encode(
            &columns,
            self.precision,
            &mut self.tables,
            batch.rows(),
            &mut errors,
        )
        .map_err(of_columns)?;
        batch.shrink();
        let report = Report {
            sequence,
            points: points as u64,
            written: batch.points(),
            failed: errors.failed(),
            errors: errors.into_runs(),
        };
        Ok(Prepared { report, batch })
    }
}
