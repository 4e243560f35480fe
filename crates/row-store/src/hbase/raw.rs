//! The structs of the Thrift interface, with every field said.
//!
//! Their defaults in the generated code are not those of the interface: `Mutation::default()` skips
//! the write-ahead log, `TScan::default()` finds nothing. And the builders of the crate take text
//! where HBase has bytes. So they are made here and nowhere else.

use std::collections::BTreeMap;

use hbase_thrift::hbase::{BatchMutation, ColumnDescriptor, Mutation, TAppend, TScan};

use crate::limits::MAX_ROW_KEY;
use crate::{CellAddress, ColumnSelection, FamilyDef, Scan, StoreError, TableName, rules};

/// Attributes of an operation; we have none.
pub(super) fn no_attributes() -> BTreeMap<Vec<u8>, Vec<u8>> {
    BTreeMap::new()
}

/// A table's name as HBase writes it: the default namespace is left out.
pub(super) fn table_name(table: &TableName) -> Vec<u8> {
    table.to_string().into_bytes()
}

/// The longest row key of a table. HBase's client finds the region of a row by a key of its own,
/// `table,row,99999999999999`, which has the limit of all keys. One byte more is for the key that
/// comes after this one, at which a scan is taken up again.
pub(super) fn max_row_key(table: &TableName) -> usize {
    let around = table.to_string().len() + ",,99999999999999".len();
    MAX_ROW_KEY.saturating_sub(around + 1)
}

/// Checks the key of a row of a table.
pub(super) fn check_row_key(table: &TableName, key: &[u8]) -> Result<(), StoreError> {
    rules::check_row_key_up_to(max_row_key(table), key)
}

/// Checks the ends of a scan: they are row keys, or directly after one.
pub(super) fn check_bounds(table: &TableName, scan: &Scan) -> Result<(), StoreError> {
    let longest = max_row_key(table) + 1;
    for (name, bound) in [("start", &scan.start), ("stop", &scan.stop)] {
        if bound.len() > longest {
            return Err(StoreError::Invalid {
                detail: format!(
                    "{name} of a scan has {} bytes, at most {longest} are allowed",
                    bound.len()
                ),
            });
        }
    }
    Ok(())
}

/// `family:qualifier`. The first `:` ends the family, so the qualifier may hold any bytes; without
/// one after the `:` it is the empty qualifier, not the family.
pub(super) fn column(family: &str, qualifier: &[u8]) -> Vec<u8> {
    let mut column = Vec::with_capacity(family.len() + 1 + qualifier.len());
    column.extend_from_slice(family.as_bytes());
    column.push(b':');
    column.extend_from_slice(qualifier);
    column
}

/// The columns of a get or scan. HBase takes none for all of them, so an empty
/// [`ColumnSelection::Columns`] must not be asked for.
pub(super) fn columns(selection: &ColumnSelection) -> Vec<Vec<u8>> {
    match selection {
        ColumnSelection::All => Vec::new(),
        // Without `:` it is the family.
        ColumnSelection::Family(family) => vec![family.clone().into_bytes()],
        ColumnSelection::Columns(columns) => columns
            .iter()
            .map(|(family, qualifier)| column(family, qualifier))
            .collect(),
    }
}

/// A put.
pub(super) fn put(family: &str, qualifier: &[u8], value: &[u8]) -> Mutation {
    Mutation {
        is_delete: Some(false),
        column: Some(column(family, qualifier)),
        value: Some(value.to_vec()),
        write_to_w_a_l: Some(true),
    }
}

/// A delete of all versions of a column, or of a whole family.
pub(super) fn delete(family: &str, qualifier: Option<&[u8]>) -> Mutation {
    Mutation {
        is_delete: Some(true),
        column: Some(match qualifier {
            Some(qualifier) => column(family, qualifier),
            None => family.as_bytes().to_vec(),
        }),
        value: None,
        write_to_w_a_l: Some(true),
    }
}

/// Mutations of one row.
pub(super) fn row_mutations(row: &[u8], mutations: Vec<Mutation>) -> BatchMutation {
    BatchMutation {
        row: Some(row.to_vec()),
        mutations: Some(mutations),
    }
}

/// An append to one cell.
pub(super) fn append(table: &TableName, cell: &CellAddress, value: &[u8]) -> TAppend {
    TAppend {
        table: Some(table_name(table)),
        row: Some(cell.row.clone()),
        columns: Some(vec![column(&cell.family, &cell.qualifier)]),
        values: Some(vec![value.to_vec()]),
    }
}

/// What a scanner is opened with.
#[derive(Clone, Debug)]
pub(super) struct ScanRange {
    /// First row, inside; empty: open. When `reverse`, the range descends.
    pub(super) start: Vec<u8>,
    /// Last row, outside; empty: open.
    pub(super) stop: Vec<u8>,
    /// From greater to smaller keys.
    pub(super) reverse: bool,
}

/// A scan that returns the cells of a row in their order, in parts of so many cells, and that fetches
/// so many parts from a region server at once.
pub(super) fn scan(range: ScanRange, selection: &ColumnSelection, cells: i32, parts: i32) -> TScan {
    let open_or = |key: Vec<u8>| (!key.is_empty()).then_some(key);
    TScan {
        start_row: open_or(range.start),
        stop_row: open_or(range.stop),
        timestamp: None,
        columns: Some(columns(selection)).filter(|columns| !columns.is_empty()),
        caching: Some(parts),
        filter_string: None,
        batch_size: Some(cells),
        sort_columns: Some(true),
        reversed: Some(range.reverse),
        cache_blocks: Some(true),
    }
}

/// A scan that returns one cell of each row, without its value; as many rows are fetched from a region
/// server at once.
pub(super) fn scan_of_keys(range: ScanRange, selection: &ColumnSelection, rows: i32) -> TScan {
    TScan {
        filter_string: Some(b"FirstKeyOnlyFilter() AND KeyOnlyFilter()".to_vec()),
        batch_size: None,
        ..scan(range, selection, 1, rows)
    }
}

/// A family for a new table. Bloom filters by row are what OpenTSDB's tables have; the block cache
/// is HBase's own default, which the interface would turn off.
pub(super) fn family(
    family: &FamilyDef,
    max_versions: i32,
    ttl_seconds: i32,
    compression: &str,
) -> ColumnDescriptor {
    ColumnDescriptor {
        name: Some(column(&family.name, b"")),
        max_versions: Some(max_versions),
        compression: Some(compression.to_owned()),
        in_memory: Some(false),
        bloom_filter_type: Some("ROW".to_owned()),
        // Neither is read by HBase any more.
        bloom_filter_vector_size: Some(0),
        bloom_filter_nb_hashes: Some(0),
        block_cache_enabled: Some(true),
        time_to_live: Some(ttl_seconds),
    }
}
