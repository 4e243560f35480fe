//! Encoded responses of a gateway.

use hbase_thrift::hbase::{IOError, IllegalArgument, TCell, TColumn, TRowResult};
use thrift::protocol::{
    TBinaryOutputProtocol, TFieldIdentifier, TListIdentifier, TMessageIdentifier, TMessageType,
    TOutputProtocol, TType,
};

/// Writes the fields of a response.
pub type Output = TBinaryOutputProtocol<Vec<u8>>;

/// The fields of a response.
pub struct Reply(Vec<u8>);

impl Reply {
    /// The complete response to a request.
    pub fn encode(&self, name: &str, sequence: i32) -> Vec<u8> {
        let mut bytes = header(name, TMessageType::Reply, sequence);
        bytes.extend_from_slice(&self.0);
        bytes
    }
}

/// The header of a response.
pub fn header(name: &str, kind: TMessageType, sequence: i32) -> Vec<u8> {
    let mut output = Output::new(Vec::new(), true);
    output
        .write_message_begin(&TMessageIdentifier::new(name, kind, sequence))
        .unwrap();
    output.transport
}

/// A response with these fields, followed by the stop field.
pub fn fields(write: impl FnOnce(&mut Output) -> thrift::Result<()>) -> Reply {
    let mut output = Output::new(Vec::new(), true);
    write(&mut output).unwrap();
    output.write_field_stop().unwrap();
    Reply(output.transport)
}

/// A response without a result.
pub fn nothing() -> Reply {
    fields(|_| Ok(()))
}

/// A 32-bit result, such as a scanner id.
pub fn integer(value: i32) -> Reply {
    fields(|output| {
        output.write_field_begin(&TFieldIdentifier::new("success", TType::I32, 0))?;
        output.write_i32(value)
    })
}

/// A 64-bit result, such as a counter.
pub fn long(value: i64) -> Reply {
    fields(|output| {
        output.write_field_begin(&TFieldIdentifier::new("success", TType::I64, 0))?;
        output.write_i64(value)
    })
}

/// A list of names of tables.
pub fn names(names: &[&str]) -> Reply {
    fields(|output| {
        output.write_field_begin(&TFieldIdentifier::new("success", TType::List, 0))?;
        let size = i32::try_from(names.len()).unwrap();
        output.write_list_begin(&TListIdentifier::new(TType::String, size))?;
        names
            .iter()
            .try_for_each(|name| output.write_bytes(name.as_bytes()))
    })
}

/// A list of rows: key, and cells with the qualifiers given, in family `t`.
pub fn rows(rows: &[(&[u8], &[&[u8]])]) -> Reply {
    let rows: Vec<TRowResult> = rows
        .iter()
        .map(|(key, qualifiers)| row(key, qualifiers))
        .collect();
    fields(|output| {
        output.write_field_begin(&TFieldIdentifier::new("success", TType::List, 0))?;
        let size = i32::try_from(rows.len()).unwrap();
        output.write_list_begin(&TListIdentifier::new(TType::Struct, size))?;
        rows.iter().try_for_each(|row| row.write_to_out_protocol(output))
    })
}

fn row(key: &[u8], qualifiers: &[&[u8]]) -> TRowResult {
    let columns = qualifiers.iter().map(|qualifier| TColumn {
        column_name: Some([b"t:", *qualifier].concat()),
        cell: Some(TCell {
            value: Some(b"value".to_vec()),
            timestamp: Some(1_000),
        }),
    });
    TRowResult {
        row: Some(key.to_vec()),
        columns: None,
        sorted_columns: Some(columns.collect()),
    }
}

/// An exception of HBase's client.
pub fn io_error(message: &str) -> Reply {
    let error = IOError {
        message: Some(message.to_owned()),
        can_retry: Some(true),
    };
    fields(|output| {
        output.write_field_begin(&TFieldIdentifier::new("io", TType::Struct, 1))?;
        error.write_to_out_protocol(output)
    })
}

/// An exception about an argument, for calls that declare it second.
pub fn illegal_argument(message: &str) -> Reply {
    let error = IllegalArgument {
        message: Some(message.to_owned()),
    };
    fields(|output| {
        output.write_field_begin(&TFieldIdentifier::new("ia", TType::Struct, 2))?;
        error.write_to_out_protocol(output)
    })
}
