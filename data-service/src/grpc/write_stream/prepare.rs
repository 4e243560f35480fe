//! Prepares frames for the store: checks them, resolves their names, encodes them.

use std::time::{Duration, Instant, SystemTime};

use oxtsdb_ingest::columns::{Failures, Tables, TablesLimits, describe, encode};
use oxtsdb_ingest::{Batch, Writer};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::write_stream_request::Frame;
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status as status_with};
use oxtsdb_resources::memory::LIMIT_SETTING;
use oxtsdb_resources::{ClientId, ComputePool, Reservation};
use tonic::{Code, Status};

use crate::grpc::write::{MAX_COLUMN_POINTS, WriteOptions, blocks, declare, point_count, run_encoder};
use crate::grpc::{DataServiceHandler, status};

/// Tables up to this size are not charged: most streams have few series.
const FREE_TABLE_BYTES: u64 = 64 << 10;

/// How long a stream waits for memory for its tables.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// The path of the columns.
const WITHIN: &str = "frame.columns.";

/// The outcome of a frame, for its ack.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) sequence: u64,
    pub(super) points: u64,
    pub(super) written: u64,
    pub(super) failures: Failures,
}

/// A frame that is ready to be stored.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) report: Report,
    pub(super) batch: Batch,
}

/// The most points of a frame. A frame beyond the window would never be read.
pub(super) fn max_frame_points(service: &DataServiceHandler) -> usize {
    let window = usize::try_from(service.settings.streams.stream_window_points).unwrap_or(usize::MAX);
    window.min(MAX_COLUMN_POINTS)
}

/// Prepares the frames of a stream, one after the other: each may declare what the next one refers to.
#[derive(Debug)]
pub(super) struct Frames {
    writer: Writer,
    /// The threads, for jobs of the client.
    compute: ComputePool,
    tables: Tables,
    options: WriteOptions,
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
        client: ClientId,
        options: WriteOptions,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            writer: service.writer.clone(),
            compute: service.writer.compute_of(client),
            tables: Tables::new(service.tables_limits()),
            limits: service.tables_limits(),
            memory: service.writer.memory_of(client).empty_reservation(),
            options,
            max_points: max_frame_points(service),
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
        declare(WITHIN, &columns, &mut self.tables)?;
        self.tables
            .resolve(&self.writer, self.deadline)
            .await
            .map_err(|error| status::write_status(&error))?;
        self.charge_tables().await?;
        let permit = self.writer.permit(points).await;
        let mut batch = self.writer.batch(points, permit);
        // An error ends the stream, and the tables with it.
        let mut tables = std::mem::replace(&mut self.tables, Tables::new(self.limits));
        let rules = self.options.time.rules(SystemTime::now());
        let mut failures = Failures::new(self.options.max_errors);
        let encoded = run_encoder(points, &self.compute, move || {
            encode(
                blocks(&columns),
                &rules,
                tables.series(),
                batch.encoded(),
                &mut failures,
            )
            .map_err(|violation| status::violation_status(WITHIN, &violation))?;
            failures.describe(|point| describe(blocks(&columns), point, |number| tables.describe(number)));
            batch.shrink();
            Ok((tables, batch, failures))
        });
        let (tables, batch, failures) = encoded.await?;
        self.tables = tables;
        let report = Report {
            sequence,
            points: points as u64,
            written: batch.points(),
            failures,
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
                return status_with(
                    Code::ResourceExhausted,
                    ErrorReason::MessageTooLarge,
                    message,
                    &metadata,
                );
            }
            status::overloaded(message, LIMIT_SETTING)
        })
    }
}
