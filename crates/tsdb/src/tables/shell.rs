//! Commands for HBase's shell.
//!
//! Source: OpenTSDB 2.4, `src/create_table.sh`; HBase 2.6, `create` and `alter` of its shell, which reads
//! bytes of split points from `\xNN`.

use std::fmt::Write as _;

use oxtsdb_row_store::FamilyDef;
use oxtsdb_schema::{SaltLayout, UidWidth};

use super::Wanted;

/// Where the regions of a table begin, without the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Splits(Vec<Vec<u8>>);

impl Splits {
    /// A region for each bucket of a salt.
    pub(super) fn by_bucket(salt: SaltLayout) -> Self {
        let starts = salt.buckets().skip(1);
        Self(
            starts
                .map(|bucket| salt.bytes_of(bucket).as_bytes().to_vec())
                .collect(),
        )
    }

    /// So many regions with as many metric UIDs each.
    pub(super) fn by_metric(regions: u32, width: UidWidth) -> Self {
        let space = u128::from(width.max_number()) + 1;
        let starts = (1..regions).map(|region| space * u128::from(region) / u128::from(regions));
        let bytes = |start: u128| start.to_be_bytes()[16 - width.bytes()..].to_vec();
        let mut starts: Vec<Vec<u8>> = starts.map(bytes).collect();
        // A narrow UID has fewer numbers than there may be regions.
        starts.dedup();
        starts.retain(|start| start.iter().any(|byte| *byte != 0));
        Self(starts)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Makes a table with everything that it should have.
pub(super) fn create(wanted: &Wanted) -> String {
    let mut command = format!("create '{}'", wanted.table.def.name);
    for family in &wanted.table.def.families {
        // Writing to a string cannot fail.
        let _ = write!(
            command,
            ", {{NAME => '{}', VERSIONS => {}, COMPRESSION => '{}', BLOOMFILTER => 'ROW', DATA_BLOCK_ENCODING => 'DIFF'{}}}",
            family.name,
            family.max_versions,
            wanted.compression.hbase_name(),
            ttl(family)
        );
    }
    if !wanted.splits.is_empty() {
        let points: Vec<String> = wanted.splits.0.iter().map(|point| quoted(point)).collect();
        let _ = write!(command, ", SPLITS => [{}]", points.join(", "));
    }
    command
}

/// Gives the families of a table the encoding that Thrift cannot give them.
pub(super) fn encode_blocks(wanted: &Wanted) -> String {
    let mut command = format!("alter '{}'", wanted.table.def.name);
    for family in &wanted.table.def.families {
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
