//! One `WriteStream`: its window, its frames in flight, its acks.

use std::collections::{BTreeMap, VecDeque};

use oxtsdb_proto::data::v1::write_stream_request::{Message as Outgoing, Open};
use oxtsdb_proto::data::v1::write_stream_response::{Ack, FrameFailures, Message as Incoming, Opened};
use oxtsdb_proto::data::v1::{TimeUnit, WriteOptions, WriteStreamRequest, WriteStreamResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::batch::Batch;
use super::frame::StreamTables;
use crate::call::{Connection, Messages};
use crate::failures::{self, FailedRange};
use crate::{Error, Rejection, SeriesName};

/// Errors that the server describes for each frame: as many as it can.
const MAX_ERRORS: u32 = 10_000;

/// An open stream.
#[derive(Debug)]
pub(super) struct Session {
    requests: mpsc::UnboundedSender<WriteStreamRequest>,
    responses: Messages<WriteStreamResponse>,
    opened: Opened,
    tables: StreamTables,
    /// Frames sent.
    sequence: u64,
    /// Points of each frame in flight; these are the last frames sent.
    in_flight: VecDeque<u64>,
    /// Failures of frames in flight, by sequence number.
    failures: BTreeMap<u64, Vec<FailedRange>>,
    draining: bool,
}

/// Frames that an ack completes.
#[derive(Debug)]
pub(super) struct Completed {
    /// How many frames, the oldest of those in flight.
    pub(super) frames: usize,
    /// Points stored.
    pub(super) written: u64,
    /// The failures of each frame, by its place among those that are completed.
    pub(super) failures: Vec<(usize, Vec<FailedRange>)>,
}

impl Session {
    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// Errors of the service.
    pub(super) async fn open(connection: &Connection) -> Result<Self, Error> {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let open = Open {
            client_name: connection.options().client_name.clone(),
            options: Some(WriteOptions {
                time_unit: TimeUnit::Milliseconds.into(),
                allow_any_time: connection.options().allow_any_time,
                max_errors: Some(MAX_ERRORS),
                ..WriteOptions::default()
            }),
        };
        // The receiver is held here.
        let _ = requests.send(request(Outgoing::Open(open)));
        let outgoing = UnboundedReceiverStream::new(outgoing);
        let mut responses = connection.stream_both(outgoing).await?;
        let opened = match responses.next().await?.map(|response| response.message) {
            Some(Some(Incoming::Opened(opened))) => opened,
            Some(_) => return Err(Error::protocol("the first message of a stream is not `opened`")),
            None => return Err(ended()),
        };
        Ok(Self {
            requests,
            responses,
            opened,
            tables: StreamTables::default(),
            sequence: 0,
            in_flight: VecDeque::new(),
            failures: BTreeMap::new(),
            draining: false,
        })
    }

    /// Series that the stream may declare.
    pub(super) fn max_series(&self) -> usize {
        self.opened.max_series as usize
    }

    /// Points of one frame at most.
    pub(super) fn max_frame_points(&self) -> usize {
        usize::try_from(self.opened.max_frame_points).unwrap_or(usize::MAX)
    }

    /// Whether the server accepts no further frames.
    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Frames in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether a batch can be sent now.
    pub(super) fn accepts(&self, batch: &Batch) -> bool {
        let points = self.in_flight.iter().sum::<u64>() + batch.points() as u64;
        // A window of less than one batch would block the stream for good.
        let fits = self.in_flight.is_empty()
            || (self.in_flight() < self.opened.window_frames as usize && points <= self.opened.window_points);
        fits && !self.draining
    }

    /// Sends a batch as the next frame.
    pub(super) fn send(&mut self, batch: &Batch, dictionary: &[SeriesName]) {
        self.sequence += 1;
        self.in_flight.push_back(batch.points() as u64);
        let frame = self.tables.frame(batch, dictionary, self.sequence);
        // If the stream is broken, `next` returns the error.
        let _ = self.requests.send(request(Outgoing::Frame(frame)));
    }

    /// Receives a message; returns the frames that it completes, if it does. Safe to cancel.
    ///
    /// # Errors
    ///
    /// The error that the stream ended with. Also if points may be stored later, for example when the UID
    /// service is available again: all frames in flight have to be sent again, which changes nothing of what
    /// is stored.
    pub(super) async fn next(&mut self) -> Result<Option<Completed>, Error> {
        match self.responses.next().await?.map(|response| response.message) {
            Some(Some(Incoming::Ack(ack))) => self.acknowledge(ack),
            Some(Some(Incoming::Draining(_))) => {
                self.draining = true;
                Ok(None)
            }
            Some(Some(Incoming::Opened(_)) | None) => {
                Err(Error::protocol("unexpected message in a write stream"))
            }
            None => Err(ended()),
        }
    }

    /// Failures of a frame may precede its acknowledgement, in acks that complete no frame.
    fn acknowledge(&mut self, ack: Ack) -> Result<Option<Completed>, Error> {
        for FrameFailures { sequence, failures } in ack.failures {
            let ranges = failures::ranges(failures.unwrap_or_default());
            if ranges.iter().any(|range| range.retryable) {
                return Err(transient(ranges));
            }
            self.failures.entry(sequence).or_default().extend(ranges);
        }
        // Frames are numbered up to `sequence`, and the last of them are in flight.
        let first = self.sequence + 1 - self.in_flight.len() as u64;
        let completed = (ack.sequence + 1).saturating_sub(first);
        let frames = usize::try_from(completed)
            .unwrap_or(usize::MAX)
            .min(self.in_flight.len());
        if frames == 0 {
            return Ok(None);
        }
        self.in_flight.drain(..frames);
        let later = self.failures.split_off(&(ack.sequence + 1));
        let failures = std::mem::replace(&mut self.failures, later);
        Ok(Some(Completed {
            frames,
            written: ack.written,
            failures: failures
                .into_iter()
                .filter_map(|(sequence, frame)| {
                    let place = usize::try_from(sequence.checked_sub(first)?).ok()?;
                    Some((place, frame))
                })
                .collect(),
        }))
    }

    /// Closes the client's side, and waits until the server has closed its own.
    pub(super) async fn close(self) {
        let Self {
            requests,
            mut responses,
            ..
        } = self;
        drop(requests);
        // Everything is acknowledged; further messages change nothing.
        while let Ok(Some(_)) = responses.next().await {}
    }
}

/// The error of points that may be stored later.
fn transient(ranges: Vec<FailedRange>) -> Error {
    let mut rejections = ranges.into_iter().filter_map(|range| range.rejection);
    match rejections.find(Rejection::is_retry_safe) {
        Some(rejection) => rejection.into(),
        None => Error::Connection {
            code: Code::Unavailable,
            message: "points cannot be stored at present".to_owned(),
        },
    }
}

fn request(message: Outgoing) -> WriteStreamRequest {
    WriteStreamRequest {
        message: Some(message),
    }
}

fn ended() -> Error {
    Error::Connection {
        code: Code::Unavailable,
        message: "the server ended the stream".to_owned(),
    }
}
