//! The record of damage: ranges of lost rows, and copies of the damaged files.
//!
//! ```text
//!   DAMAGE       "oxtsdb damage, format 1" | a line for each range
//!   line         start | stop | file | description | intact keys within
//!   set-aside/   the damaged files, unchanged
//! ```
//!
//! Fields are separated by tabs, keys by spaces. Keys are those of the row blocks, in hexadecimal; `-` is an
//! unbounded end. Reads of these ranges fail, or skip them on request. Deleting the file discards the record:
//! the rows then have what is left of them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use super::catalog::{Catalog, Table};
use super::folder::{self, io_error, replace};
use super::salvage::Gap;
use crate::{DamagedRange, StoreError};

const LABEL: &str = "oxtsdb damage, format 1";

/// A damaged range of keys of row blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    gap: Gap,
    file: String,
}

/// The recorded damage of a store.
#[derive(Debug)]
pub(super) struct SetAside {
    record: PathBuf,
    folder: PathBuf,
    catalog: Arc<Catalog>,
    entries: RwLock<Arc<Vec<Entry>>>,
    any: AtomicBool,
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
    pub(super) fn open(record: PathBuf, folder: PathBuf, catalog: Arc<Catalog>) -> Result<Self, StoreError> {
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
            .map(|gap| Entry {
                gap: Gap {
                    stop: self.bounded(&gap.stop),
                    ..gap.clone()
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

    /// Preserves a copy of a row's block, once: every retry of a failed flush encounters the same block, so the
    /// name of the copy is derived from row and block.
    fn keep_row(&self, key: &[u8], block: &[u8]) -> Result<PathBuf, StoreError> {
        let name = format!("row-{:08x}{:08x}", crc32fast::hash(key), crc32fast::hash(block));
        let place = self.folder.join(&name);
        if fs::read(&place).is_ok_and(|kept| kept == block) {
            return Ok(place);
        }
        folder::make_private(&self.folder)?;
        // Replaces a copy truncated by a crash.
        replace(&place, block)?;
        Ok(place)
    }

    /// Isolates the block of one row.
    pub(super) fn add_row(&self, key: &[u8], block: &[u8], detail: &str) -> Result<(), StoreError> {
        let place = self.keep_row(key, block)?;
        let gap = Gap {
            start: key.to_vec(),
            stop: [key, &[0]].concat(),
            detail: detail.to_owned(),
            intact: Vec::new(),
        };
        self.add(&[gap], &place)
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

fn encode(entries: &[Entry]) -> String {
    let digits = |key: &[u8]| match key {
        [] => "-".to_owned(),
        key => hex::encode(key),
    };
    let line = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    let mut text = format!("{LABEL}\n");
    for Entry { gap, file } in entries {
        let (start, stop) = (digits(&gap.start), digits(&gap.stop));
        let intact: Vec<String> = gap.intact.iter().map(|key| digits(key)).collect();
        let (file, detail, intact) = (line(file), line(&gap.detail), intact.join(" "));
        text += &format!("{start}\t{stop}\t{file}\t{detail}\t{intact}\n");
    }
    text
}

fn decode(text: &str) -> Option<Vec<Entry>> {
    let key = |digits: &str| {
        if digits == "-" {
            return Some(Vec::new());
        }
        hex::decode(digits).ok()
    };
    let mut lines = text.lines();
    if lines.next() != Some(LABEL) {
        return None;
    }
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let (start, stop) = (key(fields.next()?)?, key(fields.next()?)?);
            let file = fields.next()?.to_owned();
            let detail = fields.next()?.to_owned();
            let intact = fields.next().unwrap_or_default();
            let gap = Gap {
                start,
                stop,
                detail,
                intact: intact.split_ascii_whitespace().map(key).collect::<Option<_>>()?,
            };
            Some(Entry { gap, file })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableDef;

    fn gap(start: &[u8], stop: &[u8]) -> Gap {
        Gap {
            start: start.to_vec(),
            stop: stop.to_vec(),
            detail: "offset 7: a\ttab".to_owned(),
            intact: Vec::new(),
        }
    }

    /// A store's folder with tables 1 to 3, and its damage.
    fn set_aside(folder: &Path) -> (SetAside, Vec<Arc<Table>>) {
        let catalog = Catalog::open(folder.join("TABLES")).unwrap();
        for name in ["one", "two", "three"] {
            catalog
                .create(&TableDef::new(name.parse().unwrap(), &["f"]))
                .unwrap();
        }
        let tables = catalog.by_id().into_values().collect();
        let set_aside = SetAside::open(folder.join("DAMAGE"), folder.join("set-aside"), Arc::new(catalog));
        (set_aside.unwrap(), tables)
    }

    #[test]
    fn damage_record_survives_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let (damage, tables) = set_aside(folder.path());
        // From row `x` of table 1 to row `b` of table 3; the rest of table 3.
        let mut gaps = [gap(b"\0\x01x", b"\0\x03b"), gap(b"\0\x03y\xff", b"")];
        gaps[0].intact = vec![b"\0\x01xx".to_vec(), b"\0\x02new".to_vec()];
        damage.add(&gaps, Path::new("set-aside/table-1-0")).unwrap();
        damage.add(&gaps, Path::new("again")).unwrap();
        let found = |damage: &SetAside| -> Vec<(String, Vec<u8>, Vec<u8>)> {
            let ranges = damage.ranges().into_iter();
            ranges
                .map(|range| (range.table.to_string(), range.start, range.stop))
                .collect()
        };
        let expected = [
            ("one".to_owned(), b"x".to_vec(), vec![]),
            ("two".to_owned(), vec![], vec![]),
            ("three".to_owned(), vec![], b"b".to_vec()),
            ("three".to_owned(), b"y\xff".to_vec(), vec![]),
        ];
        assert_eq!(found(&damage), expected);
        let (again, _) = set_aside(folder.path());
        assert_eq!(found(&again), expected);
        assert!(again.of_row(&tables[1], b"any").is_some());
        assert!(again.of_row(&tables[0], b"w").is_none());
        assert!(again.of_row(&tables[0], b"x").is_some());
        assert!(again.of_row(&tables[0], b"xx").is_none());
        assert!(again.of_row(&tables[1], b"new").is_none());
        assert!(again.of_row(&tables[2], b"b").is_none());

        fs::write(folder.path().join("DAMAGE"), "something else").unwrap();
        let catalog = Arc::new(Catalog::open(folder.path().join("TABLES")).unwrap());
        let error =
            SetAside::open(folder.path().join("DAMAGE"), folder.path().join("x"), catalog).unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { place, .. } if place.ends_with("DAMAGE")),
            "{error}"
        );
    }

    #[test]
    fn keeps_one_copy_of_a_damaged_block() {
        let folder = tempfile::tempdir().unwrap();
        let (damage, _) = set_aside(folder.path());
        for block in [b"bad", b"bad", b"BAD", b"bad"] {
            damage.add_row(b"\0\x01x", block, "damaged").unwrap();
        }
        let kept = fs::read_dir(folder.path().join("set-aside")).unwrap();
        let mut kept: Vec<Vec<u8>> = kept.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
        kept.sort();
        assert_eq!(kept, [b"BAD".to_vec(), b"bad".to_vec()]);
        assert_eq!(damage.ranges().len(), 1);
    }

    #[test]
    fn unbounded_damage_excludes_later_tables() {
        let folder = tempfile::tempdir().unwrap();
        let (damage, tables) = set_aside(folder.path());
        damage.add(&[gap(b"", b"")], Path::new("file")).unwrap();
        assert_eq!(damage.ranges().len(), tables.len());
        damage
            .catalog
            .create(&TableDef::new("four".parse().unwrap(), &["f"]))
            .unwrap();
        assert_eq!(damage.ranges().len(), tables.len());
    }

    #[test]
    fn splits_reads_at_the_bounds_of_damage() {
        let folder = tempfile::tempdir().unwrap();
        let (damage, tables) = set_aside(folder.path());
        let gaps = [gap(b"\0\x01d", b"\0\x01f"), gap(b"\0\x01m", b"\0\x01p")];
        damage.add(&gaps, Path::new("file")).unwrap();
        let subranges = |start: &[u8], stop: &[u8], reverse: bool| {
            let (mut start, mut stop) = (start.to_vec(), stop.to_vec());
            let mut found = Vec::new();
            loop {
                let subrange = damage.first_subrange(&tables[0], &start, &stop, reverse);
                let end = subrange.end.clone().unwrap_or_default();
                found.push((String::from_utf8(end).unwrap(), subrange.damage.is_some()));
                match subrange.end {
                    Some(end) if reverse => stop = end,
                    Some(end) => start = end,
                    None => return found,
                }
            }
        };
        let owned = |subranges: &[(&str, bool)]| -> Vec<(String, bool)> {
            subranges
                .iter()
                .map(|(end, damaged)| ((*end).to_owned(), *damaged))
                .collect()
        };
        let all = [("d", false), ("f", true), ("m", false), ("p", true), ("", false)];
        assert_eq!(subranges(b"", b"", false), owned(&all));
        let reversed = [("p", false), ("m", true), ("f", false), ("d", true), ("", false)];
        assert_eq!(subranges(b"", b"", true), owned(&reversed));
        assert_eq!(
            subranges(b"e", b"n", false),
            owned(&[("f", true), ("m", false), ("", true)])
        );
        assert_eq!(
            subranges(b"e", b"n", true),
            owned(&[("m", true), ("f", false), ("", true)])
        );
        assert_eq!(subranges(b"f", b"m", false), owned(&[("", false)]));
        assert_eq!(subranges(b"d", b"f", true), owned(&[("", true)]));
        assert!(
            damage
                .first_subrange(&tables[1], b"", b"", false)
                .damage
                .is_none()
        );
    }
}
