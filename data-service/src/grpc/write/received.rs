//! A request of `Write` as it was received, and its points in columns.

use bytes::Bytes;
use oxtsdb_proto::data::v1::WriteRequest;
use oxtsdb_proto::write_view::WriteView;
use oxtsdb_proto::{decode_memory, decode_request};
use self_cell::self_cell;
use tonic::Status;

/// The text that the points borrow from.
#[derive(Debug)]
pub(super) enum Message {
    Encoded(Bytes),
    Decoded(WriteRequest),
}

self_cell!(
    /// A request and its points, which borrow from it.
    pub(super) struct Received {
        owner: Message,
        #[covariant]
        dependent: WriteView,
    }
);

impl Received {
    /// Decodes a request.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT, if it is malformed or has too many elements; a status of overload, if there is no memory.
    pub(super) fn decode(message: Bytes) -> Result<Self, Status> {
        let view = Self::try_new(Message::Encoded(message.clone()), |message| match message {
            Message::Encoded(bytes) => WriteView::decode(bytes).ok_or(()),
            Message::Decoded(request) => Ok(WriteView::from_request(request)),
        });
        let Ok(view) = view else {
            return decode_request(message).map(Self::from_request);
        };
        // A view of the largest request takes a few MiB.
        let bytes = view.borrow_dependent().byte_len();
        decode_memory::take(u64::try_from(bytes).unwrap_or(u64::MAX))?;
        Ok(view)
    }

    /// A request that is decoded.
    pub(super) fn from_request(request: WriteRequest) -> Self {
        Self::new(Message::Decoded(request), |message| match message {
            Message::Decoded(request) => WriteView::from_request(request),
            // Not made here.
            Message::Encoded(_) => WriteView::default(),
        })
    }

    /// The points.
    pub(super) fn points(&self) -> &WriteView<'_> {
        self.borrow_dependent()
    }
}
