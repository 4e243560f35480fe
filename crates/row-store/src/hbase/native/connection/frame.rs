//! The frames of a connection: how requests and responses are encoded.
//!
//! ```text
//!   preamble    "HBas" | 0 | 0x50 (simple authentication; with Kerberos: `sasl`)
//!   header      u32 length | ConnectionHeader
//!   request     u32 length | varint n, RequestHeader  | varint n, message | cell block
//!   response    u32 length | varint n, ResponseHeader | varint n, message | cell block
//! ```
//!
//! Source: HBase 2.6.1, `RPC.proto`, `ServerRpcConnection`, `NettyRpcFrameDecoder`.

use std::time::Instant;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

use super::super::error::{CallError, ServerException};
use super::super::messages::{
    CellBlockMeta, ConnectionHeader, RequestHeader, ResponseHeader, UserInformation, VersionInfo,
};

pub(super) const PREAMBLE: [u8; 6] = *b"HBas\x00\x50";

const CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";

/// Message of a server with Kerberos to a client without Kerberos.
const NEEDS_KERBEROS: &str = "Authentication is required";

/// A service of a server; each has its own connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Rows, of a region server.
    Client,
    /// Tables, of the master.
    Master,
    /// The registry: the places of `hbase:meta` and of the master.
    Registry,
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "ClientService",
            Self::Master => "MasterService",
            Self::Registry => "ClientMetaService",
        }
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request<'a, M> {
    pub(crate) method: &'static str,
    pub(crate) message: &'a M,
    /// The cells behind it.
    pub(crate) cells: &'a [u8],
    pub(crate) priority: Option<u32>,
}

impl<'a, M> Request<'a, M> {
    /// A request without cells.
    pub(crate) const fn new(method: &'static str, message: &'a M) -> Self {
        Self {
            method,
            message,
            cells: &[],
            priority: None,
        }
    }
}

/// A response: its message, and the cells behind it.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) message: Bytes,
    pub(super) cells: Bytes,
}

/// The first bytes of a connection without SASL: nothing answers a good header.
pub(super) fn hello(service: Service, user: &str) -> Vec<u8> {
    [&PREAMBLE[..], &header(service, user)].concat()
}

/// The header of a connection, behind a preamble or SASL.
pub(super) fn header(service: Service, user: &str) -> Vec<u8> {
    let header = ConnectionHeader {
        user_info: Some(UserInformation {
            effective_user: user.to_owned(),
        }),
        service_name: Some(service.name().to_owned()),
        cell_block_codec_class: Some(CODEC.to_owned()),
        version_info: Some(VersionInfo {
            version: "2.6.1".to_owned(),
            url: "oxtsdb".to_owned(),
            revision: String::new(),
            user: user.to_owned(),
            date: String::new(),
            src_checksum: String::new(),
            version_major: Some(2),
            version_minor: Some(6),
        }),
    };
    let mut framed = Vec::new();
    framed.put_u32(u32::try_from(header.encoded_len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&header.encode_to_vec());
    framed
}

/// The frame of a request.
pub(super) fn encode(id: u32, request: &Request<'_, impl Message>, deadline: Option<Instant>) -> Bytes {
    let millis = |deadline: Instant| {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        u32::try_from(left.max(1)).unwrap_or(u32::MAX)
    };
    let header = RequestHeader {
        call_id: Some(id),
        method_name: Some(request.method.to_owned()),
        request_param: Some(true),
        cell_block_meta: (!request.cells.is_empty()).then(|| CellBlockMeta {
            length: u32::try_from(request.cells.len()).ok(),
        }),
        priority: request.priority,
        timeout: deadline.map(millis),
    };
    let length = delimited_len(&header) + delimited_len(request.message) + request.cells.len();
    let mut frame = BytesMut::with_capacity(4 + length);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A buffer that grows takes any message.
    let _ = header.encode_length_delimited(&mut frame);
    let _ = request.message.encode_length_delimited(&mut frame);
    frame.put_slice(request.cells);
    frame.freeze()
}

fn delimited_len(message: &impl Message) -> usize {
    let length = message.encoded_len();
    prost::length_delimiter_len(length) + length
}

/// The call of a response, and its result.
///
/// # Errors
///
/// The error that ends the connection.
pub(super) fn decode(
    mut frame: Bytes,
    server: &str,
) -> Result<(u32, Result<Response, CallError>), CallError> {
    let malformed = |detail: &str| CallError::malformed(format!("{server}: {detail}"));
    let header = take_message(&mut frame).ok_or_else(|| malformed("a response without a header"))?;
    let header = ResponseHeader::decode(header).map_err(|error| malformed(&error.to_string()))?;
    let exception = header
        .exception
        .map(|exception| ServerException::from_response(server, exception));
    let Some(id) = header.call_id.filter(|id| *id != u32::MAX) else {
        // The server rejects the connection itself.
        return Err(match exception {
            Some(mut exception) => {
                if exception.line.contains(NEEDS_KERBEROS) {
                    exception
                        .line
                        .push_str(": HBase has Kerberos (--hbase-kerberos-principal)");
                }
                CallError::Exception(exception)
            }
            None => malformed("a response without the number of a call"),
        });
    };
    if let Some(exception) = exception {
        return Ok((id, Err(CallError::Exception(exception))));
    }
    let message = take_message(&mut frame).ok_or_else(|| malformed("a response without a message"))?;
    let cells = header
        .cell_block_meta
        .and_then(|meta| meta.length)
        .unwrap_or_default() as usize;
    if cells != frame.len() {
        return Err(malformed(
            "the cells of a response have another length than announced",
        ));
    }
    let response = Response {
        message,
        cells: frame,
    };
    Ok((id, Ok(response)))
}

/// The number of the call in the first bytes of a response; `None` if these bytes have none.
pub(super) fn call_of(mut start: Bytes) -> Option<u32> {
    let header = take_message(&mut start)?;
    ResponseHeader::decode(header).ok()?.call_id
}

/// Takes the bytes behind a length.
fn take_message(frame: &mut Bytes) -> Option<Bytes> {
    let length = prost::decode_length_delimiter(&mut *frame).ok()?;
    (length <= frame.remaining()).then(|| frame.split_to(length))
}
