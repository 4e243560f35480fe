//! The client of a gateway: the generated client, and calls of our own for requests that return rows.

use std::io::{Read, Write};

use hbase_thrift::hbase::{IOError, IllegalArgument, THbaseSyncClientMarker};
use thrift::TThriftClient;
use thrift::protocol::{
    TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier,
    TMessageIdentifier, TMessageType, TOutputProtocol, TType, verify_expected_message_type,
    verify_expected_sequence_number, verify_expected_service_call,
};

use super::protocol::BoundedInput;
use super::rows::{RowPart, read_rows};

/// A client over the bounded protocol; one request is in flight at a time.
pub(super) struct Client<R: Read, W: Write> {
    input: BoundedInput<R>,
    output: TBinaryOutputProtocol<W>,
    sequence: i32,
}

impl<R: Read, W: Write> TThriftClient for Client<R, W> {
    fn i_prot_mut(&mut self) -> &mut dyn TInputProtocol {
        &mut self.input
    }

    fn o_prot_mut(&mut self) -> &mut dyn TOutputProtocol {
        &mut self.output
    }

    fn sequence_number(&self) -> i32 {
        self.sequence
    }

    fn increment_sequence_number(&mut self) -> i32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }
}

// This implements all calls of the generated client.
impl<R: Read, W: Write> THbaseSyncClientMarker for Client<R, W> {}

impl<R: Read, W: Write> Client<R, W> {
    pub(super) fn new(input: BoundedInput<R>, output: TBinaryOutputProtocol<W>) -> Self {
        Self {
            input,
            output,
            sequence: 0,
        }
    }

    /// `scannerGetList`: the next rows of a scanner, or parts of them.
    pub(super) fn next_rows(&mut self, scanner: i32, parts: i32) -> thrift::Result<Vec<RowPart>> {
        self.call("scannerGetList", |output| {
            field(output, TType::I32, 1)?;
            output.write_i32(scanner)?;
            field(output, TType::I32, 2)?;
            output.write_i32(parts)
        })
    }

    /// `getRowsWithColumns`: the rows that exist, in the order of their keys.
    pub(super) fn rows_by_key(
        &mut self,
        table: &[u8],
        keys: &[Vec<u8>],
        columns: &[Vec<u8>],
    ) -> thrift::Result<Vec<RowPart>> {
        self.call("getRowsWithColumns", |output| {
            field(output, TType::String, 1)?;
            output.write_bytes(table)?;
            for (number, strings) in [(2, keys), (3, columns)] {
                field(output, TType::List, number)?;
                let count = size(strings.len())?;
                output.write_list_begin(&TListIdentifier::new(TType::String, count))?;
                strings.iter().try_for_each(|string| output.write_bytes(string))?;
            }
            field(output, TType::Map, 4)?;
            output.write_map_begin(&TMapIdentifier::new(TType::String, TType::String, 0))
        })
    }

    /// Sends a call and reads its response, a list of rows or an exception.
    fn call(
        &mut self,
        name: &str,
        arguments: impl FnOnce(&mut TBinaryOutputProtocol<W>) -> thrift::Result<()>,
    ) -> thrift::Result<Vec<RowPart>> {
        let sequence = self.increment_sequence_number();
        let output = &mut self.output;
        output.write_message_begin(&TMessageIdentifier::new(name, TMessageType::Call, sequence))?;
        arguments(output)?;
        output.write_field_stop()?;
        output.write_message_end()?;
        output.flush()?;

        let input = &mut self.input;
        let header = input.read_message_begin()?;
        verify_expected_sequence_number(sequence, header.sequence_number)?;
        verify_expected_service_call(name, &header.name)?;
        if header.message_type == TMessageType::Exception {
            let error = thrift::Error::read_application_error_from_in_protocol(input)?;
            input.read_message_end()?;
            return Err(thrift::Error::Application(error));
        }
        verify_expected_message_type(TMessageType::Reply, header.message_type)?;
        let (mut rows, mut exception) = (None, None);
        while let Some((kind, number)) = input.field()? {
            match (number, kind) {
                (0, TType::List) => rows = Some(read_rows(input)?),
                (1, TType::Struct) => {
                    exception = Some(thrift::Error::from(IOError::read_from_in_protocol(input)?));
                }
                (2, TType::Struct) => {
                    exception = Some(thrift::Error::from(IllegalArgument::read_from_in_protocol(
                        input,
                    )?));
                }
                _ => input.skip(kind)?,
            }
        }
        input.read_message_end()?;
        match (exception, rows) {
            (Some(exception), _) => Err(exception),
            (None, Some(rows)) => Ok(rows),
            (None, None) => Err(thrift::new_application_error(
                thrift::ApplicationErrorKind::MissingResult,
                format!("{name}: the response has no result"),
            )),
        }
    }
}

fn field<W: Write>(output: &mut TBinaryOutputProtocol<W>, kind: TType, number: i16) -> thrift::Result<()> {
    output.write_field_begin(&TFieldIdentifier::new("", kind, number))
}

fn size(length: usize) -> thrift::Result<i32> {
    i32::try_from(length).map_err(|error| {
        thrift::new_protocol_error(
            thrift::ProtocolErrorKind::SizeLimit,
            format!("a list of {length}: {error}"),
        )
    })
}
