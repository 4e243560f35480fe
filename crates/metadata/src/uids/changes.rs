//! Which cached mappings have changed.
//!
//! A look-up that began before a change may return the mapping of before. So it takes a [`Mark`] when it begins, and
//! its result is cached only if nothing has changed since. Write streams cache series as well, and
//! compare marks with each frame.
//!
//! ```text
//!   count   even           odd                              even
//!           ───────────────┬────────────────────────────────┬──────────►
//!                          begin ─► caches invalidated ─► recorded
//! ```
//!
//! While caches are invalidated, a look-up may combine an old mapping of one cache with a new one of another, and would
//! add the result to a cache that was invalidated already. So no result is cached while the count is odd, and none of
//! a look-up that began then.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_schema::{Uid, UidKind};
use parking_lot::{Mutex, RwLock};

/// UIDs with changed mappings.
pub type ChangedUids = HashSet<(UidKind, Uid)>;

/// Changes that are remembered with their UIDs. To a holder of an older mark, everything may have changed.
const RECENT: usize = 64;

/// A time, in begins and ends of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The changes so far.
#[derive(Debug, Default)]
pub struct UidChanges {
    /// Odd while caches are invalidated. Changes with `recent` locked.
    count: AtomicU64,
    /// The last changes, with the mark after each. `None`: everything may have changed. Locked for reading while a
    /// result is cached.
    recent: RwLock<VecDeque<(Mark, Option<Arc<ChangedUids>>)>>,
    /// Held during a change.
    turn: Mutex<()>,
}

/// The changes since a mark.
#[derive(Debug)]
pub enum ChangedSince {
    /// No mapping.
    Nothing,
    /// At most the mappings of these UIDs.
    Uids(Vec<Arc<ChangedUids>>),
    /// Any mapping may have changed: the mark is too old, or a change has no known UIDs.
    Everything,
}

impl UidChanges {
    /// The time now.
    pub fn mark(&self) -> Mark {
        Mark(self.count.load(Ordering::SeqCst))
    }

    /// Begins and ends of changes so far.
    pub(super) fn count(&self) -> u64 {
        self.mark().0
    }

    /// Removes changed mappings from the caches with `invalidate`, and records them; `None`: everything. Blocks while
    /// another change is recorded.
    pub(super) fn record(&self, uids: Option<Arc<ChangedUids>>, invalidate: impl FnOnce()) {
        let _turn = self.turn.lock();
        // Results that are being cached are removed; later ones are not cached.
        let begin = {
            let _no_insertion = self.recent.write();
            self.count.fetch_add(1, Ordering::SeqCst)
        };
        invalidate();
        let mut recent = self.recent.write();
        let mark = Mark(begin + 2);
        recent.push_back((mark, uids));
        if recent.len() > RECENT {
            recent.pop_front();
        }
        self.count.store(mark.0, Ordering::SeqCst);
    }

    /// Caches the result of a look-up that began at a mark, with `insert`; `None` if a mapping may have changed since.
    pub fn unless_changed<T>(&self, mark: Mark, insert: impl FnOnce() -> T) -> Option<T> {
        let _no_change = self.recent.read();
        (mark.0.is_multiple_of(2) && self.mark() == mark).then(insert)
    }

    /// Returns the changes since a mark.
    pub fn since(&self, mark: Mark) -> ChangedSince {
        let now = self.mark();
        if now == mark {
            return ChangedSince::Nothing;
        }
        let recent = self.recent.read();
        if recent.front().is_none_or(|(first, _)| first.0 > mark.0 + 2) {
            return ChangedSince::Everything;
        }
        let after = recent.iter().filter(|(at, _)| *at > mark);
        match after.map(|(_, uids)| uids.clone()).collect() {
            Some(uids) => ChangedSince::Uids(uids),
            None => ChangedSince::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    fn set(number: u64) -> Arc<ChangedUids> {
        let uid = Uid::from_number(number, UidWidth::DEFAULT).unwrap();
        Arc::new(ChangedUids::from([(UidKind::Tagk, uid)]))
    }

    #[test]
    fn changes_are_known_by_their_uids_while_they_are_recent() {
        let changes = UidChanges::default();
        let start = changes.mark();
        assert!(matches!(changes.since(start), ChangedSince::Nothing));
        changes.record(Some(set(1)), || {});
        let middle = changes.mark();
        changes.record(Some(set(2)), || {});
        let since = |mark| match changes.since(mark) {
            ChangedSince::Uids(sets) => sets,
            other => panic!("{other:?}"),
        };
        assert_eq!(since(start), [set(1), set(2)]);
        assert_eq!(since(middle), [set(2)]);
        for number in 0..RECENT as u64 {
            changes.record(Some(set(number)), || {});
        }
        assert!(
            matches!(changes.since(start), ChangedSince::Everything),
            "forgotten"
        );
        let late = changes.mark();
        changes.record(None, || {});
        assert!(matches!(changes.since(late), ChangedSince::Everything));
        assert!(matches!(changes.since(changes.mark()), ChangedSince::Nothing));
    }
    #[test]
    fn results_are_cached_only_if_nothing_has_changed_since_the_look_up_began() {
        let changes = UidChanges::default();
        let is_cached = |mark| changes.unless_changed(mark, || ()).is_some();
        let before = changes.mark();
        assert!(is_cached(before));
        let mut during = before;
        changes.record(Some(set(1)), || {
            during = changes.mark();
            assert!(!is_cached(before) && !is_cached(during));
        });
        assert!(!is_cached(before) && !is_cached(during));
        assert!(is_cached(changes.mark()));
        assert!(matches!(changes.since(during), ChangedSince::Uids(sets) if sets == [set(1)]));
    }
}
