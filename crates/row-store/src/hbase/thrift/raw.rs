//! Constructors of the Thrift structs, with every field set explicitly.
//!
//! The defaults of the generated code differ from the interface's: `Mutation::default()` skips the
//! write-ahead log, and `TScan::default()` finds nothing. The builders of the crate take text where HBase has
//! bytes. The structs are therefore constructed only here.

use std::collections::BTreeMap;

use hbase_thrift::hbase::{BatchMutation, ColumnDescriptor, Mutation, TAppend, TScan};

use crate::{CellAddress, ColumnSelection, FamilyDef, TableName};

/// Attributes of an operation: none.
pub(super) fn no_attributes() -> BTreeMap<Vec<u8>, Vec<u8>> {
    BTreeMap::new()
}

/// A table's name as HBase writes it, without the default namespace.
pub(super) fn table_name(table: &TableName) -> Vec<u8> {
    table.to_string().into_bytes()
}

/// `family:qualifier`. The first `:` ends the family, so the qualifier may contain any bytes; nothing after the
/// `:` is the empty qualifier rather than the family.
pub(super) fn column(family: &str, qualifier: &[u8]) -> Vec<u8> {
    let mut column = Vec::with_capacity(family.len() + 1 + qualifier.len());
    column.extend_from_slice(family.as_bytes());
    column.push(b':');
    column.extend_from_slice(qualifier);
    column
}

/// The columns of a get or scan. HBase takes an empty list for all columns, so callers must handle an empty
/// [`ColumnSelection::Columns`] themselves.
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

/// The range of a scanner.
#[derive(Clone, Debug)]
pub(super) struct ScanRange {
    /// First row, inclusive; empty: unbounded. The upper bound if `reverse`.
    pub(super) start: Vec<u8>,
    /// Last row, exclusive; empty: unbounded.
    pub(super) stop: Vec<u8>,
    /// Whether the scan descends.
    pub(super) reverse: bool,
}

/// A scan that returns the cells of a row in order, in parts of `cells` cells, and fetches `parts` parts from a
/// region server at a time; only rows that pass `filter`, if any.
pub(super) fn scan(
    range: ScanRange,
    selection: &ColumnSelection,
    filter: Option<&str>,
    cells: i32,
    parts: i32,
) -> TScan {
    let open_or = |key: Vec<u8>| (!key.is_empty()).then_some(key);
    TScan {
        start_row: open_or(range.start),
        stop_row: open_or(range.stop),
        timestamp: None,
        columns: Some(columns(selection)).filter(|columns| !columns.is_empty()),
        caching: Some(parts),
        filter_string: filter.map(|filter| filter.as_bytes().to_vec()),
        batch_size: Some(cells),
        sort_columns: Some(true),
        reversed: Some(range.reverse),
        cache_blocks: Some(true),
    }
}

/// A scan that returns one cell of each row, without its value, and fetches `rows` rows from a region server at
/// a time.
pub(super) fn scan_of_keys(
    range: ScanRange,
    selection: &ColumnSelection,
    filter: Option<&str>,
    rows: i32,
) -> TScan {
    const KEYS: &str = "FirstKeyOnlyFilter() AND KeyOnlyFilter()";
    let filter = match filter {
        Some(filter) => &format!("{filter} AND {KEYS}"),
        None => KEYS,
    };
    TScan {
        batch_size: None,
        ..scan(range, selection, Some(filter), 1, rows)
    }
}

/// A family of a new table. Bloom filters by row are what OpenTSDB's tables use; the block cache is HBase's own
/// default, which the interface would turn off.
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
        // HBase ignores both.
        bloom_filter_vector_size: Some(0),
        bloom_filter_nb_hashes: Some(0),
        block_cache_enabled: Some(true),
        time_to_live: Some(ttl_seconds),
    }
}
