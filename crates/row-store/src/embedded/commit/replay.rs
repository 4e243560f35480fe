//! Replays the journal when a store is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::catalog::Table;
use super::super::journal::Frame;
use super::super::varint::Reader;
use super::WRITE;
use crate::RowMutations;

/// The tables, and the row ids of the current segment.
#[derive(Debug)]
pub(in super::super) struct Replay {
    tables: BTreeMap<u16, Arc<Table>>,
    segment: u64,
    /// For each table, the slots of its rows in the order of their ids.
    named: BTreeMap<u16, Vec<u32>>,
}

impl Replay {
    /// Replays into these tables.
    pub(in super::super) fn new(tables: BTreeMap<u16, Arc<Table>>) -> Self {
        Self {
            tables,
            segment: 0,
            named: BTreeMap::new(),
        }
    }

    /// Replays a frame; the error describes what is invalid.
    pub(in super::super) fn apply(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        if self.segment != frame.segment {
            self.segment = frame.segment;
            self.named.clear();
        }
        let mut reader = Reader(frame.payload);
        while !reader.0.is_empty() {
            self.item(&mut reader, frame.time_ms)?;
        }
        Ok(())
    }

    fn item(&mut self, reader: &mut Reader<'_>, time_ms: i64) -> Result<(), String> {
        let head = (|| {
            let kind = reader.byte()?;
            let table = u16::from_be_bytes(reader.array()?);
            let families = reader.byte()?;
            let families = reader.bytes(usize::from(families))?;
            Some((kind, table, families, u32::from_be_bytes(reader.array()?)))
        })();
        let Some((WRITE, id, families, rows)) = head else {
            return Err("an item of a frame cannot be decoded".to_owned());
        };
        let table = self
            .tables
            .get(&id)
            .ok_or_else(|| format!("table {id} is not defined"))?;
        if let Some(family) = families
            .iter()
            .find(|family| usize::from(**family) >= table.def.families.len())
        {
            return Err(format!("table `{}` has no family {family}", table.def.name));
        }
        let named = self.named.entry(id).or_default();
        let mut memory = table.memory.write();
        for _ in 0..rows {
            let row = (|| {
                let slot = match reader.length()? {
                    0 => {
                        let length = reader.length()?;
                        let slot = memory.active.slot(reader.bytes(length)?);
                        named.push(slot);
                        slot
                    }
                    id => *named.get(id - 1)?,
                };
                let length = reader.length()?;
                // The slot stands for the key.
                let row = RowMutations::decode(&[], reader.bytes(length)?)?;
                memory
                    .active
                    .apply(slot, &row, families, time_ms, &table.max_versions);
                Some(())
            })();
            row.ok_or("a row of a frame cannot be decoded")?;
        }
        Ok(())
    }
}
