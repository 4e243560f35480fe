//! The record of damage: ranges of lost rows, and copies of the damaged files.
//!
//! ```text
//!   DAMAGE       "oxtsdb damage, format 2" | a line for each range
//!   line         start | stop | file | description
//!   set-aside/   the damaged files, unchanged
//! ```
//!
//! Fields are separated by tabs. Ends of a range are a table's id and a row key, in hexadecimal; `-` is an unbounded end.
//! Reads of these ranges fail, or skip them on request. Deleting the file discards the record: once a merge has
//! rewritten the damaged file, the rows have their remaining cells.

mod record;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{create_dir_durably, read_all};
use parking_lot::RwLock;

use record::{Entry, LABEL, decode, encode};

use super::catalog::{Catalog, Table};
use super::folder::{self, io_error, replace_file};
use crate::{DamagedRange, StoreError};

/// A longer record is not read.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Keys that a damaged part of a file may have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// First key, inclusive; empty: unbounded.
    pub(super) start: Vec<u8>,
    /// Last key, exclusive; empty: unbounded.
    pub(super) stop: Vec<u8>,
    pub(super) detail: String,
}

/// The recorded damage of a store.
#[derive(Debug)]
pub(super) struct SetAside {
    disk: Arc<dyn Disk>,
    record: PathBuf,
    folder: PathBuf,
    catalog: Arc<Catalog>,
    entries: RwLock<Arc<Vec<Entry>>>,
    any: AtomicBool,
    /// Converts a range of keys to one of rows: table id and row key.
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
    /// Reads the record of a store's folder; without one there is no damage. With `losses`, a damaged record is
    /// emptied, and its error is added to `losses`.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        store: &Path,
        catalog: Arc<Catalog>,
        rows_of: fn(Gap) -> Gap,
        losses: Option<&mut Vec<StoreError>>,
    ) -> Result<Self, StoreError> {
        let record = folder::damage(store);
        let text = match read_all(&*disk, &record, MAX_RECORD_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => encode(&[]).into_bytes(),
            Err(error) => return Err(io_error(&record, &error)),
        };
        let entries = String::from_utf8(text).ok().and_then(|text| decode(&text));
        let entries = match (entries, losses) {
            (Some(entries), _) => entries,
            (None, losses) => {
                let error = StoreError::Corrupt {
                    place: record.display().to_string(),
                    detail: format!("expected `{LABEL}` and lines of start, stop, file and damage"),
                };
                let Some(losses) = losses else {
                    return Err(error);
                };
                replace_file(&*disk, &record, encode(&[]).as_bytes())?;
                tracing::error!(%error, "the record of damage is emptied: reads of its rows do not fail any more");
                losses.push(error);
                Vec::new()
            }
        };
        let set_aside = Self {
            disk,
            record,
            folder: folder::set_aside(store),
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

    /// Keeps a damaged file beyond its removal, and returns its path; the file's own if that is not possible.
    pub(super) fn keep(&self, file: &Path) -> PathBuf {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let link = || {
            create_dir_durably(&*self.disk, &self.folder)?;
            let names = self.disk.list(&self.folder)?;
            let is_free = |name: &String| names.iter().all(|entry| entry.name != *name);
            let mut places = (0..u32::MAX).map(|number| format!("{name}-{number}"));
            let place = places.find(is_free).ok_or(ErrorKind::AlreadyExists)?;
            let place = self.folder.join(place);
            self.disk.link(file, &place)?;
            self.disk.sync_dir(&self.folder)?;
            Ok::<_, std::io::Error>(place)
        };
        link().unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "cannot keep a damaged file");
            file.to_owned()
        })
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
                let is_known = |known: &Gap| known.start == gap.start && known.stop == gap.stop;
                !entries.iter().any(|known| is_known(&known.gap))
            })
            .collect();
        if added.is_empty() {
            return Ok(());
        }
        let all: Vec<Entry> = entries.iter().chain(&added).cloned().collect();
        replace_file(&*self.disk, &self.record, encode(&all).as_bytes())?;
        for range in added.iter().flat_map(|entry| self.tables_of(entry)) {
            tracing::error!(%range, "damage isolated; reads of these rows fail, all others continue");
        }
        *entries = Arc::new(all);
        self.any.store(true, Ordering::Release);
        Ok(())
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
    pub(super) fn row_damage(&self, table: &Table, row: &[u8]) -> Option<DamagedRange> {
        if self.is_empty() {
            return None;
        }
        let key = [&table.id.to_be_bytes(), row].concat();
        let entries = self.entries.read().clone();
        let entry = entries
            .iter()
            .find(|Entry { gap, .. }| gap.start <= key && (gap.stop.is_empty() || key < gap.stop))?;
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
