//! A client of `WriteStream`.

use anyhow::{Context as _, bail};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::write_stream_request::{Frame, Message, Open};
use oxtsdb_proto::data::v1::write_stream_response::{self, Ack, Opened};
use oxtsdb_proto::data::v1::{Columns, WriteStreamRequest, WriteStreamResponse};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::sample::{ColumnsBuilder, Sample};
use crate::write_requests::open;

/// An open stream.
#[derive(Debug)]
pub struct WriteStream {
    requests: mpsc::Sender<WriteStreamRequest>,
    responses: Streaming<WriteStreamResponse>,
    opened: Opened,
    columns: ColumnsBuilder,
    sent: u64,
}

impl WriteStream {
    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// The server's.
    pub async fn open(client: &mut DataServiceClient<Channel>) -> anyhow::Result<Self> {
        Self::open_with(client, open()).await
    }

    /// Opens a stream with this message.
    ///
    /// # Errors
    ///
    /// The server's.
    pub async fn open_with(client: &mut DataServiceClient<Channel>, open: Open) -> anyhow::Result<Self> {
        let (requests, receiver) = mpsc::channel(16);
        requests.send(message(Message::Open(open))).await?;
        let answer = client.write_stream(ReceiverStream::new(receiver)).await?;
        let mut responses = answer.into_inner();
        let first = responses.next().await.context("no answer to open")??;
        let Some(write_stream_response::Message::Opened(opened)) = first.message else {
            bail!("the first message is {first:?}");
        };
        Ok(Self {
            requests,
            responses,
            opened,
            columns: ColumnsBuilder::default(),
            sent: 0,
        })
    }

    /// The server's window.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Sends points in one frame; returns its number.
    ///
    /// # Errors
    ///
    /// If the stream is broken.
    pub async fn send(&mut self, samples: &[Sample]) -> anyhow::Result<u64> {
        let columns = self.columns.columns(samples);
        self.send_frame(self.sent + 1, columns).await
    }

    /// Sends a frame with any number and content.
    ///
    /// # Errors
    ///
    /// If the stream is broken.
    pub async fn send_frame(&mut self, sequence: u64, columns: Columns) -> anyhow::Result<u64> {
        let frame = Frame {
            sequence,
            columns: Some(columns),
        };
        self.requests.send(message(Message::Frame(frame))).await?;
        self.sent = sequence;
        Ok(sequence)
    }

    /// The next message of the server; `None` when it has closed.
    ///
    /// # Errors
    ///
    /// The status that the stream ended with.
    pub async fn next(&mut self) -> Result<Option<write_stream_response::Message>, Status> {
        match self.responses.next().await {
            None => Ok(None),
            Some(response) => Ok(response?.message),
        }
    }

    /// The next ack.
    ///
    /// # Errors
    ///
    /// If something else comes.
    pub async fn ack(&mut self) -> anyhow::Result<Ack> {
        match self.next().await? {
            Some(write_stream_response::Message::Ack(ack)) => Ok(ack),
            other => bail!("expected an ack, got {other:?}"),
        }
    }

    /// Waits until everything that was sent is acknowledged.
    ///
    /// # Errors
    ///
    /// If something else than acks comes, or a point failed.
    pub async fn all_written(&mut self) -> anyhow::Result<u64> {
        let mut written = 0;
        loop {
            let ack = self.ack().await?;
            if ack.failed > 0 {
                bail!("{} points failed: {:?}", ack.failed, ack.failures);
            }
            written += ack.written;
            if ack.sequence >= self.sent {
                return Ok(written);
            }
        }
    }

    /// Closes the client's side; the answers that are left.
    ///
    /// # Errors
    ///
    /// The status that the stream ended with, other than OK.
    pub async fn close(self) -> Result<Vec<write_stream_response::Message>, Status> {
        let Self {
            requests,
            mut responses,
            ..
        } = self;
        drop(requests);
        let mut rest = Vec::new();
        while let Some(response) = responses.next().await {
            rest.extend(response?.message);
        }
        Ok(rest)
    }
}

fn message(message: Message) -> WriteStreamRequest {
    WriteStreamRequest {
        message: Some(message),
    }
}
