//! Thrift's binary protocol with limits on everything that a gateway announces.
//!
//! The crate `thrift` allocates whatever length a peer announces, and the generated code reserves memory for as
//! many elements as a list claims to have. Here each response has a memory allowance: all bytes, and the size
//! of each element, are charged to it before they are read, and buffers grow only as bytes arrive. Lists have
//! an additional limit, because the generated code allocates them up front.
//!
//! A response that exceeds a limit is an error, after which the connection must be discarded.

use std::io::{BufRead, BufReader, Read, Write};

use thrift::protocol::{
    TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier, TMessageIdentifier, TMessageType,
    TSetIdentifier, TStructIdentifier, TType,
};
use thrift::{ProtocolErrorKind, TransportErrorKind, new_protocol_error, new_transport_error};

use super::socket::Socket;

/// The most elements of a list or set; more than any of our requests can return.
pub(super) const MAX_LIST: usize = 1 << 16;
/// The charge for an element of a list or map: about the size of its Rust struct.
const ELEMENT_BYTES: usize = 96;
/// The maximum length of a call's name.
const MAX_NAME: usize = 64;
/// The maximum nesting of skipped values.
const MAX_DEPTH: i8 = 8;
/// The version at the start of each message.
const VERSION_1: [u8; 2] = [0x80, 0x01];

/// Reads responses of bounded memory size.
#[derive(Debug)]
pub(super) struct BoundedInput<R> {
    reader: BufReader<R>,
    framed: bool,
    /// The allowance of a response.
    limit: usize,
    /// The rest of the allowance of the current response.
    allowance: usize,
    /// The rest of the current frame.
    frame: usize,
}

impl<R: Read> BoundedInput<R> {
    pub(super) fn new(reader: R, framed: bool, limit: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            framed,
            limit,
            allowance: 0,
            frame: 0,
        }
    }

    #[inline]
    fn charge(&mut self, bytes: usize) -> thrift::Result<()> {
        self.allowance = self.allowance.checked_sub(bytes).ok_or_else(|| {
            new_protocol_error(
                ProtocolErrorKind::SizeLimit,
                format!("a response that needs more than {} bytes", self.limit),
            )
        })?;
        Ok(())
    }

    /// Charges bytes that are about to be read.
    #[inline]
    fn admit(&mut self, bytes: usize) -> thrift::Result<()> {
        self.charge(bytes)?;
        if self.framed {
            self.frame = self.frame.checked_sub(bytes).ok_or_else(|| {
                new_protocol_error(ProtocolErrorKind::InvalidData, "a frame ends within a response")
            })?;
        }
        Ok(())
    }

    /// The type and the number of the next field of a struct; `None` at its end.
    #[inline]
    pub(super) fn field(&mut self) -> thrift::Result<Option<(TType, i16)>> {
        match self.kind()? {
            TType::Stop => Ok(None),
            kind => Ok(Some((kind, i16::from_be_bytes(self.array()?)))),
        }
    }

    /// Appends a string to `bytes`, which grows only as the string arrives.
    #[inline]
    pub(super) fn append_string(&mut self, bytes: &mut Vec<u8>) -> thrift::Result<()> {
        let length = self.length("a string")?;
        self.admit(length)?;
        // Short strings, nearly all, are buffered already.
        if let Some(buffered) = self.reader.buffer().get(..length) {
            bytes.extend_from_slice(buffered);
            self.reader.consume(length);
            return Ok(());
        }
        bytes.reserve(length.min(64 << 10));
        if self.reader.by_ref().take(length as u64).read_to_end(bytes)? < length {
            return Err(new_transport_error(
                TransportErrorKind::EndOfFile,
                "the connection ends within a response",
            ));
        }
        Ok(())
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> thrift::Result<[u8; N]> {
        self.admit(N)?;
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    #[inline]
    fn length(&mut self, what: &str) -> thrift::Result<usize> {
        let length = i32::from_be_bytes(self.array()?);
        usize::try_from(length).map_err(|_| {
            new_protocol_error(
                ProtocolErrorKind::NegativeSize,
                format!("{what} with a length of {length}"),
            )
        })
    }

    /// The size of a list or set, as the generated code expects it.
    fn list_size(&mut self) -> thrift::Result<i32> {
        let size = self.length("a list")?;
        if size > MAX_LIST {
            return Err(new_protocol_error(
                ProtocolErrorKind::InvalidData,
                format!("a list of {size} elements, at most {MAX_LIST} are expected"),
            ));
        }
        self.elements(size)
    }

    /// Charges elements.
    fn elements(&mut self, size: usize) -> thrift::Result<i32> {
        self.charge(size.saturating_mul(ELEMENT_BYTES))?;
        i32::try_from(size).map_err(|error| {
            new_protocol_error(ProtocolErrorKind::SizeLimit, format!("a size of {size}: {error}"))
        })
    }

    #[inline]
    fn kind(&mut self) -> thrift::Result<TType> {
        let [byte] = self.array()?;
        Ok(match byte {
            0 => TType::Stop,
            1 => TType::Void,
            2 => TType::Bool,
            3 => TType::I08,
            4 => TType::Double,
            6 => TType::I16,
            8 => TType::I32,
            10 => TType::I64,
            11 => TType::String,
            12 => TType::Struct,
            13 => TType::Map,
            14 => TType::Set,
            15 => TType::List,
            _ => {
                return Err(new_protocol_error(
                    ProtocolErrorKind::InvalidData,
                    format!("a field of unknown type {byte}"),
                ));
            }
        })
    }

    /// The error for bytes that are not a Thrift response; it shows them.
    fn not_thrift(&mut self, first: &[u8]) -> thrift::Error {
        // Shows only the bytes that have arrived; waiting for more could block forever.
        let shown: Vec<u8> = first
            .iter()
            .chain(self.reader.buffer())
            .take(24)
            .copied()
            .collect();
        new_protocol_error(
            ProtocolErrorKind::BadVersion,
            format!("no Thrift response but `{}`", shown.escape_ascii()),
        )
    }
}

impl<R: Read> TInputProtocol for BoundedInput<R> {
    fn read_message_begin(&mut self) -> thrift::Result<TMessageIdentifier> {
        self.allowance = self.limit;
        if self.framed {
            let mut length = [0; 4];
            self.reader.read_exact(&mut length)?;
            match usize::try_from(i32::from_be_bytes(length)) {
                Ok(frame) if frame <= self.limit => self.frame = frame,
                // Probably an unframed message or another protocol; the error shows the bytes.
                _ => return Err(self.not_thrift(&length)),
            }
        }
        let version: [u8; 4] = self.array()?;
        if version[..2] != VERSION_1 {
            return Err(self.not_thrift(&version));
        }
        let message_type = TMessageType::try_from(version[3])?;
        let length = self.length("a name")?;
        if length > MAX_NAME {
            return Err(new_protocol_error(
                ProtocolErrorKind::InvalidData,
                format!("a call's name of {length} bytes"),
            ));
        }
        self.admit(length)?;
        let mut name = [0; MAX_NAME];
        self.reader.read_exact(&mut name[..length])?;
        let name = String::from_utf8_lossy(&name[..length]).into_owned();
        Ok(TMessageIdentifier::new(name, message_type, self.read_i32()?))
    }

    fn read_message_end(&mut self) -> thrift::Result<()> {
        // Only one request is in flight, so nothing can follow its response.
        let rest = if self.framed { self.frame } else { 0 } + self.reader.buffer().len();
        if rest > 0 {
            return Err(new_protocol_error(
                ProtocolErrorKind::InvalidData,
                format!("{rest} bytes after the end of a response"),
            ));
        }
        Ok(())
    }

    fn read_struct_begin(&mut self) -> thrift::Result<Option<TStructIdentifier>> {
        Ok(None)
    }

    fn read_struct_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_field_begin(&mut self) -> thrift::Result<TFieldIdentifier> {
        let field_type = self.kind()?;
        let id = match field_type {
            TType::Stop => 0,
            _ => self.read_i16()?,
        };
        Ok(TFieldIdentifier::new::<Option<String>, String, i16>(
            None, field_type, id,
        ))
    }

    fn read_field_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_bool(&mut self) -> thrift::Result<bool> {
        Ok(self.read_i8()? != 0)
    }

    fn read_bytes(&mut self) -> thrift::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.append_string(&mut bytes)?;
        Ok(bytes)
    }

    fn read_i8(&mut self) -> thrift::Result<i8> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    fn read_i16(&mut self) -> thrift::Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn read_i32(&mut self) -> thrift::Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn read_i64(&mut self) -> thrift::Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn read_double(&mut self) -> thrift::Result<f64> {
        Ok(f64::from_be_bytes(self.array()?))
    }

    fn read_string(&mut self) -> thrift::Result<String> {
        Ok(String::from_utf8(self.read_bytes()?)?)
    }

    fn read_list_begin(&mut self) -> thrift::Result<TListIdentifier> {
        let element_type = self.kind()?;
        Ok(TListIdentifier::new(element_type, self.list_size()?))
    }

    fn read_list_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_set_begin(&mut self) -> thrift::Result<TSetIdentifier> {
        let element_type = self.kind()?;
        Ok(TSetIdentifier::new(element_type, self.list_size()?))
    }

    fn read_set_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_map_begin(&mut self) -> thrift::Result<TMapIdentifier> {
        let key_type = self.kind()?;
        let value_type = self.kind()?;
        let size = self.length("a map")?;
        // A row of many cells is a long map, which grows as its entries arrive.
        Ok(TMapIdentifier::new(key_type, value_type, self.elements(size)?))
    }

    fn read_map_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn skip(&mut self, field_type: TType) -> thrift::Result<()> {
        self.skip_till_depth(field_type, MAX_DEPTH)
    }

    fn read_byte(&mut self) -> thrift::Result<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }
}

/// Collects a request and sends it in one piece, framed if configured.
#[derive(Debug)]
pub(super) struct RequestBuffer {
    socket: Socket,
    framed: bool,
    /// Space for the frame's length, followed by the request.
    bytes: Vec<u8>,
}

/// Bytes of the length of a frame.
const FRAME_HEADER: usize = 4;
/// Buffers above this size are released after the request.
const KEPT_CAPACITY: usize = 4 << 20;

impl RequestBuffer {
    pub(super) fn new(socket: Socket, framed: bool) -> Self {
        Self {
            socket,
            framed,
            bytes: vec![0; FRAME_HEADER],
        }
    }
}

impl Write for RequestBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let length = i32::try_from(self.bytes.len() - FRAME_HEADER)
            .map_err(|_| std::io::Error::other("a request of more than 2 GiB"))?;
        let sent = if self.framed {
            self.bytes[..FRAME_HEADER].copy_from_slice(&length.to_be_bytes());
            &self.bytes[..]
        } else {
            &self.bytes[FRAME_HEADER..]
        };
        self.socket.write_all(sent)?;
        self.bytes.truncate(FRAME_HEADER);
        self.bytes.shrink_to(KEPT_CAPACITY);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
