//! The prefixes of a table's row keys, in memory: a reader of any other prefix needs no thread that may block.
//!
//! Queries look for annotations and histograms beside their points, and most metrics have none. The prefixes of a table
//! are read when they are first requested: one seek for each. From then on, the commit thread adds the prefixes of each
//! group before it acknowledges the group. Deletes remove none.
//!
//! The first 4 bytes of a row are the first 4 of its key after the table's id: rows begin with a group of 8.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::RwLock;

use super::key;
use super::table::TableError;
use super::tree::Snapshot;
use crate::StoreError;

/// The first bytes of a row, padded with zeros: its salt and most of its metric.
type Prefix = [u8; 4];

/// The most prefixes of a table that are kept.
const MAX_PREFIXES: usize = 1 << 16;

/// The prefixes of the rows of tables.
#[derive(Debug, Default)]
pub(super) struct RowPrefixes(RwLock<BTreeMap<u16, State>>);

/// The state of a table's prefixes.
#[derive(Debug)]
enum State {
    /// They are being read; these were written meanwhile.
    Reading(BTreeSet<Prefix>),
    Known(BTreeSet<Prefix>),
    /// There are too many.
    Unknown,
}

/// Whether a range may have rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has none.
    No,
    Maybe,
    /// As `Maybe`; the caller shall call [`RowPrefixes::read`].
    NotRead,
}

impl RowPrefixes {
    /// Whether a table may have rows from `start` (inclusive) to `stop` (exclusive; empty: unbounded).
    pub(super) fn presence(&self, table: u16, start: &[u8], stop: &[u8]) -> Presence {
        match self.0.read().get(&table) {
            None => Presence::NotRead,
            Some(State::Known(prefixes)) => {
                let last = if stop.is_empty() {
                    Prefix::default().map(|_| u8::MAX)
                } else {
                    prefix_of(stop)
                };
                let first = prefix_of(start);
                match first <= last && prefixes.range(first..=last).next().is_some() {
                    true => Presence::Maybe,
                    false => Presence::No,
                }
            }
            Some(State::Reading(_) | State::Unknown) => Presence::Maybe,
        }
    }

    /// Reads the prefixes of a table, unless another thread does.
    pub(super) fn read(
        &self,
        table: u16,
        next_key: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, StoreError>,
    ) -> Result<(), StoreError> {
        {
            let mut tables = self.0.write();
            if tables.contains_key(&table) {
                return Ok(());
            }
            tables.insert(table, State::Reading(BTreeSet::new()));
        }
        let read = prefixes_of(table, next_key);
        let mut tables = self.0.write();
        let written = match tables.remove(&table) {
            Some(State::Reading(written)) => Some(written),
            _ => None,
        };
        let state = match (read?, written) {
            (Some(mut prefixes), Some(written)) => {
                prefixes.extend(written);
                State::Known(prefixes)
            }
            _ => State::Unknown,
        };
        tables.insert(table, state);
        Ok(())
    }

    /// Adds the rows of committed keys, before the commit is acknowledged. A group that is committed while the prefixes
    /// are being read is either seen by that read or added here.
    pub(super) fn add<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        if self.0.read().is_empty() {
            return;
        }
        let mut last = None;
        for key in keys {
            // Ascending: the keys of a row follow each other.
            let next = key
                .split_first_chunk()
                .map(|(table, row)| (*table, prefix_of(row)));
            if last == next {
                continue;
            }
            last = next;
            let Some((table, prefix)) = next else {
                continue;
            };
            let table = u16::from_be_bytes(table);
            if self.lacks(table, prefix) {
                self.insert(table, prefix);
            }
        }
    }

    fn lacks(&self, table: u16, prefix: Prefix) -> bool {
        match self.0.read().get(&table) {
            Some(State::Reading(prefixes) | State::Known(prefixes)) => !prefixes.contains(&prefix),
            Some(State::Unknown) | None => false,
        }
    }

    fn insert(&self, table: u16, prefix: Prefix) {
        let mut tables = self.0.write();
        let Some(state) = tables.get_mut(&table) else {
            return;
        };
        if let State::Reading(prefixes) | State::Known(prefixes) = state {
            prefixes.insert(prefix);
            if prefixes.len() > MAX_PREFIXES {
                *state = State::Unknown;
            }
        }
    }
}

fn prefix_of(row: &[u8]) -> Prefix {
    let mut prefix = Prefix::default();
    for (to, from) in prefix.iter_mut().zip(row) {
        *to = *from;
    }
    prefix
}

/// The prefixes of a table; `None` if there are too many. `next_key` returns the first key from a key on.
fn prefixes_of(
    table: u16,
    mut next_key: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<Option<BTreeSet<Prefix>>, StoreError> {
    let mut prefixes = BTreeSet::new();
    let table = table.to_be_bytes();
    let mut from = table.to_vec();
    while let Some(key) = next_key(&from)? {
        let Some(row) = key.strip_prefix(&table) else {
            break;
        };
        let prefix = prefix_of(row);
        prefixes.insert(prefix);
        if prefixes.len() > MAX_PREFIXES {
            return Ok(None);
        }
        let Some(next) = u32::from_be_bytes(prefix).checked_add(1) else {
            break;
        };
        from = [table.as_slice(), &next.to_be_bytes()].concat();
    }
    Ok(Some(prefixes))
}

/// The first key from a key on.
pub(super) fn first_key(snapshot: &Snapshot, from: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
    let mut range = snapshot.range(from, &key::LAST, false)?;
    Ok(range.advance()?.then(|| range.key().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_key(keys: &BTreeSet<Vec<u8>>) -> impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        |from| Ok(keys.range(from.to_vec()..).next().cloned())
    }

    fn key_of(table: u16, row: &[u8]) -> Vec<u8> {
        key::row_prefix(table, row)
    }

    #[test]
    fn knows_which_ranges_have_no_rows() {
        let rows: [&[u8]; 4] = [b"aaaa1", b"aaaa2", b"ab", b"\xff\xff\xff\xff\xff"];
        let keys = rows
            .iter()
            .map(|row| key_of(2, row))
            .chain([key_of(1, b"x"), key_of(3, b"y")]);
        let keys: BTreeSet<Vec<u8>> = keys.collect();
        let prefixes = RowPrefixes::default();
        assert_eq!(prefixes.presence(2, b"", b""), Presence::NotRead);
        prefixes.read(2, next_key(&keys)).unwrap();
        let has = |start: &[u8], stop: &[u8]| prefixes.presence(2, start, stop);
        assert_eq!(has(b"", b""), Presence::Maybe);
        assert_eq!(has(b"aaaa3", b"aaaa9"), Presence::Maybe, "the same prefix");
        assert_eq!(has(b"aaab", b"aa\xff"), Presence::No);
        assert_eq!(has(b"ab", b"ac"), Presence::Maybe);
        assert_eq!(has(b"ac", b"x"), Presence::No);
        assert_eq!(has(b"x", b""), Presence::Maybe);
        assert_eq!(has(b"b", b"a"), Presence::No, "an empty range");
    }

    #[test]
    fn adds_what_is_committed() {
        let keys = BTreeSet::from([key_of(2, b"one")]);
        let prefixes = RowPrefixes::default();
        let mut is_first = true;
        prefixes
            .read(2, |from| {
                if std::mem::take(&mut is_first) {
                    assert_eq!(prefixes.presence(2, b"", b""), Presence::Maybe, "not known yet");
                    prefixes.add([key_of(2, b"two").as_slice(), &key_of(3, b"other")].into_iter());
                }
                next_key(&keys)(from)
            })
            .unwrap();
        assert_eq!(prefixes.presence(2, b"two", b"two\0"), Presence::Maybe);
        assert_eq!(prefixes.presence(2, b"uuu", b"vvv"), Presence::No);
        prefixes.add([key_of(2, b"uuuu").as_slice()].into_iter());
        assert_eq!(prefixes.presence(2, b"uuu", b"vvv"), Presence::Maybe);
        assert_eq!(prefixes.presence(3, b"", b""), Presence::NotRead);
    }

    #[test]
    fn is_bounded() {
        let most = u32::try_from(MAX_PREFIXES).unwrap();
        let keys: BTreeSet<Vec<u8>> = (0..=most).map(|row| key_of(2, &row.to_be_bytes())).collect();
        let prefixes = RowPrefixes::default();
        prefixes.read(2, next_key(&keys)).unwrap();
        assert_eq!(prefixes.presence(2, b"x", b"y"), Presence::Maybe);
        prefixes.read(3, next_key(&BTreeSet::new())).unwrap();
        let keys: Vec<Vec<u8>> = (0..=most).map(|row| key_of(3, &row.to_be_bytes())).collect();
        prefixes.add(keys[1..].iter().map(Vec::as_slice));
        assert_eq!(prefixes.presence(3, b"x", b"y"), Presence::No);
        prefixes.add(keys.iter().map(Vec::as_slice));
        assert_eq!(prefixes.presence(3, b"x", b"y"), Presence::Maybe);
    }

    #[test]
    fn a_failed_read_is_repeated() {
        let prefixes = RowPrefixes::default();
        let failure = || StoreError::Io {
            place: "p".to_owned(),
            detail: "d".to_owned(),
        };
        assert_eq!(prefixes.read(2, |_| Err(failure())), Err(failure()));
        assert_eq!(prefixes.presence(2, b"", b""), Presence::NotRead);
    }
}
