//! The memtable of one table: the rows written since the last flush.
//!
//! A write finds its row by hash and appends to the row's buffer. An ordered index of the keys serves scans; it
//! changes only when a row is new.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::merge;
use super::row_buffer::{Action, Entry, RowBuffer};
use crate::{MutationRef, RowMutations};

/// Approximate overhead of a row besides its key and buffer, as measured: the row itself, the reference counts
/// of its key, and its entries in the hash table and the index.
const ROW_OVERHEAD: usize = 176;

/// Rows of one table, by key.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    rows: Vec<MemoryRow>,
    by_hash: HashTable<u32>,
    ordered: BTreeMap<Arc<[u8]>, u32>,
    bytes: usize,
    /// The current id epoch, and the number of ids assigned in it.
    assigned: (u64, u32),
}

#[derive(Debug)]
struct MemoryRow {
    key: Arc<[u8]>,
    hash: u64,
    buffer: RowBuffer,
    /// The id epoch in which the row has an id, and that id.
    assigned: (u64, u32),
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    hasher.finish()
}

impl Memtable {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes of a row.
    pub(super) fn get(&self, key: &[u8]) -> Option<&RowBuffer> {
        let slot = *self.by_hash.find(hash_of(key), |slot| self.key(*slot) == key)?;
        self.rows.get(slot as usize).map(|row| &row.buffer)
    }

    /// The rows whose keys are in a range, in order.
    pub(super) fn range<'a>(
        &'a self,
        range: (std::ops::Bound<&'a [u8]>, std::ops::Bound<&'a [u8]>),
    ) -> impl DoubleEndedIterator<Item = (&'a Arc<[u8]>, &'a RowBuffer)> {
        self.ordered
            .range::<[u8], _>(range)
            .filter_map(|(key, slot)| self.rows.get(*slot as usize).map(|row| (key, &row.buffer)))
    }

    /// Applies mutations to the row at a slot. `families` maps each family of the batch to the table's family;
    /// `max_versions` are those of the table's families.
    pub(super) fn apply(
        &mut self,
        slot: u32,
        row: &RowMutations<'_>,
        families: &[u8],
        time_ms: i64,
        max_versions: &[u32; 16],
    ) {
        let Some(memory_row) = self.rows.get_mut(slot as usize) else {
            return;
        };
        let buffer = &mut memory_row.buffer;
        let before = buffer.capacity();
        for mutation in row.iter() {
            buffer.push(&entry_of(&mutation, families, time_ms));
        }
        if buffer.wants_compaction() {
            buffer.replace(merge::compact(buffer, *max_versions));
        }
        self.bytes = self.bytes + buffer.capacity() - before;
    }

    /// Prefetches the row buffers that the batch is about to modify, so that their cache misses overlap instead of
    /// stalling each write in turn.
    pub(super) fn prefetch<'a>(&self, slots: impl Iterator<Item = &'a u32>) {
        let rows = slots.filter_map(|slot| self.rows.get(*slot as usize));
        std::hint::black_box(rows.fold(0, |sum, row| sum ^ row.buffer.last_byte()));
    }

    /// The slot of a row, which is created if necessary. A row without changes is invisible.
    pub(super) fn slot(&mut self, key: &[u8]) -> u32 {
        let hash = hash_of(key);
        if let Some(slot) = self.by_hash.find(hash, |slot| self.key(*slot) == key) {
            return *slot;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "2^32 rows would take more memory than a limit can be"
        )]
        let slot = self.rows.len() as u32;
        let key: Arc<[u8]> = key.into();
        self.bytes += key.len() + ROW_OVERHEAD;
        self.ordered.insert(key.clone(), slot);
        self.rows.push(MemoryRow {
            key,
            hash,
            buffer: RowBuffer::new(),
            assigned: (0, 0),
        });
        self.by_hash
            .insert_unique(hash, slot, |slot| self.rows[*slot as usize].hash);
        slot
    }

    /// The id of a row in an epoch; `None` if it has just been assigned the next one. Ids start at 1, and no epoch
    /// is 0.
    pub(super) fn id(&mut self, slot: u32, id_epoch: u64) -> Option<u32> {
        let row = self.rows.get_mut(slot as usize)?;
        if row.assigned.0 == id_epoch {
            return Some(row.assigned.1);
        }
        if self.assigned.0 != id_epoch {
            self.assigned = (id_epoch, 0);
        }
        self.assigned.1 += 1;
        row.assigned = self.assigned;
        None
    }

    fn key(&self, slot: u32) -> &[u8] {
        &self.rows[slot as usize].key
    }
}

fn entry_of<'a>(mutation: &MutationRef<'a>, families: &[u8], time_ms: i64) -> Entry<'a> {
    // Batches were validated on arrival, and journal records during recovery.
    let family_of = |family: crate::FamilyId| families.get(family.index()).copied().unwrap_or_default();
    let deleted = |action, family, qualifier| Entry {
        action,
        family,
        timestamp_ms: time_ms,
        qualifier,
        value: &[],
    };
    match *mutation {
        MutationRef::Put {
            family,
            qualifier,
            timestamp_ms,
            value,
        } => Entry {
            action: Action::Put,
            family: family_of(family),
            timestamp_ms: timestamp_ms.unwrap_or(time_ms),
            qualifier,
            value,
        },
        MutationRef::DeleteColumn {
            family,
            qualifier,
            up_to_ms,
        } => Entry {
            timestamp_ms: up_to_ms.unwrap_or(time_ms),
            ..deleted(Action::DeleteColumn, family_of(family), qualifier)
        },
        MutationRef::DeleteFamily { family } => deleted(Action::DeleteFamily, family_of(family), &[]),
        MutationRef::DeleteRow => deleted(Action::DeleteRow, 0, &[]),
    }
}
