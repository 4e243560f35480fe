use hbase_thrift::hbase::{HbaseSyncClient, TCell, TColumn, THbaseSyncClient, TRowResult};
use proptest::prelude::*;
use thrift::protocol::{TBinaryOutputProtocol, TOutputProtocol};

use super::*;

/// The response to the first call of a connection.
fn response(rows: &[TRowResult]) -> Vec<u8> {
    let mut output = TBinaryOutputProtocol::new(Vec::new(), true);
    output
        .write_message_begin(&TMessageIdentifier::new("getRows", TMessageType::Reply, 1))
        .unwrap();
    output
        .write_field_begin(&TFieldIdentifier::new("success", TType::List, 0))
        .unwrap();
    output
        .write_list_begin(&TListIdentifier::new(
            TType::Struct,
            i32::try_from(rows.len()).unwrap(),
        ))
        .unwrap();
    for row in rows {
        row.write_to_out_protocol(&mut output).unwrap();
    }
    output.write_field_stop().unwrap();
    output.transport
}

/// The result of the generated client for a response.
fn decode(response: &[u8], framed: bool, limit: usize) -> thrift::Result<Vec<TRowResult>> {
    let mut bytes = response.to_vec();
    if framed {
        bytes.splice(..0, i32::try_from(response.len()).unwrap().to_be_bytes());
    }
    let input = BoundedInput::new(bytes.as_slice(), framed, limit);
    let output = TBinaryOutputProtocol::new(Vec::new(), true);
    HbaseSyncClient::new(input, output).get_rows(Vec::new(), Vec::new(), super::super::raw::no_attributes())
}

fn rows() -> impl Strategy<Value = Vec<TRowResult>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let cell = (bytes(), any::<i64>()).prop_map(|(value, timestamp)| TCell {
        value: Some(value),
        timestamp: Some(timestamp),
    });
    let batch = (bytes(), cell.clone()).prop_map(|(name, cell)| TColumn {
        column_name: Some(name),
        cell: Some(cell),
    });
    let row = (
        bytes(),
        prop::option::of(prop::collection::btree_map(bytes(), cell, 0..4)),
        prop::option::of(prop::collection::vec(batch, 0..4)),
    );
    let row = row.prop_map(|(row, columns, sorted_columns)| TRowResult {
        row: Some(row),
        columns,
        sorted_columns,
    });
    prop::collection::vec(row, 0..6)
}

proptest! {
    #[test]
    fn responses_round_trip(rows in rows(), framed: bool) {
        let decoded = decode(&response(&rows), framed, 1 << 20);
        prop_assert_eq!(decoded.map_err(|error| error.to_string()), Ok(rows));
    }

    /// Broken responses are errors or other rows; they may announce far more than the allowance.
    #[test]
    fn broken_responses_do_not_panic(
        rows in rows(),
        framed: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = response(&rows);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() * 4).max(1));
        let _ = decode(&bytes, framed, 1 << 16);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), framed: bool) {
        let header = response(&[]);
        // All but the list and the stop.
        let begin = &header[..header.len() - 9];
        let _ = decode(&[begin, &bytes].concat(), framed, 1 << 16);
        let _ = decode(&bytes, framed, 1 << 16);
    }

    /// A response either fits into the allowance or fails.
    #[test]
    fn response_needs_its_memory_allowance(rows in rows(), limit in 0..4_000_usize) {
        let bytes = response(&rows);
        let elements: usize = rows
            .iter()
            .map(|row| {
                let columns = row.columns.as_ref().map_or(0, |columns| columns.len());
                1 + columns + row.sorted_columns.as_ref().map_or(0, Vec::len)
            })
            .sum();
        let needed = bytes.len() + elements * ELEMENT_BYTES;
        match decode(&bytes, false, limit) {
            Ok(decoded) => prop_assert!(decoded == rows && needed <= limit),
            Err(thrift::Error::Protocol(error)) => {
                prop_assert_eq!(error.kind, ProtocolErrorKind::SizeLimit);
                prop_assert!(needed > limit);
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
