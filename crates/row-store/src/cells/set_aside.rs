//! The record of damage: ranges of lost rows, and copies of the damaged files.
//!
//! ```text
//!   DAMAGE       "oxtsdb damage, format 1" | a line for each range
//!   line         start | stop | file | description | intact keys within
//!   set-aside/   the damaged files, unchanged
//! ```
//!
//! Fields are separated by tabs, keys by spaces. Keys are those of the engine, in hexadecimal; `-` is an
//! unbounded end. Reads of these ranges fail, or skip them on request. Deleting the file discards the record:
//! the rows then have what is left of them.

mod record;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use record::{Entry, LABEL, decode, encode};

use super::catalog::{Catalog, Table};
use super::folder::{self, io_error, replace};
use super::salvage::Gap;
use crate::{DamagedRange, StoreError};

/// The recorded damage of a store.
#[derive(Debug)]
pub(super) struct SetAside {
    record: PathBuf,
    folder: PathBuf,
    catalog: Arc<Catalog>,
    entries: RwLock<Arc<Vec<Entry>>>,
    any: AtomicBool,
    /// Converts a range of the engine's keys to one of rows: table id and row key.
    rows_of: fn(Gap) -> Gap,
}

/// The first part of a read that is either entirely damaged or entirely intact.
#[derive(Debug)]
pub(super) struct Subrange {
    /// Its end: exclusive, or inclusive for a reversed read; `None`: the end of the read.
    pub(super) end: Option<Vec<u8>>,
    pub(super) damage: Option<DamagedRange>,
}

impl SetAside {
    /// Reads the record; without one there is no damage.
    pub(super) fn open(
        record: PathBuf,
        folder: PathBuf,
        catalog: Arc<Catalog>,
        rows_of: fn(Gap) -> Gap,
    ) -> Result<Self, StoreError> {
        let entries = match fs::read_to_string(&record) {
            Ok(text) => decode(&text).ok_or_else(|| StoreError::Corrupt {
                place: record.display().to_string(),
                detail: format!("expected `{LABEL}` and lines of start, stop, file and damage"),
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(StoreError::Corrupt {
                    place: record.display().to_string(),
                    detail: error.to_string(),
                });
            }
            Err(error) => return Err(io_error(&record, &error)),
        };
        let set_aside = Self {
            record,
            folder,
            catalog,
            any: AtomicBool::new(!entries.is_empty()),
            entries: RwLock::new(Arc::new(entries)),
            rows_of,
        };
        for range in set_aside.ranges() {
            tracing::warn!(%range, "the store has damaged rows");
        }
        Ok(set_aside)
    }

    /// An unused path for the copy of a damaged file.
    pub(super) fn place_for(&self, name: &str) -> Result<PathBuf, StoreError> {
        folder::make_private(&self.folder)?;
        let mut number = 0_u32;
        loop {
            let place = self.folder.join(format!("{name}-{number}"));
            match place.try_exists() {
                Ok(false) => return Ok(place),
                Ok(true) => number += 1,
                Err(error) => return Err(io_error(&place, &error)),
            }
        }
    }

    /// The end of a damaged range, limited to existing tables: the lost bytes had no rows of later tables.
    fn bounded(&self, stop: &[u8]) -> Vec<u8> {
        let last = self.catalog.by_id().into_keys().next_back();
        match last.and_then(|id| id.checked_add(1)) {
            Some(next) if stop.is_empty() => next.to_be_bytes().to_vec(),
            _ => stop.to_vec(),
        }
    }

    /// Records damaged ranges and logs them. They are durable when this returns.
    pub(super) fn add(&self, gaps: &[Gap], file: &Path) -> Result<(), StoreError> {
        let file = file.display().to_string();
        let mut entries = self.entries.write();
        let added: Vec<Entry> = gaps
            .iter()
            .map(|gap| (self.rows_of)(gap.clone()))
            .map(|gap| Entry {
                gap: Gap {
                    stop: self.bounded(&gap.stop),
                    ..gap
                },
                file: file.clone(),
            })
            .filter(|Entry { gap, .. }| {
                let is_known = |known: &Gap| {
                    let covers = |key| gap.intact.binary_search(key).is_ok();
                    known.start == gap.start && known.stop == gap.stop && known.intact.iter().all(covers)
                };
                !entries.iter().any(|known| is_known(&known.gap))
            })
            .collect();
        if added.is_empty() {
            return Ok(());
        }
        let all: Vec<Entry> = entries.iter().chain(&added).cloned().collect();
        replace(&self.record, encode(&all).as_bytes())?;
        for range in added.iter().flat_map(|entry| self.tables_of(entry)) {
            tracing::error!(%range, "damage isolated; reads of these rows fail, all others continue");
        }
        *entries = Arc::new(all);
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// The folder of the damaged files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All damaged ranges, by table.
    pub(super) fn ranges(&self) -> Vec<DamagedRange> {
        let entries = self.entries.read().clone();
        entries.iter().flat_map(|entry| self.tables_of(entry)).collect()
    }

    /// Whether there is any damage.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// The damage that affects a row.
    pub(super) fn of_row(&self, table: &Table, row: &[u8]) -> Option<DamagedRange> {
        if self.is_empty() {
            return None;
        }
        let key = [&table.id.to_be_bytes(), row].concat();
        let entries = self.entries.read().clone();
        let entry = entries.iter().find(|Entry { gap, .. }| {
            gap.start <= key
                && (gap.stop.is_empty() || key < gap.stop)
                && gap.intact.binary_search(&key).is_err()
        })?;
        within(entry, table)
    }

    /// The first part of a read of a range of rows that is either entirely within one damaged range or entirely
    /// intact.
    pub(super) fn first_subrange(&self, table: &Table, start: &[u8], stop: &[u8], reverse: bool) -> Subrange {
        if self.is_empty() {
            return Subrange {
                end: None,
                damage: None,
            };
        }
        let entries = self.entries.read().clone();
        let open = |end: &[u8]| end.is_empty();
        let overlapping = entries
            .iter()
            .filter_map(|entry| within(entry, table))
            .filter(|range| {
                (open(stop) || range.start.as_slice() < stop)
                    && (open(&range.stop) || start < range.stop.as_slice())
            });
        let first = if reverse {
            overlapping.max_by(|a, b| (open(&a.stop), &a.stop).cmp(&(open(&b.stop), &b.stop)))
        } else {
            overlapping.min_by(|a, b| a.start.cmp(&b.start))
        };
        let Some(range) = first else {
            return Subrange {
                end: None,
                damage: None,
            };
        };
        if reverse {
            let begins_inside = open(&range.stop) || (!open(stop) && stop <= range.stop.as_slice());
            if begins_inside {
                Subrange {
                    end: (start < range.start.as_slice()).then(|| range.start.clone()),
                    damage: Some(range),
                }
            } else {
                Subrange {
                    end: Some(range.stop),
                    damage: None,
                }
            }
        } else if range.start.as_slice() <= start {
            let ends_before = !open(&range.stop) && (open(stop) || range.stop.as_slice() < stop);
            Subrange {
                end: ends_before.then(|| range.stop.clone()),
                damage: Some(range),
            }
        } else {
            Subrange {
                end: Some(range.start),
                damage: None,
            }
        }
    }

    fn tables_of(&self, entry: &Entry) -> Vec<DamagedRange> {
        let tables = self.catalog.by_id();
        tables.values().filter_map(|table| within(entry, table)).collect()
    }
}

/// The part of a damaged range that belongs to a table.
fn within(entry: &Entry, table: &Table) -> Option<DamagedRange> {
    let id = table.id.to_be_bytes();
    let Gap {
        start, stop, detail, ..
    } = &entry.gap;
    let start = if start.as_slice() <= id.as_slice() {
        Vec::new()
    } else {
        start.strip_prefix(&id)?.to_vec()
    };
    let stop = match stop.strip_prefix(&id) {
        Some([]) => return None,
        Some(row) => row.to_vec(),
        None if stop.is_empty() || stop.as_slice() > id.as_slice() => Vec::new(),
        None => return None,
    };
    Some(DamagedRange {
        table: table.def.name.clone(),
        start,
        stop,
        file: entry.file.clone(),
        detail: detail.clone(),
    })
}

#[cfg(test)]
mod tests;
