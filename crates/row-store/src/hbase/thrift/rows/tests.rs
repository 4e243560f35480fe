use hbase_thrift::hbase::{HbaseSyncClient, TCell, TColumn, THbaseSyncClient, TRowResult};
use proptest::prelude::*;
use thrift::protocol::{
    TBinaryOutputProtocol, TFieldIdentifier, TListIdentifier, TMessageIdentifier, TMessageType,
    TOutputProtocol,
};

use super::*;
use crate::hbase::thrift::client::Client;

const LIMIT: usize = 64 << 20;

/// The response to the first call of a connection.
fn response(name: &str, rows: &[TRowResult]) -> Vec<u8> {
    let mut output = TBinaryOutputProtocol::new(Vec::new(), true);
    output
        .write_message_begin(&TMessageIdentifier::new(name, TMessageType::Reply, 1))
        .unwrap();
    output
        .write_field_begin(&TFieldIdentifier::new("success", TType::List, 0))
        .unwrap();
    let size = i32::try_from(rows.len()).unwrap();
    output
        .write_list_begin(&TListIdentifier::new(TType::Struct, size))
        .unwrap();
    for row in rows {
        row.write_to_out_protocol(&mut output).unwrap();
    }
    output.write_field_stop().unwrap();
    output.transport
}

fn client(response: &[u8], limit: usize) -> Client<&[u8], Vec<u8>> {
    let input = BoundedInput::new(response, false, limit);
    Client::new(input, TBinaryOutputProtocol::new(Vec::new(), true))
}

fn decode(rows: &[TRowResult]) -> Vec<RowPart> {
    client(&response("scannerGetList", rows), LIMIT)
        .next_rows(7, 10)
        .unwrap()
}

fn cell(value: &[u8], timestamp_ms: i64) -> TCell {
    TCell {
        value: Some(value.to_vec()),
        timestamp: Some(timestamp_ms),
    }
}

fn sorted(key: &str, columns: &[(&str, &str)]) -> TRowResult {
    let columns = columns.iter().map(|(name, value)| TColumn {
        column_name: Some(name.as_bytes().to_vec()),
        cell: Some(cell(value.as_bytes(), 5)),
    });
    TRowResult {
        row: Some(key.as_bytes().to_vec()),
        columns: None,
        sorted_columns: Some(columns.collect()),
    }
}

/// Family, qualifier and value of each cell.
fn cells(row: &Row) -> Vec<(&str, &[u8], &[u8])> {
    row.cells()
        .map(|cell| (cell.family, cell.qualifier, cell.value))
        .collect()
}

#[test]
fn sorts_cells_by_family_and_qualifier() {
    let unsorted = sorted("k", &[("t2:a", "1"), ("t:b", "2"), ("t:a:", "3")]);
    let row = decode(&[unsorted]).remove(0).into_row().unwrap();
    assert_eq!(row.key(), b"k");
    assert_eq!(
        cells(&row),
        [
            ("t", &b"a:"[..], &b"3"[..]),
            ("t", b"b", b"2"),
            ("t2", b"a", b"1")
        ]
    );
}

#[test]
fn appends_parts_with_other_families() {
    let parts = [
        sorted("k", &[("b:1", "1")]),
        sorted("k", &[("b:2", "2"), ("c:1", "3"), ("a:1", "4")]),
    ];
    let mut row = decode(&parts[..1]).remove(0);
    row.append(&decode(&parts[1..])[0]).unwrap();
    let row = row.into_row().unwrap();
    let families: Vec<_> = cells(&row).iter().map(|(family, ..)| *family).collect();
    assert_eq!(families, ["a", "b", "b", "c"]);
    assert!(decode(&[sorted("k", &[])]).remove(0).into_row().is_none());
}

#[test]
fn rejects_columns_that_no_table_has() {
    let longest = format!("t:{}", "q".repeat(MAX_QUALIFIER + 1));
    let many: Vec<String> = (0..=256).map(|family| format!("f{family}:")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    let mut without_cell = sorted("k", &[("t:a", "")]);
    without_cell.sorted_columns.as_mut().unwrap()[0].cell = None;
    for (row, expected) in [
        (
            sorted("k", &[("no_family", "")]),
            "column `no_family` without a family",
        ),
        (sorted("k", &[(&longest, "")]), "a qualifier of"),
        (sorted("k", &many), "a row with 257 families"),
        (without_cell, "a column without a cell"),
    ] {
        let result = client(&response("scannerGetList", &[row]), LIMIT).next_rows(7, 10);
        let error = format!("{:?}", result.unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    let not_utf8 = TRowResult {
        columns: Some([(b"\xff:a".to_vec(), cell(b"", 1))].into()),
        ..TRowResult::default()
    };
    let result = client(&response("getRowsWithColumns", &[not_utf8]), LIMIT).rows_by_key(b"t", &[], &[]);
    assert!(format!("{:?}", result.unwrap_err()).contains("not UTF-8"));
}

#[test]
fn sends_what_the_generated_client_sends() {
    let (mut ours, mut generated) = (Vec::new(), Vec::new());
    let keys = [b"key".to_vec(), Vec::new()];
    let columns = [b"t:".to_vec()];
    let input = || BoundedInput::new(&b""[..], false, LIMIT);
    let _ = Client::new(input(), TBinaryOutputProtocol::new(&mut ours, true))
        .rows_by_key(b"tsdb", &keys, &columns);
    let _ = Client::new(input(), TBinaryOutputProtocol::new(&mut ours, true)).next_rows(7, 128);
    let _ = HbaseSyncClient::new(input(), TBinaryOutputProtocol::new(&mut generated, true))
        .get_rows_with_columns(
            b"tsdb".to_vec(),
            keys.to_vec(),
            columns.to_vec(),
            crate::hbase::thrift::raw::no_attributes(),
        );
    let _ = HbaseSyncClient::new(input(), TBinaryOutputProtocol::new(&mut generated, true))
        .scanner_get_list(7, 128);
    assert_eq!(ours, generated);
}

fn rows() -> impl Strategy<Value = Vec<TRowResult>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let name = || {
        ("[st]{1,2}", bytes())
            .prop_map(|(family, qualifier)| [family.as_bytes(), b":", qualifier.as_slice()].concat())
    };
    let cell = || (bytes(), any::<i64>()).prop_map(|(value, timestamp_ms)| cell(&value, timestamp_ms));
    let column = (name(), cell()).prop_map(|(name, cell)| TColumn {
        column_name: Some(name),
        cell: Some(cell),
    });
    let mapped = prop::collection::btree_map(name(), cell(), 0..6);
    let row = (
        bytes(),
        mapped,
        prop::collection::vec(column, 0..6),
        any::<bool>(),
    );
    let row = row.prop_map(|(row, columns, sorted_columns, is_get)| TRowResult {
        row: Some(row),
        columns: is_get.then_some(columns),
        sorted_columns: (!is_get).then_some(sorted_columns),
    });
    prop::collection::vec(row, 0..6)
}

proptest! {
    #[test]
    fn decodes_what_the_generated_code_encodes(rows in rows()) {
        let decoded = decode(&rows);
        prop_assert_eq!(decoded.len(), rows.len());
        for (part, row) in decoded.into_iter().zip(&rows) {
            prop_assert_eq!(Some(&part.key), row.row.as_ref());
            let mapped = row.columns.iter().flatten();
            let listed = row.sorted_columns.iter().flatten();
            let listed = listed.map(|column| (column.column_name.as_ref().unwrap(), column.cell.as_ref().unwrap()));
            let mut expected: Vec<_> = mapped
                .chain(listed)
                .map(|(name, cell)| {
                    let at = name.iter().position(|byte| *byte == b':').unwrap();
                    let (value, timestamp_ms) = (cell.value.clone().unwrap(), cell.timestamp.unwrap());
                    (name[..at].to_vec(), name[at + 1..].to_vec(), timestamp_ms, value)
                })
                .collect();
            expected.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
            let decoded_row = part.into_row();
            let decoded_cells: Vec<_> = decoded_row
                .iter()
                .flat_map(Row::cells)
                .map(|cell| {
                    let name = (cell.family.as_bytes().to_vec(), cell.qualifier.to_vec());
                    (name.0, name.1, cell.timestamp_ms, cell.value.to_vec())
                })
                .collect();
            prop_assert_eq!(decoded_cells, expected);
        }
    }

    /// Broken responses are errors or other rows; they may announce far more than the allowance.
    #[test]
    fn broken_responses_do_not_panic(
        rows in rows(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = response("scannerGetList", &rows);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() * 4).max(1));
        let _ = client(&bytes, 1 << 16).next_rows(7, 10);
    }
}
