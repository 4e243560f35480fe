//! Changes that are in no table yet, in memory.
//!
//! The commit thread inserts, any thread reads, without a lock. A key has a version for each commit that changed it, so
//! that a reader sees the changes up to one commit, whatever is inserted meanwhile.
//!
//! Keys are extended by the complement of the commit's number: the newest version of a key comes first. No key is a
//! prefix of another one (see `key`), so the order of keys remains.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::{Entry, Range};

/// Memory of an entry beside its key and value: node, pointers, allocations.
const ENTRY_BYTES: usize = 120;
const COMMIT_BYTES: usize = 8;

/// Changes by key and commit.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    entries: SkipMap<Key, Option<Bytes>>,
    bytes: AtomicU64,
    /// The last commit.
    last: AtomicU64,
}

fn versioned(key: &[u8], commit: u64) -> Vec<u8> {
    let mut versioned = Vec::with_capacity(key.len() + COMMIT_BYTES);
    versioned.extend_from_slice(key);
    versioned.extend_from_slice(&(!commit).to_be_bytes());
    versioned
}

/// The key and the commit of a version.
fn split(versioned: &[u8]) -> (&[u8], u64) {
    match versioned.split_last_chunk::<COMMIT_BYTES>() {
        Some((key, commit)) => (key, !u64::from_be_bytes(*commit)),
        None => (versioned, 0),
    }
}

impl Memtable {
    /// Adds a change of a commit. Only one thread may insert.
    pub(super) fn insert(&self, key: &[u8], value: Option<Bytes>, commit: u64) {
        let bytes = key.len() + COMMIT_BYTES + value.as_ref().map_or(0, Bytes::len) + ENTRY_BYTES;
        self.entries
            .insert(versioned(key, commit).into_boxed_slice(), value);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.last.store(commit, Ordering::Relaxed);
    }

    /// Bytes of memory, about.
    pub(super) fn byte_len(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of the last commit; 0 if there is none.
    pub(super) fn last_commit(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The value of a key as of a commit; `Some(None)`: it was removed.
    pub(super) fn get(&self, key: &[u8], commit: u64) -> Option<Option<Bytes>> {
        if self.entries.is_empty() {
            return None;
        }
        let from = versioned(key, commit);
        let entry = self.entries.lower_bound(Bound::Included(from.as_slice()))?;
        (split(entry.key()).0 == key).then(|| entry.value().clone())
    }

    /// The entries from `start` (inclusive) to `end` (exclusive) as of a commit, ascending, or descending if `reverse`.
    pub(super) fn cursor(&self, start: &[u8], end: &[u8], commit: u64, reverse: bool) -> MemtableCursor<'_> {
        let bounds = (
            Bound::Included(start.to_vec().into_boxed_slice()),
            Bound::Excluded(end.to_vec().into_boxed_slice()),
        );
        self.within(bounds, commit, reverse)
    }

    /// All entries as of the last commit, ascending.
    pub(super) fn all(&self) -> MemtableCursor<'_> {
        self.within((Bound::Unbounded, Bound::Unbounded), u64::MAX, false)
    }

    fn within(&self, bounds: Bounds, commit: u64, reverse: bool) -> MemtableCursor<'_> {
        let mut cursor = MemtableCursor {
            entries: self.entries.range(bounds),
            commit,
            reverse,
            current: None,
            behind: None,
        };
        if reverse {
            cursor.behind = cursor.entries.next_back();
        }
        cursor.advance();
        cursor
    }
}

type Key = Box<[u8]>;
type Bounds = (Bound<Key>, Bound<Key>);
type Entries<'a> = Range<'a, Key, Bounds, Key, Option<Bytes>>;

/// A place in a memtable.
pub(super) struct MemtableCursor<'a> {
    entries: Entries<'a>,
    commit: u64,
    reverse: bool,
    current: Option<Entry<'a, Key, Option<Bytes>>>,
    /// The entry that a reverse cursor has read behind the current key.
    behind: Option<Entry<'a, Key, Option<Bytes>>>,
}

impl MemtableCursor<'_> {
    /// The key; `None` at the end.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.current.as_ref().map(|entry| split(entry.key()).0)
    }

    /// The value; `None`: the key was removed.
    pub(super) fn value(&self) -> Option<Bytes> {
        self.current.as_ref().and_then(|entry| entry.value().clone())
    }

    pub(super) fn advance(&mut self) {
        if self.reverse {
            self.advance_back();
        } else {
            self.advance_forward();
        }
    }

    /// The newest version of the next key that is not newer than the commit.
    fn advance_forward(&mut self) {
        for entry in self.entries.by_ref() {
            let (key, commit) = split(entry.key());
            if commit <= self.commit
                && self
                    .current
                    .as_ref()
                    .is_none_or(|current| split(current.key()).0 != key)
            {
                self.current = Some(entry);
                return;
            }
        }
        self.current = None;
    }

    /// The same, backwards: the versions of a key come oldest first.
    fn advance_back(&mut self) {
        self.current = None;
        while let Some(entry) = self.behind.take() {
            let (key, commit) = split(entry.key());
            if let Some(current) = &self.current
                && split(current.key()).0 != key
            {
                self.behind = Some(entry);
                return;
            }
            if commit <= self.commit {
                self.current = Some(entry);
            }
            self.behind = self.entries.next_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_the_state_of_a_commit(
            commits in prop::collection::vec(
                prop::collection::vec((0..6_u8, prop::option::of(any::<u8>())), 0..4),
                1..8,
            ),
            range in (0..6_u8, 0..8_u8),
        ) {
            let memtable = Memtable::default();
            let mut states = vec![BTreeMap::new()];
            for (index, changes) in commits.iter().enumerate() {
                let mut state: BTreeMap<[u8; 2], Option<u8>> = states[index].clone();
                // A commit changes a key once.
                let changes: BTreeMap<u8, Option<u8>> = changes.iter().copied().collect();
                for (key, value) in changes {
                    memtable.insert(&[key, 9], value.map(|value| Bytes::from(vec![value])), index as u64 + 1);
                    state.insert([key, 9], value);
                }
                states.push(state);
            }
            for (commit, state) in states.iter().enumerate() {
                let (start, end) = ([range.0], [range.1.max(range.0)]);
                for reverse in [false, true] {
                    let mut cursor = memtable.cursor(&start, &end, commit as u64, reverse);
                    let mut entries = Vec::new();
                    while let Some(key) = cursor.key() {
                        entries.push(([key[0], key[1]], cursor.value().map(|value| value[0])));
                        cursor.advance();
                    }
                    let mut expected: Vec<_> = state
                        .iter()
                        .filter(|(key, _)| key[0] >= start[0] && key[0] < end[0])
                        .map(|(key, value)| (*key, *value))
                        .collect();
                    if reverse {
                        expected.reverse();
                    }
                    prop_assert_eq!(entries, expected);
                }
                for key in 0..6 {
                    let value = memtable.get(&[key, 9], commit as u64);
                    let value = value.map(|value| value.map(|value| value[0]));
                    prop_assert_eq!(value, state.get(&[key, 9]).copied());
                }
            }
        }
    }
}
