//! A table to create: its families, compression and regions.

use oxtsdb_row_store::hbase::Compression;
use oxtsdb_schema::{SaltLayout, UidWidth};
use oxtsdb_server::store::StoreTable;

/// A table to create, and how.
#[derive(Clone, Debug)]
pub(super) struct RequestedTable {
    pub(super) table: StoreTable,
    pub(super) compression: Compression,
    /// Start keys of its regions; empty: one region.
    pub(super) splits: Splits,
}

/// The start keys of a table's regions, without the first.
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

    /// `regions` regions with the same number of metric UIDs each.
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

    pub(super) fn starts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// The start keys, for HBase.
    pub(super) fn keys(&self) -> &[Vec<u8>] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
