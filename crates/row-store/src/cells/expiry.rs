//! Detection of expired columns: merges do not copy them.
//!
//! The time is the system clock's: a clock that is ahead expires cells. The tables of the services have no time to live
//! on this store, and points have a retention that does not follow such a clock.

use std::collections::BTreeMap;

use super::catalog::Catalog;
use super::key::{self, Column};
use super::table::{Expiring, Table};

/// A table is rewritten once one in this many of its bytes has expired.
const EXPIRED_PART: u64 = 4;

/// For each table of rows, the oldest timestamp of each family that has not expired; [`i64::MIN`]: none expires.
#[derive(Debug)]
pub(super) struct Expiry {
    oldest_ms: BTreeMap<u16, [i64; 16]>,
}

impl Expiry {
    pub(super) fn at(catalog: &Catalog, now_ms: i64) -> Self {
        let tables = catalog.by_id().into_iter();
        Self {
            oldest_ms: tables.map(|(id, table)| (id, table.oldest_ms(now_ms))).collect(),
        }
    }

    fn oldest_ms(&self, table: u16, family: u8) -> Option<i64> {
        let oldest_ms = *self.oldest_ms.get(&table)?.get(usize::from(family))?;
        (oldest_ms != i64::MIN).then_some(oldest_ms)
    }

    /// A column of a family with a time to live, and whether all of its cells have expired.
    pub(super) fn column(&self, key: &[u8], stored: &[u8]) -> Option<(Expiring, bool)> {
        let table = u16::from_be_bytes(*key.first_chunk()?);
        let after_row = key.get(key::row_prefix_len(key)?..)?;
        let family = *after_row.first()?;
        let oldest_ms = self.oldest_ms(table, family)?;
        let column = Column::decode(after_row, stored, &mut Vec::new())?;
        let (newest_ms, _) = column.versions().next().flatten()?;
        let expiring = Expiring {
            table,
            family,
            bytes: (key.len() + stored.len()) as u64,
            newest_ms,
        };
        Some((expiring, newest_ms < oldest_ms))
    }

    /// Whether much of a table has expired.
    pub(super) fn is_due(&self, table: &Table) -> bool {
        let expired = table.expiring().iter().filter(|column| {
            let oldest_ms = self.oldest_ms(column.table, column.family);
            oldest_ms.is_some_and(|oldest_ms| column.newest_ms < oldest_ms)
        });
        let bytes: u64 = expired.map(|column| column.bytes).sum();
        bytes > 0 && bytes >= table.byte_len() / EXPIRED_PART
    }
}
