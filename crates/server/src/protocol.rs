//! The protocols of requests.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// OpenTSDB's API over HTTP.
    Http,
    /// OpenTSDB's lines.
    Telnet,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Grpc, Self::Http, Self::Telnet];

    /// Its name, as the label has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Telnet => "telnet",
        }
    }

    /// The code of a request if its client has gone before the response.
    pub(crate) const fn cancelled(self) -> &'static str {
        match self {
            Self::Grpc => "CANCELLED",
            // nginx's "client closed request".
            Self::Http => "499",
            Self::Telnet => "cancelled",
        }
    }
}

impl EncodeLabelValue for Protocol {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}
