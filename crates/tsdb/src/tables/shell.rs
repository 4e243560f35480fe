//! Commands for HBase's shell.
//!
//! Source: OpenTSDB 2.4, `src/create_table.sh`; HBase 2.6, `create` and `alter` of its shell, which reads
//! bytes of split points from `\xNN`.

use std::fmt::Write as _;

use oxtsdb_row_store::FamilyDef;

use super::request::RequestedTable;

/// The command that creates a table with all its properties.
pub(super) fn create(table: &RequestedTable) -> String {
    let mut command = format!("create '{}'", table.table.def.name);
    for family in &table.table.def.families {
        // Writing to a string cannot fail.
        let _ = write!(
            command,
            ", {{NAME => '{}', VERSIONS => {}, COMPRESSION => '{}', BLOOMFILTER => 'ROW', DATA_BLOCK_ENCODING => 'DIFF'{}}}",
            family.name,
            family.max_versions,
            table.compression.hbase_name(),
            ttl(family)
        );
    }
    if !table.splits.is_empty() {
        let points: Vec<String> = table.splits.starts().map(quoted).collect();
        let _ = write!(command, ", SPLITS => [{}]", points.join(", "));
    }
    command
}

/// The command that sets the block encoding of a table's families, which Thrift cannot set.
pub(super) fn encode_blocks(table: &RequestedTable) -> String {
    let mut command = format!("alter '{}'", table.table.def.name);
    for family in &table.table.def.families {
        let _ = write!(
            command,
            ", {{NAME => '{}', DATA_BLOCK_ENCODING => 'DIFF'}}",
            family.name
        );
    }
    command
}

fn ttl(family: &FamilyDef) -> String {
    family
        .ttl
        .map_or_else(String::new, |ttl| format!(", TTL => {}", ttl.as_secs()))
}

/// Between single quotes the shell leaves `\xNN` to HBase, which makes a byte of it.
fn quoted(bytes: &[u8]) -> String {
    let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02X}")).collect();
    format!("'{escaped}'")
}
