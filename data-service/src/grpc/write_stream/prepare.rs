//! Frames on their way to the store: checked, their names resolved, encoded.

use std::time::{Duration, Instant};

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::write_stream_request::Frame;
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status as status_with};
use oxtsdb_resources::Reservation;
use oxtsdb_resources::memory::LIMIT_SETTING;
use tonic::{Code, Status};

use crate::grpc::write::{Encoding, MAX_COLUMN_POINTS, declare, point_count};
use crate::grpc::{DataServiceHandler, status};
use crate::write::columns::{ErrorRun, PointErrors, Tables, TablesLimits};
use crate::write::{Batch, Precision, Writer};

/// Tables of so many bytes are not charged: most streams have few series.
const FREE_TABLE_BYTES: u64 = 64 << 10;

/// How long a stream waits for memory for its tables.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

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
    precision: Precision,
    max_errors: usize,
    max_points: usize,
    deadline: Option<Instant>,
    next_sequence: u64,
    limits: TablesLimits,
    /// For the tables.
    memory: Reservation,
}

impl Frames {
    pub(super) fn new(
        service: &DataServiceHandler,
        precision: Precision,
        max_errors: usize,
        deadline: Option<Instant>,
    ) -> Self {
        let window = usize::try_from(service.settings.streams.stream_window_points).unwrap_or(usize::MAX);
        Self {
            writer: service.writer.clone(),
            tables: Tables::new(service.tables_limits()),
            limits: service.tables_limits(),
            memory: service.writer.memory().empty_reservation(),
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
        let (points, max) = (frame.columns.as_ref().map_or(0, point_count), self.max_points);
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
        let points = point_count(&columns);
        declare("frame.columns.", &columns, &mut self.tables)?;
        self.tables
            .resolve(&self.writer, self.deadline)
            .await
            .map_err(|error| status::of_write(&error))?;
        self.charge_tables().await?;
        let permit = self.writer.permit(points).await;
        let encoding = Encoding {
            columns,
            precision: self.precision,
            // An error ends the stream, and the tables with it.
            tables: std::mem::replace(&mut self.tables, Tables::new(self.limits)),
            batch: self.writer.batch(points, permit),
            errors: PointErrors::new(self.max_errors),
        };
        let encoded = encoding
            .run("frame.columns.", points, self.writer.compute())
            .await?;
        let Encoding {
            tables,
            batch,
            errors,
            ..
        } = encoded;
        self.tables = tables;
        let report = Report {
            sequence,
            points: points as u64,
            written: batch.points(),
            failed: errors.failed(),
            errors: errors.into_runs(),
        };
        Ok(Prepared { report, batch })
    }

    /// Charges what the tables have grown by: they stay until the stream ends.
    async fn charge_tables(&mut self) -> Result<(), Status> {
        let bytes = self.tables.byte_len() as u64;
        let missing = bytes.saturating_sub(self.memory.bytes() + FREE_TABLE_BYTES);
        if missing == 0 {
            return Ok(());
        }
        // Not at each frame that declares a few series.
        let step = missing.max(FREE_TABLE_BYTES);
        let grown = self.memory.grow(step, MEMORY_WAIT).await;
        grown.map_err(|error| {
            let message = format!("series of the stream do not fit: {error}");
            if error.is_final() {
                let metadata = [("pool", error.pool), ("setting", LIMIT_SETTING)];
                return status_with(Code::OutOfRange, ErrorReason::MessageTooLarge, message, &metadata);
            }
            status::overloaded(message, LIMIT_SETTING)
        })
    }
}
